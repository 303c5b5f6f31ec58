"""Checks a command as it stands on a page, without running it.

`vsetune` commands are parsed by the command line itself; of other programs, what they name of ours must exist: targets
of make, extras of the package, scripts, files and environment variables. A program that is not in PROGRAMS is refused,
so whoever writes of a new one adds here how it is checked.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import dropwhile, pairwise
from pathlib import Path
from typing import Any

import click
import typer
from written_pages import ROOT

from vsetune.cli.main import app

_ASSIGNMENT = re.compile(r"[A-Z][A-Z0-9_]*=.*", re.DOTALL)
_SEPARATORS = {"&&", "||", "|", ";", "&"}
_LAUNCHES = {"up", "down", "attach", "dashboard", "exec"}
"""Commands of Ray's launcher; each takes a cluster's file first."""
_GIT = {"add", "bisect", "clone", "commit", "push", "switch", "tag"}


def commands_in(text: str) -> Iterator[list[str]]:
    """The words of every command of a shell block: without comments and redirections, variables as they are written."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="<>|&;")
        lexer.whitespace_split = True
        words: list[str] = []
        into_file = False
        for word in lexer:
            if into_file:
                into_file = False
            elif word in (">", ">>", "<"):
                into_file = True
            elif word in _SEPARATORS:
                yield words
                words = []
            else:
                words.append(word)
        if words:
            yield words


def without_variables(words: Sequence[str]) -> list[str]:
    """A command without the variables that are set for it."""
    return list(dropwhile(_ASSIGNMENT.fullmatch, words))


def trouble(words: Sequence[str]) -> str | None:
    """What is wrong with a command; None where nothing is."""
    rest = without_variables(words)
    for assignment in words[: len(words) - len(rest)]:
        if problem := _variable_trouble(assignment):
            return problem
    if not rest:
        return "no command"
    program, arguments = Path(rest[0]).name, rest[1:]
    if program not in PROGRAMS:
        return f"{program}: a program that no test knows; say how it is checked in {Path(__file__).name}"
    missing = [word for word in arguments if _names_a_file_of_ours(word) and not (ROOT / word).exists()]
    if missing:
        return f"{', '.join(missing)}: not in this repository"
    if program == "vsetune":
        return vsetune_trouble(arguments)
    return PROGRAMS[program](arguments)


def vsetune_trouble(arguments: Sequence[str]) -> str | None:
    """Parses as the command line does, without calling the command."""
    return click_trouble(typer.main.get_command(app), arguments)


def click_trouble(command: Any, arguments: Sequence[str]) -> str | None:
    """For a tree of Click commands: are there such subcommands and options, and every argument they need?"""
    rest = list(arguments)
    while rest and rest[0] in getattr(command, "commands", {}):
        command = command.commands[rest.pop(0)]
    if hasattr(command, "commands") and not (rest and rest[0].startswith("-")):
        return f"{rest[0] if rest else 'nothing'}: no command of {command.name}"
    try:
        command.make_context(command.name, rest)
    except Exception as error:  # Typer has a Click of its own beside Click's, with equal exceptions in both
        if isinstance(error, typer.Exit | click.exceptions.Exit):  # --help and --version end here
            return None
        if hasattr(error, "format_message"):
            return f"{command.name}: {error.format_message()}"
        raise
    return None


@cache
def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def _make(arguments: Sequence[str]) -> str | None:
    unknown = [word for word in arguments if not _ASSIGNMENT.fullmatch(word) and word not in make_targets()]
    return f"make {', '.join(unknown)}: no such target" if unknown else None


def _pip(arguments: Sequence[str]) -> str | None:
    """Extras of our package, by name or by folder, must be declared."""
    if arguments[:1] not in (["download"], ["install"], ["wheel"]):
        return f"pip {' '.join(arguments[:1])}: need download, install or wheel"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for word in arguments:
        named = re.fullmatch(r"(?:\.|vsetune)\[(.+)\]", word)
        unknown = set(named[1].split(",")) - set(project["optional-dependencies"]) if named else set()
        if unknown:
            return f"{word}: no extra {', '.join(sorted(unknown))} in pyproject.toml"
    for option, file in pairwise(arguments):
        if option in ("-c", "--constraint", "-r", "--requirement") and not (ROOT / file).is_file():
            return f"{option} {file}: no such file"
    return None


def _python(arguments: Sequence[str]) -> str | None:
    return None if arguments and (ROOT / arguments[0]).is_file() else f"python {' '.join(arguments)}: no such script"


def _export(arguments: Sequence[str]) -> str | None:
    problems = [_variable_trouble(word) for word in arguments]
    return next((problem for problem in problems if problem), None)


def _ray(arguments: Sequence[str]) -> str | None:
    """What a job runs must pass for a command itself; a cluster's file must exist. `make test-slow` parses the rest."""
    if arguments[:1] and arguments[0] in _LAUNCHES:
        return None if (ROOT / arguments[1]).is_file() else f"ray {arguments[0]} {arguments[1]}: no such file"
    return trouble(arguments[arguments.index("--") + 1:]) if "--" in arguments else None


def _aws(arguments: Sequence[str]) -> str | None:
    """What is sent from a file of ours must be there."""
    files = [word.removeprefix("file://") for word in arguments if word.startswith("file://")]
    missing = [file for file in files if not (ROOT / file).is_file()]
    return f"aws: {', '.join(missing)}: no such file" if missing else None


def _git(arguments: Sequence[str]) -> str | None:
    """What `git bisect run` runs must pass for a command itself."""
    if arguments[:2] == ["bisect", "run"]:
        return trouble(arguments[2:])
    return None if arguments and arguments[0] in _GIT else f"git {' '.join(arguments)}: need one of {sorted(_GIT)}"


def _pre_commit(arguments: Sequence[str]) -> str | None:
    known = {"install", "run"}
    return None if arguments and arguments[0] in known else f"pre-commit {' '.join(arguments)}: need {sorted(known)}"


def _nothing_of_ours(arguments: Sequence[str]) -> str | None:
    return None


PROGRAMS: dict[str, Callable[[Sequence[str]], str | None]] = {
    "vsetune": vsetune_trouble, "make": _make, "pip": _pip, "python": _python, "export": _export, "ray": _ray,
    "git": _git, "pre-commit": _pre_commit, "aws": _aws,
    **dict.fromkeys(
        ("cd", "docker", "kill", "kubectl", "mlflow", "optuna-dashboard", "source"),
        _nothing_of_ours,
    ),
}


def _names_a_file_of_ours(word: str) -> bool:
    """`studies/quickstart.yaml` does, `data/mine` does not: there is no folder `data`. NAME stands for any name."""
    first, slash, rest = word.partition("/")
    return bool(slash and rest and first not in (".", "..", "") and (ROOT / first).is_dir() and "NAME" not in rest)


def _variable_trouble(assignment: str) -> str | None:
    name = assignment.partition("=")[0]
    return None if name in {"PYTHONPATH", *_variables()} else f"{name}: no file of ours reads this variable"


@cache
def _variables() -> set[str]:
    code = [path for folder in ("platform", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    files = [*code, *(ROOT / "studies").rglob("*.yaml"), ROOT / "cluster.yaml"]
    words = (re.findall(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b", path.read_text(encoding="utf-8")) for path in files)
    return {word for found in words for word in found}
