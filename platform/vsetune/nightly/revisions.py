"""The commits between two nights that change what runs: the suspects."""

from __future__ import annotations

import ast
import subprocess
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from vsetune.errors import one_line
from vsetune.version import PACKAGE_FOLDER


def _run_git(folder: Path, words: Sequence[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", "-C", str(folder), *words], capture_output=True, check=False, **options)


MOST_SUSPECTS = 5
_EDITED = "+changes"
_WAIT_S = 10
_SHORT = 12
_NO_CODE = ("docs", "tests", "*.md")
"""Paths of a repository that no night runs."""
_CHANGES_NOTHING = "documents, tests, comments, docstrings or formatting alone"
_NO_FILE = "0" * 40


@dataclass(frozen=True)
class CommitRange:
    """Revisions of the last night without a change and of the first night with it, as in `Night`."""

    good: str
    bad: str


@dataclass(frozen=True)
class Suspects:
    """lines: `abc1234 its subject`, newest first, or one line on why no commit can be named. note: number of commits of
    the range that are left out, and why; empty where none is."""

    lines: Sequence[str] = ()
    note: str = ""


@dataclass(frozen=True)
class _Change:
    """One file of a commit. before, after: ids of its content in the parents and in the commit; `_NO_FILE` where the
    file does not exist."""

    name: str
    before: Sequence[str]
    after: str


def commits_in(between: CommitRange, *, repository: Path | None = None) -> Suspects:
    """At most `MOST_SUSPECTS` commits that change more than documents, tests, comments, docstrings and formatting; none
    where the code is the same.

    A range that no repository here knows gives one line with both revisions, and so does a range without a suspect.
    repository: default that of this code.
    """
    good, bad = between.good.removesuffix(_EDITED), between.bad.removesuffix(_EDITED)
    edited = [f"{bad[:_SHORT]} with changes that are not committed"] if between.bad.endswith(_EDITED) else []
    if good == bad:
        return Suspects(edited)
    found = _suspects(PACKAGE_FOLDER if repository is None else repository, good, bad)
    if found is None:
        unknown = f"the code changed from {good[:_SHORT]} to {bad[:_SHORT]}; no repository here knows both"
        return Suspects([*edited, unknown])
    return Suspects([*edited, *found.lines][:MOST_SUSPECTS], found.note)


def _suspects(folder: Path, good: str, bad: str) -> Suspects | None:
    """The suspects between two revisions; None where git does not know the range."""
    if not (good.isalnum() and bad.isalnum()):
        return None
    code = [":/", *(f":(top,exclude){name}" for name in _NO_CODE)]
    log = ["log", "--format=%x00%h %s", "--raw", "-c", "--root", "--no-abbrev", "--no-renames", f"{good}..{bad}", "--"]
    touched, count = _git_bytes(folder, [*log, *code]), _git_bytes(folder, ["rev-list", "--count", f"{good}..{bad}"])
    if touched is None or count is None:
        return None
    between = f"from {good[:_SHORT]} to {bad[:_SHORT]}"
    if int(count) == 0:
        return Suspects([f"the code went back {between}"])
    commits = [_suspected(entry) for entry in touched.decode(errors="replace").split("\0")[1:]]
    contents = _contents(folder, [change for _, changes in commits for change in changes])
    lines = [line for line, changes in commits if any(_changes_what_runs(change, contents) for change in changes)]
    skipped = int(count) - len(lines)
    if not lines:
        return Suspects([f"no commit {between} changes what runs: {_CHANGES_NOTHING} ({skipped} skipped)"])
    note = f"{skipped} of {int(count)} commits {between} are no suspects: they change {_CHANGES_NOTHING}"
    return Suspects(lines, note if skipped else "")


def _suspected(entry: str) -> tuple[str, list[_Change]]:
    """(`abc1234 its subject`, files that it changes), from the output of `git log --raw -c`. A merge changes the files
    that differ from all its parents."""
    subject, *files = entry.strip("\n").split("\n")
    changes = []
    for file in filter(None, files):
        status, _, name = file.partition("\t")
        parents = status.count(":", 0, len(status) - len(status.lstrip(":")))
        ids = status.split()[parents + 1:-1]
        changes.append(_Change(name, ids[:parents], ids[parents]))
    return one_line(subject), changes


def _changes_what_runs(change: _Change, contents: Mapping[str, bytes]) -> bool:
    """Whether the meaning of a file differs from that in every parent. A file that cannot be read counts as different.
    """
    meaning = _MEANINGS.get(PurePosixPath(change.name).suffix)
    if meaning is None or change.after not in contents:
        return True
    try:
        after = meaning(contents[change.after])
        return all(before not in contents or meaning(contents[before]) != after for before in change.before)
    except (SyntaxError, ValueError, yaml.YAMLError, RecursionError, MemoryError):
        return True


def _python_meaning(source: bytes) -> str:
    """The syntax tree without positions, docstrings and other statements without effect."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                setattr(node, name, [each for each in block if not _does_nothing(each)])
    return ast.dump(tree)


def _does_nothing(statement: ast.AST) -> bool:
    is_constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_constant or isinstance(statement, ast.Pass)


def _yaml_meaning(text: bytes) -> str:
    """The tokens, which contain no comments. No objects are built from them."""
    return repr([(type(token), getattr(token, "value", None)) for token in yaml.scan(text)])


_MEANINGS: Mapping[str, Callable[[bytes], str]] = {
    ".py": _python_meaning, ".yaml": _yaml_meaning, ".yml": _yaml_meaning,
    ".toml": lambda text: repr(tomllib.loads(text.decode())),
}
"""By file suffix: functions whose results are equal for two contents that do the same."""


def _contents(folder: Path, changes: Sequence[_Change]) -> dict[str, bytes]:
    """Contents by id, of the files whose meaning is compared; ids that git does not have are left out."""
    readable = [change for change in changes if PurePosixPath(change.name).suffix in _MEANINGS]
    wanted = {each for change in readable for each in (*change.before, change.after)} - {_NO_FILE}
    printed = _git_bytes(folder, ["cat-file", "--batch"], given="".join(f"{each}\n" for each in wanted).encode()) or b""
    contents = {}
    while printed:
        head, _, printed = printed.partition(b"\n")
        words = head.split()
        if len(words) == 3:  # id, type, size; otherwise `ID missing`
            size = int(words[2])
            contents[words[0].decode()], printed = printed[:size], printed[size + 1:]
    return contents


def _git_bytes(folder: Path, words: Sequence[str], *, given: bytes = b"") -> bytes | None:
    """The output of git; None where it fails."""
    try:
        done = _run_git(folder, words, input=given, timeout=_WAIT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
