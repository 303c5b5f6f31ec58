"""`vsetune`: the entry point, its exit codes, its groups of commands, and the checks of components."""

from __future__ import annotations

import errno
import inspect
import io
import logging
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.table import Column, Table
from rich.text import Text
from typer.core import TyperGroup

import vsetune
from vsetune.cli import components, data, job, leaderboard, network_weights, nightly, study, tracking, train, trial
from vsetune.cli.output import complain, place_to_write, print_json, results, say
from vsetune.config.plugins import load_installed, place_in_plugin
from vsetune.config.registry import name_of
from vsetune.errors import ConfigError, Problem, UsageError, VsetuneError
from vsetune.quality.checks import Check, Finding, Result
from vsetune.quality.subjects import loss_at, network_at, write_draft
from vsetune.storage.addresses import mask_output, masked
from vsetune.storage.paths import home, home_variable
from vsetune.storage.whole_files import FULL

LOSS_EXAMPLE = "Example: vsetune losses check my_loss"
NETWORK_EXAMPLE = "Example: vsetune networks check my_network"

_COLOURS = {Result.HOLDS: "green", Result.FAILS: "red", Result.NOT_APPLICABLE: "dim"}

Component = Annotated[
    str,
    typer.Argument(
        metavar="PATH_OR_NAME", help="folder of your own, or name as in a study file", show_default=False
    ),
]
Json = Annotated[bool, typer.Option("--json", metavar="", help="the same as JSON")]


def check_loss(component: Component, as_json: Json = False) -> None:
    """Check what every loss must hold: gradients, NaN, small batches, extremes, resume; and time a step.

    Exit code 1 if something does not hold, 2 if there is no such loss.
    """
    from vsetune.quality.loss_batches import LossSubject
    from vsetune.quality.loss_checks import (
        LOSS_CHECKS,  # brings torch, which other commands do without
        step_times,
    )

    load_installed()
    spec = loss_at(component)
    findings = _run(LOSS_CHECKS, LossSubject(spec))
    try:
        milliseconds, ratio = step_times(spec())
    except Exception:  # foreign code; what is wrong with it is among the findings
        timing: dict[str, float] = {}
    else:
        timing = {"milliseconds": round(milliseconds, 3), "times_lmh": round(ratio, 2)}
    _report(name_of(spec), findings, {"step": timing}, as_json=as_json)


def check_network(component: Component, as_json: Json = False) -> None:
    """Check what every network must hold: shapes, padding, evaluation pair by pair, gradients, learning by heart.

    Exit code 1 if something does not hold, 2 if there is no such network.
    """
    from vsetune.quality.network_checks import NETWORK_CHECKS  # brings torch, which other commands do without
    from vsetune.quality.network_learning import NetworkSubject

    load_installed()
    spec = network_at(component)
    _report(name_of(spec), _run(NETWORK_CHECKS, NetworkSubject(spec)), {}, as_json=as_json)


def _run(checks: Sequence[Check[Any]], subject: Any) -> list[Finding]:
    return [check.finding(subject) for check in checks]


def _report(name: str, findings: Sequence[Finding], facts: dict[str, Any], *, as_json: bool) -> None:
    """Print the findings; exit with code 1 if any check fails."""
    failed = [each for each in findings if each.result is Result.FAILS]
    if as_json:
        print_json({"name": name, "holds": not failed, "checks": [asdict(each) for each in findings], **facts})
    else:
        results.print(_table(findings))
        _say_step(facts.get("step", {}))
        say(f"{name}: {len(findings) - len(failed)} of {len(findings)} checks hold or do not apply")
    if failed:
        raise typer.Exit(1)


def _table(findings: Sequence[Finding]) -> Table:
    fixed = (Column(name, no_wrap=True) for name in ("check", "result"))
    table = Table(*fixed, Column("what it means", overflow="fold"))
    for each in findings:
        meaning = Text(each.meaning)
        if each.note:
            meaning.append(f"\n{each.note}", style="bold red" if each.result is Result.FAILS else "dim")
        table.add_row(Text(each.check), Text(str(each.result), style=_COLOURS[each.result]), meaning)
    return table


def _say_step(timing: dict[str, float]) -> None:
    if timing:
        say(f"a step of 128 pairs takes {timing['milliseconds']:.2f} ms, {timing['times_lmh']:.2f} x LMH in this run")


NEW_LOSS_EXAMPLE = "Example: vsetune losses new my_loss"
NEW_NETWORK_EXAMPLE = "Example: vsetune networks new my_network"

NewName = Annotated[str, typer.Argument(help="what study files will call it, e.g. my_own", show_default=False)]
Parent = Annotated[Path, place_to_write("--folder", metavar="DIR", help="where the folder NAME is made")]


def new_loss(name: NewName, folder: Parent = Path()) -> None:
    """Write a commented loss of your own that works, with its test: a folder to change."""
    _write("loss", name, folder)


def new_network(name: NewName, folder: Parent = Path()) -> None:
    """Write a commented network of your own that works, with its test: a folder to change."""
    _write("network", name, folder)


def _write(kind: Literal["loss", "network"], name: str, parent: Path) -> None:
    written = write_draft(kind, name, parent)
    for file in written:
        results.out(str(file), highlight=False)
    folder, noun = written[0].parent, {"loss": "losses", "network": "networks"}[kind]
    say(f"next: change {folder}/{kind}.py, then vsetune {noun} check {folder}")
    say(f"in a study file: plugins: [{folder.name}], and {noun}: [{{name: {name}}}]; the path starts at that file")


_PLACE_REFUSES = FULL | {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR}
_NAME_REFUSED = {errno.ENAMETOOLONG, errno.EISDIR, errno.ELOOP, errno.EEXIST, errno.ENOTEMPTY}
_LONGEST_REASON = 300
_Misuse: Any = typer.BadParameter.__base__
"""The exception that Typer raises for arguments that no command takes; Typer has no public name for it."""

_log = logging.getLogger(__name__)


class _Commands(TyperGroup):
    """Ctrl-C in any command, while it imports and prepares too: one line and exit code 130."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        _join_lines(self.commands)

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            say("interrupted")
            raise typer.Exit(130) from None


def _join_lines(commands: Mapping[str, Any]) -> None:
    """Help of commands breaks where the terminal ends, not where their source does."""
    for command in commands.values():
        paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
        command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
        _join_lines(getattr(command, "commands", {}))


app = typer.Typer(
    name="vsetune", cls=_Commands, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: vsetune study run studies/quickstart.yaml",
)
app.add_typer(study.app, name="study")
app.add_typer(job.app, name="job")
app.add_typer(leaderboard.app, name="leaderboard")
app.add_typer(nightly.app, name="nightly")
app.add_typer(trial.app, name="trial")
app.add_typer(data.app, name="data")
app.add_typer(tracking.app, name="tracking")
app.add_typer(components.losses, name="losses")
app.add_typer(components.networks, name="networks")
components.losses.command("check", epilog=LOSS_EXAMPLE)(check_loss)
components.losses.command("new", epilog=NEW_LOSS_EXAMPLE)(new_loss)
components.networks.command("check", epilog=NETWORK_EXAMPLE)(check_network)
components.networks.command("new", epilog=NEW_NETWORK_EXAMPLE)(new_network)
components.networks.command("import", epilog=network_weights.IMPORT_EXAMPLE)(network_weights.import_network)
components.networks.command("evaluate", epilog=network_weights.EVALUATE_EXAMPLE)(network_weights.evaluate_network)
app.command(name="train", epilog=train.EXAMPLE)(train.train)


def _print_version(wanted: bool) -> None:
    if not wanted:
        return
    results.out(f"vsetune {vsetune.__version__}", highlight=False)
    raise typer.Exit


@app.callback()
def _root(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, metavar="", help="print it and exit")
    ] = False,
) -> None:
    """Which loss reaches the best M-Recall in the fewest epochs? Fair, resumable comparison of losses and networks
    for image-text retrieval.

    [bold]vsetune study run studies/quickstart.yaml[/bold]   compare four losses, in minutes
    [bold]vsetune leaderboard show quickstart[/bold]         see the result again
    [bold]vsetune losses list[/bold]                         see what can be compared

    Data, checkpoints and results go to VSETUNE_HOME (default: ~/vsetune). VSETUNE_LOG=INFO tells more.
    """


def run() -> None:
    """The function behind the `vsetune` command, called by `vsetune.cli.entry`."""
    mask_output()
    sys.stdout, sys.stderr = _unfailing(sys.stdout), _unfailing(sys.stderr)
    sys.exit(_exit_code())


class _WhileRead(io.FileIO):
    """A file descriptor whose reader may close it, as `head` does: further output is dropped."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            return len(data)


def _unfailing(stream: Any) -> Any:
    """The stream, without errors for a closed reader or for characters that it cannot show."""
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    raw = _WhileRead(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), stream.encoding, errors="backslashreplace", line_buffering=stream.line_buffering
    )


def _exit_code() -> int:
    """Runs the command line. A command returns None, or the code of the `typer.Exit` that ended it."""
    try:
        _set_up_logs()
        _require_utf8(sys.argv[1:])
        return app(prog_name="vsetune", standalone_mode=False) or 0
    except _Misuse as error:
        return _told("error", _misuse(error), 2)
    except ConfigError as error:
        return _told("error", _with_way_out(error.problems), 2)
    except UsageError as error:
        return _told("error", _with_way_out([error.problem]), 2)
    except VsetuneError as error:
        return _told("failed", [error.problem], 1)
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    except OSError as error:
        return _told_of_place(error)
    except MemoryError as error:
        _log.debug("out of memory", exc_info=error)
        reason = " ".join(str(error).split()) or "no more to be had"
        return _told("failed", [f"out of memory ({reason}); use smaller sizes, or more memory"], 1)
    except Exception as error:  # a bug of vsetune: one line, with the traceback at DEBUG
        _log.debug("a mistake of vsetune", exc_info=error)
        return _told("failed", [_mistake(error)], 1)


def _set_up_logs() -> None:
    level = os.environ.get("VSETUNE_LOG", "WARNING").upper()
    if level not in logging.getLevelNamesMapping():
        raise UsageError(f"VSETUNE_LOG: got {level[:40]}, need DEBUG, INFO, WARNING or ERROR")
    logging.basicConfig(
        level=level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )


def _require_utf8(words: Sequence[str]) -> None:
    """UsageError for an argument that is not UTF-8. Its bytes arrive as lone surrogates, which files, databases and
    terminals refuse."""
    for number, word in enumerate(words, start=1):
        try:
            word.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"argument {number}: got {word[:60]!a}, need UTF-8; rename it") from error


def _misuse(error: Any) -> list[str]:
    """Typer's message about arguments that no command takes; empty where Typer has shown the help instead."""
    text = error.format_message().rstrip(".")
    for written, told in ((". Did you mean", ", did you mean"), ("(Possible options", "(possible options")):
        text = text.replace(written, told)
    command = "vsetune" if error.ctx is None else error.ctx.command_path
    return [f"{command}: {text[0].lower()}{text[1:]}; {command} --help shows what it takes"] if text else []


def _told(kind: str, problems: Sequence[str], code: int) -> int:
    """Prints every problem in one line, whatever line endings its quotes have. Returns the exit code."""
    for problem in problems:
        complain(kind, " ".join(problem.split()), code=getattr(problem, "code", ""))
    return code


def _with_way_out(problems: Sequence[str]) -> list[str]:
    """Adds the variable that moves a home to a problem with a file of that home that cannot be written."""
    try:
        place, variable = home(), home_variable()
    except ConfigError:  # the problem itself
        return [*problems]
    there = next(each for each in (place, *place.parents) if each.exists())
    if there.is_dir() and os.access(there, os.W_OK):
        return [*problems]
    way_out = f"; {place} cannot be written: set {variable} to a folder that can"
    return [
        Problem(f"{each.rstrip('.')}{way_out}", getattr(each, "code", ""))
        if str(place) in each and variable not in each else each
        for each in problems
    ]


def _told_of_place(error: OSError) -> int:
    """The person can correct a path that cannot be written (2); other system failures are reported unchanged (1)."""
    place, reason = error.filename or "a file", error.strerror or error
    if error.errno in _PLACE_REFUSES:
        problem = f"{place}: {reason}; free space, check the rights, or set {home_variable()} elsewhere"
        return _told("error", [problem], 2)
    if error.errno in _NAME_REFUSED:
        return _told("error", [f"{place}: {reason}; name another file or folder"], 2)
    _log.debug("a failure of the system", exc_info=error)
    told = f"{place}: {reason}" if error.errno is not None else str(error)
    return _told("failed", [f"{type(error).__name__}: {told}; VSETUNE_LOG=DEBUG shows where it arose"], 1)


def _mistake(error: Exception) -> str:
    """The type of the exception, its text, and the innermost of our lines that it passed."""
    package = f"{os.sep}vsetune{os.sep}"
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if package in frame.filename]
    at = f" at {ours[-1].filename.rpartition(package)[2]}:{ours[-1].lineno}" if ours else ""
    text = masked(" ".join(str(error).split()))
    text = text if len(text) <= _LONGEST_REASON else text[:_LONGEST_REASON] + "..."
    place = place_in_plugin(error)
    if place is not None:
        return f"{place}: {type(error).__name__}: {text}; fix the plugin, VSETUNE_LOG=DEBUG shows the whole traceback"
    return (
        f"{type(error).__name__}{at}: {text or 'no further words'}; a mistake of vsetune, please report it; "
        "VSETUNE_LOG=DEBUG shows the whole traceback"
    )


if __name__ == "__main__":
    run()
