"""`vsetune`: the entry point, its exit codes, and its groups of commands."""

from __future__ import annotations

import errno
import inspect
import io
import logging
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import vsetune
from vsetune.cli import (
    components,
    data,
    job,
    leaderboard,
    network_weights,
    nightly,
    quickstart,
    serve,
    study,
    tracking,
    train,
    trial,
    ui,
)
from vsetune.cli.options import flag
from vsetune.cli.output import BAD_VALUE, as_problem, complain, inform, is_interrupt, results
from vsetune.config.plugins import place_in_plugin
from vsetune.errors import ConfigError, Problem, UsageError, VsetuneError
from vsetune.home.addresses import mask_output, masked
from vsetune.home.paths import home, home_variable
from vsetune.home.whole_files import FULL
from vsetune.version import PACKAGE_FOLDER

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
            inform("interrupted")
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
    epilog="Example: vsetune quickstart",
)
for _alone in (quickstart, train, serve, ui):
    app.add_typer(_alone.app)
for _name, _group in {
    "study": study.app, "job": job.app, "leaderboard": leaderboard.app, "nightly": nightly.app, "trial": trial.app,
    "data": data.app, "tracking": tracking.app, "losses": components.losses, "networks": components.networks,
}.items():
    app.add_typer(_group, name=_name)
components.networks.add_typer(network_weights.app)


def _print_version(wanted: bool) -> None:
    if not wanted:
        return
    results.out(f"vsetune {vsetune.__version__}")
    raise typer.Exit


@app.callback()
def _root(
    show_version: Annotated[
        bool, flag("--version", "print it and exit", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Which loss reaches the best M-Recall in the fewest epochs? Fair, resumable comparison of losses and networks
    for image-text retrieval.

    [bold]vsetune quickstart[/bold]                    compare three losses, in minutes
    [bold]vsetune leaderboard show quickstart[/bold]   see the result again
    [bold]vsetune losses list[/bold]                   see what can be compared

    Data, checkpoints and results go to VSETUNE_HOME (default: ~/vsetune). VSETUNE_LOG=INFO prints more.
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
        return _end("error", _misuse(error), 2)
    except UsageError as error:
        problems = error.problems if isinstance(error, ConfigError) else [error.problem]
        return _end("error", _with_way_out(problems), 2)
    except VsetuneError as error:
        return _end("failed", [error.problem], 1)
    except KeyboardInterrupt:
        inform("interrupted")
        return 130
    except OSError as error:
        return _end_of_system(error)
    except MemoryError as error:
        _log.debug("out of memory", exc_info=error)
        reason = " ".join(str(error).split()) or "none is left"
        return _end("failed", [Problem.of(
            "VSE-X020", "out of memory ({reason}); use smaller sizes, or more memory.", reason=reason
        )], 1)
    except Exception as error:  # a bug: one line, with the traceback at DEBUG
        if is_interrupt(error):
            inform("interrupted")
            return 130
        _log.debug("an unexpected exception", exc_info=error)
        return _end("failed", [_unexpected(error)], 1)


def _set_up_logs() -> None:
    level = os.environ.get("VSETUNE_LOG", "WARNING").upper()
    if level not in logging.getLevelNamesMapping():
        need = "DEBUG, INFO, WARNING or ERROR"
        raise UsageError(BAD_VALUE(option="VSETUNE_LOG", got=level[:40], need=need))
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
            raise UsageError(
                "VSE-X003", "argument {number}: got {got}, need UTF-8; rename it.", number=number, got=ascii(word[:60])
            ) from error


def _misuse(error: Any) -> list[Problem]:
    """Typer's message about arguments that no command takes; empty where Typer has shown the help instead."""
    text = error.format_message().rstrip(".")
    for written, ours in (
        (". Did you mean", ", did you mean"), ("(Possible options", "(possible options"), ("Value error, ", ""),
    ):
        text = text.replace(written, ours)
    command = "vsetune" if error.ctx is None else error.ctx.command_path
    return [Problem.of(
        "VSE-X001", "{command}: {misuse}; {command} --help shows what it takes.", command=command,
        misuse=f"{text[0].lower()}{text[1:]}",
    )] if text else []


def _end(kind: str, problems: Sequence[str], code: int) -> int:
    """Prints every problem in one line. Returns the exit code."""
    for problem in problems:
        complain(kind, problem)
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
        as_problem(each).worded(f"{each.rstrip('.')}{way_out}")
        if str(place) in each and variable not in each else each
        for each in problems
    ]


def _end_of_system(error: OSError) -> int:
    """The person can correct a path that cannot be written (2); other system failures are reported unchanged (1)."""
    place, reason = error.filename or "a file", error.strerror or error
    if error.errno in _PLACE_REFUSES:
        return _end("error", [Problem.of(
            "VSE-X012", "{place}: {reason}; free space, check the rights, or set {variable} elsewhere.", place=place,
            reason=reason, variable=home_variable(),
        )], 2)
    if error.errno in _NAME_REFUSED:
        return _end("error", [Problem.of(
            "VSE-X013", "{place}: {reason}; name another file or folder.", place=place, reason=reason
        )], 2)
    _log.debug("a failure of the system", exc_info=error)
    reason = f"{place}: {reason}" if error.errno is not None else str(error)
    return _end("failed", [Problem.of(
        "VSE-X021", "{kind}: {reason}; VSETUNE_LOG=DEBUG shows where it arose.", kind=type(error).__name__,
        reason=reason,
    )], 1)


def _unexpected(error: Exception) -> Problem:
    """The type of the exception, its text, and the innermost of our lines that it passed, or its place in a plugin."""
    kind = type(error).__name__
    reason = masked(" ".join(str(error).split())) or "no further words"
    reason = reason if len(reason) <= _LONGEST_REASON else reason[:_LONGEST_REASON] + "..."
    plugin = place_in_plugin(error)
    if plugin is not None:
        return Problem.of(
            "VSE-X022", "{place}: {kind}: {reason}; fix the plugin, VSETUNE_LOG=DEBUG shows the whole traceback.",
            place=plugin, kind=kind, reason=reason,
        )
    passed = [(Path(frame.filename).resolve(), frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    ours = [(file, line) for file, line in passed if file.is_relative_to(PACKAGE_FOLDER)]
    place = f"{ours[-1][0].relative_to(PACKAGE_FOLDER)}:{ours[-1][1]}" if ours else "an unknown place"
    return Problem.of(
        "VSE-X023", "{kind} at {place}: {reason}; this is a bug of vsetune, please report it; VSETUNE_LOG=DEBUG shows "
        "the whole traceback.", kind=kind, place=place, reason=reason,
    )


if __name__ == "__main__":
    run()
