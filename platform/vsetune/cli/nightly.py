"""`vsetune nightly`: the same cells every night, compared with their own history."""

from __future__ import annotations

from datetime import date as Day
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column, Table
from rich.text import Text

from vsetune.cli import nightly_history
from vsetune.cli.output import interruptible, messages, results, say
from vsetune.errors import ConfigError

if TYPE_CHECKING:
    from vsetune.nightly.night import NightReport

app = typer.Typer(
    no_args_is_help=True, help="The same cells every night, held against their own history.",
    epilog="Example: vsetune nightly run studies/nightly.yaml",
)

app.command("install", epilog=nightly_history.INSTALL_EXAMPLE)(nightly_history.install)
app.command("history", epilog=nightly_history.HISTORY_EXAMPLE)(nightly_history.history)
app.command("bisect", epilog=nightly_history.BISECT_EXAMPLE)(nightly_history.bisect)
app.command("accept", epilog=nightly_history.ACCEPT_EXAMPLE)(nightly_history.accept)

NightlyFile = Annotated[Path, typer.Argument(help="nightly file (YAML)", show_default=False)]

_STYLES = {"regression": "red", "changed": "red", "improvement": "green", "missing": "yellow"}
_SAID_AT_ALL_TIMES = ("regression", "changed", "improvement", "missing")


@app.command(epilog="Example: vsetune nightly run studies/nightly.yaml")
def run(
    file: NightlyFile,
    date: Annotated[
        str | None, typer.Option(metavar="DATE", help="day that names the night, such as 2026-01-31; default: today")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", metavar="", help="replace the night of this date, also a complete one")
    ] = False,
    address: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Ray cluster; default: RAY_ADDRESS, or this machine")
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", metavar="", help="show quiet measures too")] = False,
) -> None:
    """Run tonight's cells and compare them with the nights before. A night that was interrupted goes on.

    Exit codes: 0 no change, 1 a regression or changed first losses, 2 the night could not run or is not complete, 130
    interrupted (the same command goes on).
    """
    from vsetune.nightly.history import is_date
    from vsetune.nightly.nightly_spec import load_nightly
    from vsetune.nightly.tonight import run_night
    from vsetune.study.stopping import sigterm_like_ctrl_c

    tonight = Day.today().isoformat() if date is None else date
    if not is_date(tonight):
        raise ConfigError(f"--date: got {tonight[:40]}, need a day such as 2026-01-31")
    spec = load_nightly(file)
    with interruptible(f"nothing finished is lost, go on with: vsetune nightly run {file}"), sigterm_like_ctrl_c():
        report = run_night(spec, date=tonight, where=str(file), again=again, address=address, console=messages)
    show_report(report, show_all=show_all)
    raise typer.Exit(report.exit_code)


@app.command(epilog="Example: vsetune nightly schema > nightly.schema.json")
def schema() -> None:
    """Print the JSON Schema of nightly files, for editors."""
    import json

    from vsetune.nightly.nightly_spec import NightlySpec

    results.out(json.dumps(NightlySpec.model_json_schema(), indent=2), highlight=False)


def show_report(report: NightReport, *, show_all: bool) -> None:
    """The rows worth reading and the headline to stdout, notes to stderr. show_all: quiet rows too."""
    rows = [row for row in report.rows if show_all or row.verdict in _SAID_AT_ALL_TIMES]
    if rows:
        table = Table(
            Column("cell", overflow="fold"), Column("tonight", overflow="fold"), Column("verdict", no_wrap=True),
            Column("first suspect", overflow="fold"),
        )
        for row in rows:
            verdict = Text(row.verdict, style=_STYLES.get(row.verdict, ""))
            table.add_row(row.cell, row.text, verdict, row.suspects[0] if row.suspects else "")
        results.print(table)
    results.out(f"{report.nightly} {report.date}: {report.headline}", highlight=False)
    for note in report.notes:
        say(f"note: {note}")
