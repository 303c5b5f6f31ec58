"""`vsetune`: the entry point, its exit codes and its groups of commands.

Exit codes: 0 done, 1 failed, 2 misused (bad input; the message says how to mend it), 130 interrupted.
"""

from __future__ import annotations

import logging
import os
import sys

import typer

from vsetune.cli import data, leaderboard, study, train
from vsetune.cli.output import messages
from vsetune.errors import UsageError, VsetuneError

app = typer.Typer(
    name="vsetune", no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Fair, resumable comparison of losses and networks for image-text retrieval.",
    epilog="Start with: [bold]vsetune study run studies/quickstart.yaml[/bold], then "
    "[bold]vsetune leaderboard show quickstart[/bold]",
)
app.add_typer(data.app, name="data")
app.add_typer(study.app, name="study")
app.add_typer(leaderboard.app, name="leaderboard")
app.command(name="train", epilog=train.EXAMPLE)(train.train)


def run() -> None:
    """What the `vsetune` command calls."""
    logging.basicConfig(
        level=os.environ.get("VSETUNE_LOG", "WARNING").upper(), stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    sys.exit(_exit_code())


def _exit_code() -> int:
    try:
        app(standalone_mode=True)
    except UsageError as error:
        messages.print(f"[red]error[/red] {_escape(str(error))}", highlight=False, soft_wrap=True)
        return 2
    except VsetuneError as error:
        messages.print(f"[red]failed[/red] {_escape(str(error))}", highlight=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        messages.print("interrupted")
        return 130
    except BrokenPipeError:  # the reader of our output (head, less) has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return 0


def _escape(text: str) -> str:
    return text.replace("[", r"\[")


if __name__ == "__main__":
    run()
