"""`vsetune leaderboard export` and `table`: boards as files, as a table of a paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vsetune.cli.options import Baseline, flag, place_to_write
from vsetune.cli.output import BAD_VALUE, as_problem, inform, results
from vsetune.config.study.study_spec import TrackingSpec
from vsetune.errors import UsageError
from vsetune.home.home_files import keep_in_home
from vsetune.home.paths import home, remote_home
from vsetune.home.whole_files import write_text
from vsetune.records.events import StudyRecord
from vsetune.records.state import Attempt
from vsetune.records.studies import Studies
from vsetune.study.places import mlflow_ui
from vsetune.study.places import tracking_uri as store_uri

if TYPE_CHECKING:
    from vsetune.board.columns import Column
    from vsetune.board.many_studies import StudyAttempts
    from vsetune.board.rows import Shown


app = typer.Typer()

StudyNames = Annotated[list[str] | None, typer.Argument(help="name of a study, or of several", show_default=False)]
Every = Annotated[bool, flag("--all", "over every study under VSETUNE_HOME")]
TargetShare = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE", help="share of the baseline's mean best M-Recall to which epochs are compared, e.g. 0.9; "
        "default: 0.95", show_default=False,
    ),
]
ColumnKeys = Annotated[
    str | None,
    typer.Option(
        "--columns", metavar="KEYS", help="columns by their names in CSV, joined by commas, e.g. "
        "best_m_recall,recalls,test_recalls; these two stand for R@1, R@5, R@10 both ways and their sum",
        show_default=False,
    ),
]
MlflowUrl = Annotated[
    str | None,
    typer.Option("--mlflow", metavar="URL", help="MLflow UI to link runs to; default: the tracking server, if any"),
]


@app.command(
    epilog="Example: vsetune leaderboard export quickstart --html board.html --latex table.tex; "
    "vsetune leaderboard export one two"
)
def export(
    study: StudyNames = None,
    every: Every = False,
    html: Annotated[Path | None, place_to_write(help="one self-contained page with curves")] = None,
    csv: Annotated[Path | None, place_to_write(help="one line per cell, full precision")] = None,
    json: Annotated[Path | None, place_to_write(help="everything, curves included")] = None,
    markdown: Annotated[Path | None, place_to_write(help="table for issues and wikis")] = None,
    curves: Annotated[Path | None, place_to_write(help="CSV with one line per validation")] = None,
    latex: Annotated[Path | None, place_to_write(help="table for the booktabs package")] = None,
    target_share: TargetShare = None,
    columns: ColumnKeys = None,
    mlflow: MlflowUrl = None,
    baseline: Baseline = None,
) -> None:
    """Write the leaderboard of a study, or those of several by data set, to files; without options, the page to
    VSETUNE_HOME/leaderboards."""
    from vsetune.board.export import TEXTS, curves_to_csv, to_json

    uri = store_uri(TrackingSpec())
    ui = mlflow_ui(mlflow, uri)
    share = share_of(target_share)
    read = read_boards("export", study or [], every=every, baseline=baseline, target_share=share)
    named = columns_named(columns, read)
    if not (html or csv or json or curves or latex or markdown):
        html = home() / "leaderboards" / f"{read.name}.html"
    wanted: list[tuple[Path | None, Callable[[], str | bytes]]] = [
        (html, lambda: _page(read, named, ui)),
        (csv, lambda: TEXTS["csv"](read.shown, named).whole()),
        (json, lambda: to_json(read.shown)),
        (markdown, lambda: TEXTS["md"](read.shown, named).whole()),
        (curves, lambda: curves_to_csv(read.shown)),
        (latex, lambda: TEXTS["tex"](read.shown, named).whole()),
    ]
    for path, content in [(path, made()) for path, made in wanted if path is not None]:
        write_text(path, content)
        inform(f"written: {path.absolute()}")
        keep_in_home(path)
    if html is not None and ui is None and uri is not None:
        inform("runs in the MLflow UI: vsetune ui  (with --mlflow http://127.0.0.1:5000 the page links to them)")


def _page(read: ReadBoards, columns: Sequence[Column], ui: str | None) -> str:
    from vsetune.board.page import to_html
    from vsetune.board.rows import boards_of
    from vsetune.board.shown_runs import shown_runs

    runs = shown_runs(read.store, boards_of(read.shown).boards, read.attempts, mlflow_url=ui)
    return to_html(read.shown, columns, runs=runs)


TableName = Annotated[
    str,
    typer.Argument(
        metavar="TABLE", help="lseh_table3, lseh_table4 to 7, zhang_table2 or 3, mse_table1 or 2", show_default=False,
    ),
]
TableStudies = Annotated[
    list[str] | None, typer.Argument(help="studies with the runs; none: all under VSETUNE_HOME", show_default=False)
]
Names = Annotated[
    list[str] | None,
    typer.Option(
        "--as", metavar="PAPER=OURS", help="what a loss, network or data set of the paper is called here",
        show_default=False,
    ),
]


class Format(StrEnum):
    text = "text"
    markdown = "markdown"
    csv = "csv"
    latex = "latex"


@app.command(epilog="Example: vsetune leaderboard table lseh_table3 flickr8k --as LMH1=lmh --format latex")
def table(
    name: TableName,
    study: TableStudies = None,
    names: Names = None,
    form: Annotated[Format, typer.Option("--format", help="how it is written")] = Format.text,
) -> None:
    """Print a table of a paper in its layout: our numbers, and below them the printed ones. An empty cell has its
    reason."""
    from vsetune.board.paper_table import paper_table
    from vsetune.board.table_filling import fill, renamed
    from vsetune.board.table_formats import FORMATS, TableView

    layout = renamed(paper_table(name), _pairs(names or []))
    store = Studies()
    filled = fill(layout, read_studies(store, named_records(store, study or []), every=not study))
    if form is Format.text:
        results.print(TableView(filled))
    else:
        results.out(FORMATS[form.value](filled), end="")


def _pairs(given: list[str]) -> dict[str, str]:
    pairs = {}
    for each in given:
        paper, equals, ours = each.rpartition("=")
        if not (paper and equals and ours):
            need = "PAPER=OURS, e.g. LMH2=lmh_lseh_settings"
            raise UsageError(BAD_VALUE(option="leaderboard table: --as", got=each, need=need))
        pairs[paper] = ours
    return pairs


@dataclass(frozen=True)
class ReadBoards:
    """shown: the board of the one study that was named, else those of several by data set. name: of a file for them."""

    store: Studies
    shown: Shown
    attempts: Sequence[Attempt]
    name: str


def read_boards(
    command: str, names: Sequence[str], *, every: bool, baseline: str | None, target_share: float,
) -> ReadBoards:
    """command: for the message. UsageError for neither names nor `every`, or both, a study that the store does not
    have, and a baseline that was not run."""
    if every == bool(names):
        got = "names and --all" if names else "no names"
        need = "the names of studies, or --all without names"
        raise UsageError(BAD_VALUE(option=f"leaderboard {command}", got=got, need=need))
    store = Studies()
    names = list(dict.fromkeys(names))
    if len(names) == 1:
        return _of_one(store, names[0], baseline, target_share)
    return _of_several(store, names, baseline, target_share)


def share_of(target: float | None) -> float:
    """The share of `--target-share`, or its default. UsageError for an invalid one."""
    from vsetune.metrics.efficiency import TARGET_SHARE

    if target is not None and not 0 < target <= 1:
        need = "a share above 0, at most 1: 0.9 for an easier target"
        raise UsageError(BAD_VALUE(option="--target-share", got=f"{target:g}", need=need))
    return TARGET_SHARE if target is None else target


def columns_named(keys: str | None, read: ReadBoards) -> Sequence[Column]:
    """The columns of `--columns`, all without it. UsageError for one that the studies do not have."""
    from vsetune.board.columns import COLUMNS, chosen, further_columns

    if keys is None:
        return COLUMNS
    further = further_columns(attempt.start.resolved for attempt in read.attempts)
    try:
        return chosen(COLUMNS, [key.strip() for key in keys.split(",")], further)
    except ValueError as error:
        raise UsageError(as_problem(error.args[0]).at("--columns")) from error


def _of_one(store: Studies, study: str, baseline: str | None, target_share: float) -> ReadBoards:
    from vsetune.study.recorded_boards import recorded_board

    attempts = store.attempts(study)
    if not attempts:
        raise UsageError(
            "VSE-X030", "{studies}: no attempts yet; start a study, or wait for its first validation.",
            studies=f"study {study}",
        )
    board = recorded_board(store, study, attempts, baseline=baseline, target_share=target_share)
    return ReadBoards(store, board, attempts, study)


def _of_several(
    store: Studies, names: Sequence[str], baseline: str | None, target_share: float
) -> ReadBoards:
    from vsetune.board.many_studies import build_many
    from vsetune.study.recorded_boards import completed_board

    records = named_records(store, names)
    studies = read_studies(store, records, every=not names)
    losses = {attempt.start.loss for study in studies for attempt in study.attempts}
    if baseline is not None and baseline not in losses:
        raise UsageError(
            "VSE-X031", "leaderboard: baseline {baseline} was not run; name one of {losses}.", baseline=baseline,
            losses=", ".join(sorted(losses)),
        )
    attempts = [attempt for study in studies for attempt in study.attempts]
    name = f"{names[0]}_and_{len(names) - 1}_more" if names else "all_studies"
    found = build_many(studies, baseline=baseline, target_share=target_share)
    boards = tuple(completed_board(board, records, store) for board in found.boards)
    shown = replace(found, boards=boards, notes=(*found.notes, *(store.left_out.values() if not names else ())))
    return ReadBoards(store, shown, attempts, name)


def named_records(store: Studies, names: Sequence[str]) -> list[StudyRecord]:
    """The records of these studies in this order, or of all in the store. UsageError for one that the store does not
    have."""
    return [store.record(name) for name in dict.fromkeys(names)] if names else store.studies()


def read_studies(store: Studies, records: Sequence[StudyRecord], *, every: bool) -> list[StudyAttempts]:
    """The attempts of these studies in this order. every: leave out one that cannot be read, see `Studies.readable`.
    UsageError where none has any."""
    from vsetune.board.many_studies import StudyAttempts

    known = {record.name: record for record in records}

    def read(name: str) -> StudyAttempts:
        return StudyAttempts(name, str(known[name].config.get("baseline", "")), store.attempts(name))

    studies = store.readable(known, read) if every else [read(name) for name in known]
    if not any(study.attempts for study in studies):
        names = ", ".join(record.name for record in records)
        raise UsageError(
            "VSE-X030", "{studies}: no attempts yet; start a study, or wait for its first validation.",
            studies=names or remote_home() or home(),
        )
    return studies
