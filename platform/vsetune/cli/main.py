"""`vsetune`: the entry point, its exit codes and its groups of commands.

Exit codes: 0 done, 1 failed, 2 misused (bad input; the message says how to mend it), 130 interrupted.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from vsetune.cli import catalogue, data, leaderboard, network_evaluate, network_import, study, tracking, train, trial
from vsetune.cli.output import complain, results
from vsetune.errors import UsageError, VsetuneError

_PLACE_REFUSES = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR}

app = typer.Typer(
    name="vsetune", no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: vsetune study run studies/quickstart.yaml",
)
app.add_typer(study.app, name="study")
app.add_typer(leaderboard.app, name="leaderboard")
app.add_typer(trial.app, name="trial")
app.add_typer(data.app, name="data")
app.add_typer(tracking.app, name="tracking")
app.add_typer(catalogue.losses, name="losses")
app.add_typer(catalogue.networks, name="networks")
catalogue.networks.command("import", epilog=network_import.EXAMPLE)(network_import.import_network)
catalogue.networks.command("evaluate", epilog=network_evaluate.EXAMPLE)(network_evaluate.evaluate_network)
app.command(name="train", epilog=train.EXAMPLE)(train.train)


def _print_version(wanted: bool) -> None:
    if not wanted:
        return
    try:
        results.out(f"vsetune {version('vsetune')}", highlight=False)
    except PackageNotFoundError:
        results.out("vsetune, not installed as a package", highlight=False)
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
    """What the `vsetune` command calls."""
    logging.basicConfig(
        level=os.environ.get("VSETUNE_LOG", "WARNING").upper(), stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    sys.exit(_exit_code())


def _exit_code() -> int:
    """Runs the command line. Typer leaves with SystemExit itself: 0, what a command chose, 2 misused, 130 Ctrl-C."""
    try:
        app(standalone_mode=True)
    except UsageError as error:
        complain("error", str(error))
        return 2
    except VsetuneError as error:
        complain("failed", str(error))
        return 1
    except OSError as error:
        if error.errno not in _PLACE_REFUSES:
            raise
        place = error.filename or "a file"
        complain("error", f"{place}: {error.strerror}; free space, check the rights, or set VSETUNE_HOME elsewhere")
        return 2
    return 0


if __name__ == "__main__":
    run()
