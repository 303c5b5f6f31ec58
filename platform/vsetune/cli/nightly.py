"""`vsetune nightly`: the same cells every night, compared with their own history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import date as Day
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column, Table
from rich.text import Text

from vsetune.cli.options import Cluster, Json, flag, require_known
from vsetune.cli.output import BAD_VALUE, complain, inform, interruptible, print_json, results, stderr
from vsetune.errors import UsageError, VsetuneError, one_line
from vsetune.home.paths import home, remote_home
from vsetune.nightly.nightly_spec import NightlySpec, load_nightly
from vsetune.study.stopping import sigterm_like_ctrl_c
from vsetune.version import git_revision

if TYPE_CHECKING:
    from vsetune.nightly.history import History
    from vsetune.nightly.night import NightReport, ReportRow
    from vsetune.nightly.past_nights import PastNight


app = typer.Typer(
    no_args_is_help=True, help="The same cells every night, compared with their own history.",
    epilog="Example: vsetune nightly run studies/nightly.yaml",
)

NightlyFile = Annotated[Path, typer.Argument(help="nightly file (YAML)", show_default=False)]
FileOrName = Annotated[
    str, typer.Argument(metavar="FILE_OR_NAME", help="nightly file, or its name", show_default=False)
]
OneMeasure = Annotated[str | None, typer.Option("--measure", help="only this measure, or first_losses")]
OneCell = Annotated[str | None, typer.Option("--cell", help="only this cell, network.loss")]

_NO_FILE = (".yaml", ".yml")


@app.command(epilog="Example: vsetune nightly history scenes")
def history(
    sweep: FileOrName,
    last: Annotated[int, typer.Option(min=1, max=100_000, help="how many nights")] = 30,
    as_json: Json = False,
) -> None:
    """The nights there were, and those that are missing."""
    from vsetune.nightly.past_nights import past_nights

    name, past = _sweep(sweep)
    nights = past_nights(past)[-last:]
    for problem in dict.fromkeys(past.problems):
        complain("warning", problem)
    if as_json:
        print_json({
            "nightly": name, "nights": [asdict(night) for night in nights],
            "accepted": [asdict(each) for each in past.accepted()],
        })
        return
    if not nights:
        inform(f"nightly {name}: no night yet in {past.folder}; run one with: vsetune nightly run FILE")
        return
    results.print(_table_of_nights(nights))
    for each in past.accepted():
        of = f"{each.measure or 'all measures'}, {each.cell or 'all cells'}"
        results.out(f"accepted {each.date}: {of}: {each.reason}")


@app.command(epilog='Example: vsetune nightly accept scenes --measure epoch_time --reason "attention is exact now"')
def accept(
    sweep: FileOrName,
    reason: Annotated[str, typer.Option(help="why the change is meant; it stays in the history", show_default=False)],
    measure: OneMeasure = None, cell: OneCell = None,
    date: Annotated[str | None, typer.Option(metavar="DATE", help="first night that counts; default: last")]
    = None,
) -> None:
    """Accept an intended change: nights before it no longer count for what is named."""
    from vsetune.nightly.past_nights import accept_change

    name, past = _sweep(sweep)
    done = accept_change(past, reason, measure, cell, date)
    inform(
        f"nightly {name}: nights before {done.date} no longer count for {done.measure or 'all measures'} of "
        f"{done.cell or 'all cells'}: {done.reason}"
    )


_STYLES = {"regression": "red", "changed": "red", "improvement": "green", "missing": "yellow"}
_SIDES = {"good": 0, "bad": 1, "cannot be judged": 125}


@app.command(epilog="Example: git bisect run vsetune nightly check studies/nightly.yaml --measure step_time")
def check(file: NightlyFile, measure: OneMeasure = None, cell: OneCell = None) -> None:
    """Measure the current checkout against the last night without an alarm, for `git bisect run`.

    first_losses, step_time and step_wall_time take seconds; other measures train the night's trials.

    Exit codes: 0 good, 1 bad, 125 cannot be judged (git bisect then skips the commit), 130 interrupted.
    """
    with interruptible("the same command goes on"), sigterm_like_ctrl_c():
        try:
            rows, side = _checked(file, measure, cell)
        except Exception as error:  # any failure of a commit: git would take another exit code as bad
            complain("error", error.problem if isinstance(error, VsetuneError) else one_line(error))
            rows, side = [], "cannot be judged"
    show_rows([row for row in rows if row.verdict in _STYLES or measure is not None])
    results.out(f"{git_revision()[:12]}: {side}")
    raise typer.Exit(_SIDES[side])


def _checked(file: Path, measure: str | None, cell: str | None) -> tuple[list[ReportRow], str]:
    from vsetune.nightly.checking import checked_rows, side_of
    from vsetune.nightly.history import History, nightly_folder

    spec = load_nightly(file)
    past = History(nightly_folder(spec.nightly))
    past.fetch()
    rows = checked_rows(spec, past, measure=measure, cell=cell, where=str(file), console=stderr)
    return rows, side_of(rows)


def _sweep(file_or_name: str) -> tuple[str, History]:
    """(name, history, fetched) of a file, or of a name that has one. UsageError with the names that have one."""
    from vsetune.nightly.history import History, nightly_folder

    if file_or_name.endswith(_NO_FILE) or "/" in file_or_name:
        name = load_nightly(Path(file_or_name)).nightly
        past = History(nightly_folder(name))
        past.fetch()
        return name, past
    if remote_home() is not None:
        raise UsageError(
            "VSE-X050", "{name}: got the name of a sweep, need its nightly file with VSETUNE_HOME={home}.",
            name=file_or_name, home=remote_home(),
        )
    there = sorted(folder.name for folder in (home() / "nightly").glob("*") if (folder / "nights").is_dir())
    if not there:
        raise UsageError(
            "VSE-X051", "{name}: no nightly sweep has a history in {home}; give its file, or run a night first.",
            name=file_or_name, home=home(),
        )
    return file_or_name, History(nightly_folder(require_known(file_or_name, there, "nightly sweep")))


_NIGHT_STYLES = {"complete": "", "partial": "yellow", "failed": "red", "missed": "yellow"}


def _table_of_nights(nights: Sequence[PastNight]) -> Table:
    table = Table(
        Column("night", no_wrap=True), "is", Column("revision", no_wrap=True), Column("min", justify="right"),
        Column("exit code", justify="right"), Column("report", overflow="fold"),
    )
    for night in nights:
        code = "" if night.exit_code is None else str(night.exit_code)
        minutes = "" if night.seconds is None else f"{night.seconds / 60:.1f}"
        state = Text(night.state, style=_NIGHT_STYLES[night.state])
        table.add_row(night.date, state, night.revision[:10], minutes, code, night.text)
    return table


@app.command(epilog="Example: vsetune nightly run studies/nightly.yaml")
def run(
    file: NightlyFile,
    date: Annotated[
        str | None, typer.Option(metavar="DATE", help="day that names the night, such as 2026-01-31; default: today")
    ] = None,
    again: Annotated[bool, flag("--again", "replace the night of this date, also a complete one")] = False,
    address: Cluster = None,
    show_all: Annotated[bool, flag("--all", "show quiet measures too")] = False,
) -> None:
    """Run tonight's cells and compare them with the nights before. A night that was interrupted goes on.

    Exit codes: 0 no change, 1 a regression or changed first losses, 2 the night could not run or is not complete, 130
    interrupted (the same command goes on).
    """
    from vsetune.nightly.history import is_date
    from vsetune.nightly.tonight import run_night

    tonight = Day.today().isoformat() if date is None else date
    if not is_date(tonight):
        raise UsageError(BAD_VALUE(option="--date", got=tonight[:40], need="a day such as 2026-01-31"))
    spec = load_nightly(file)
    with interruptible(f"nothing finished is lost, go on with: vsetune nightly run {file}"), sigterm_like_ctrl_c():
        report = run_night(spec, date=tonight, where=str(file), again=again, address=address, console=stderr)
    show_report(report, show_all=show_all)
    raise typer.Exit(report.exit_code)


@app.command(epilog="Example: vsetune nightly schema > nightly.schema.json")
def schema() -> None:
    """Print the JSON Schema of nightly files, for editors."""
    print_json(NightlySpec.model_json_schema())


def show_report(report: NightReport, *, show_all: bool) -> None:
    """Print the rows worth reading and the headline to stdout, notes to stderr. show_all: quiet rows too."""
    show_rows([row for row in report.rows if show_all or row.verdict in _STYLES])
    results.out(f"{report.nightly} {report.date}: {report.headline}")
    for note in report.notes:
        inform(f"note: {note}")


def show_rows(rows: Sequence[ReportRow]) -> None:
    """Print rows as a table; nothing without rows."""
    if not rows:
        return
    table = Table(
        Column("cell", overflow="fold"), Column("tonight", overflow="fold"), Column("verdict", no_wrap=True),
        Column("first suspect", overflow="fold"),
    )
    for row in rows:
        verdict = Text(row.verdict, style=_STYLES.get(row.verdict, ""))
        table.add_row(row.cell, row.text, verdict, row.suspects[0] if row.suspects else "")
    results.print(table)
