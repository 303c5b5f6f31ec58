"""`vsetune`: the entry point, its exit codes and its groups of commands.

Exit codes: 0 done, 1 failed, 2 misused (bad input; the message states how to correct it), 3 some trials of a study
failed, 4 a study finished but records wait for its tracking store, 130 interrupted.
"""

from __future__ import annotations

import errno
import inspect
import io
import logging
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import vsetune
from vsetune.cli import (
    component_checks,
    components,
    data,
    job,
    leaderboard,
    network_weights,
    nightly,
    study,
    tracking,
    train,
    trial,
)
from vsetune.cli.output import complain, results, say
from vsetune.config.plugin_loading import place_in_plugin
from vsetune.errors import ConfigError, UsageError, VsetuneError
from vsetune.storage.addresses import mask_output, masked
from vsetune.storage.paths import home, home_variable
from vsetune.storage.whole_files import FULL

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
components.losses.command("check", epilog=component_checks.LOSS_EXAMPLE)(component_checks.check_loss)
components.losses.command("new", epilog=component_checks.NEW_LOSS_EXAMPLE)(component_checks.new_loss)
components.networks.command("check", epilog=component_checks.NETWORK_EXAMPLE)(component_checks.check_network)
components.networks.command("new", epilog=component_checks.NEW_NETWORK_EXAMPLE)(component_checks.new_network)
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
        return _told("error", _with_way_out([str(error)]), 2)
    except VsetuneError as error:
        return _told("failed", [str(error)], 1)
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
        complain(kind, " ".join(problem.split()))
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
        f"{each.rstrip('.')}{way_out}" if str(place) in each and variable not in each else each for each in problems
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
        return f"{place}: {type(error).__name__}: {text}; mend the plugin, VSETUNE_LOG=DEBUG shows the whole traceback"
    return (
        f"{type(error).__name__}{at}: {text or 'no further words'}; a mistake of vsetune, please report it; "
        "VSETUNE_LOG=DEBUG shows the whole traceback"
    )


if __name__ == "__main__":
    run()
