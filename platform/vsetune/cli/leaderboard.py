"""`vsetune leaderboard`: which loss needs how many epochs to the best M-Recall."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vsetune.cli import leaderboard_explain, leaderboard_serve, leaderboard_table
from vsetune.cli.leaderboard_many import show_many
from vsetune.cli.leaderboard_serve import MlflowUrl, mlflow_url
from vsetune.cli.output import mlflow_server, results, say
from vsetune.cli.tracking_option import Tracking, tracking_of
from vsetune.config.spec.paths import home
from vsetune.errors import UsageError
from vsetune.files.whole_files import write_text

if TYPE_CHECKING:
    from vsetune.leaderboard.rows import Leaderboard
    from vsetune.tracking.records import AttemptRecord
    from vsetune.tracking.store import TrackingStore

app = typer.Typer(
    no_args_is_help=True, help="Compare what the studies recorded.",
    epilog="Example: vsetune leaderboard show quickstart",
)
app.command("explain", epilog=leaderboard_explain.EXPLAIN_EXAMPLE)(leaderboard_explain.explain)
app.command("serve", epilog=leaderboard_serve.SERVE_EXAMPLE)(leaderboard_serve.serve)
app.command("table", epilog=leaderboard_table.TABLE_EXAMPLE)(leaderboard_table.table)
app.command("repeat", epilog=leaderboard_explain.REPEAT_EXAMPLE)(leaderboard_explain.repeat)

StudyName = Annotated[str, typer.Argument(help="name of a study", show_default=False)]
StudyNames = Annotated[list[str] | None, typer.Argument(help="name of a study, or of several", show_default=False)]
Baseline = Annotated[str | None, typer.Option(metavar="LOSS", help="to compare with; default: the study's baseline")]


@app.command(epilog="Example: vsetune leaderboard show quickstart; vsetune leaderboard show flickr8k flickr8k_seeds")
def show(
    study: StudyNames = None,
    every: Annotated[bool, typer.Option("--all", metavar="", help="over every study in the store")] = False,
    baseline: Baseline = None,
    tracking_uri: Tracking = None,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="everything, curves included, as JSON")] = False,
) -> None:
    """Print the leaderboard of a study, or one for each data set over several: what compares side by side, the rest
    with its reason."""
    from vsetune.leaderboard.export import to_json
    from vsetune.leaderboard.terminal import render_table

    names = study or []
    if every == bool(names):
        raise UsageError("leaderboard show: need the names of studies, or --all without names")
    if every or len(names) > 1:
        show_many(names, baseline, tracking_uri, as_json=as_json)
        return
    (study_name,) = names
    board = read_leaderboard(study_name, baseline, tracking_uri)
    if as_json:
        results.out(to_json(board), highlight=False)
    else:
        results.print(render_table(board))


@app.command(epilog="Example: vsetune leaderboard export quickstart --html board.html --latex table.tex")
def export(
    study: StudyName,
    html: Annotated[Path | None, typer.Option(help="one self-contained page with curves")] = None,
    csv: Annotated[Path | None, typer.Option(help="one line per cell, full precision")] = None,
    markdown: Annotated[Path | None, typer.Option(help="table for issues and wikis")] = None,
    curves: Annotated[Path | None, typer.Option(help="CSV with one line per validation")] = None,
    latex: Annotated[Path | None, typer.Option(help="table for the booktabs package")] = None,
    mlflow: MlflowUrl = None,
    baseline: Baseline = None,
    tracking_uri: Tracking = None,
) -> None:
    """Write the leaderboard of a study to files; without options, the page to VSETUNE_HOME/leaderboards."""
    from vsetune.jobs.store_address import tracking_uri as store_uri
    from vsetune.leaderboard.export import curves_to_csv, to_csv, to_latex, to_markdown
    from vsetune.object_storage.home_files import keep_in_home

    uri = store_uri(tracking_of(tracking_uri))
    ui = mlflow_url(mlflow, uri)
    store, board, attempts = _read(study, baseline, tracking_uri)
    if not (html or csv or curves or latex or markdown):
        html = home() / "leaderboards" / f"{study}.html"
    written: list[tuple[Path | None, Callable[[Leaderboard], str]]] = [
        (html, lambda board: _page(store, board, attempts, ui)), (csv, to_csv), (markdown, to_markdown),
        (curves, curves_to_csv), (latex, to_latex),
    ]
    for path, render in written:
        if path is not None:
            write_text(path, render(board))
            say(f"written: {path.absolute()}")
            keep_in_home(path)
    server = mlflow_server(uri) if html is not None and ui is None else None
    if server is not None:
        say(f"runs in the MLflow UI: {server}  (with --mlflow http://127.0.0.1:5000 the page links to them)")


def _page(
    store: TrackingStore, board: Leaderboard, attempts: Sequence[AttemptRecord], mlflow_url: str | None
) -> str:
    from vsetune.jobs.study_page import study_page

    return study_page(store, board, attempts, mlflow_url=mlflow_url)


def read_leaderboard(study: str, baseline: str | None, tracking_uri: str | None) -> Leaderboard:
    """The leaderboard of a study in the store. UsageError for an unknown study or baseline."""
    return _read(study, baseline, tracking_uri)[1]


def _read(
    study: str, baseline: str | None, tracking_uri: str | None
) -> tuple[TrackingStore, Leaderboard, Sequence[AttemptRecord]]:
    from vsetune.jobs.range_ends import board_with_ends
    from vsetune.jobs.store_address import existing_store
    from vsetune.leaderboard.building import build

    store = existing_store(tracking_of(tracking_uri))
    attempts = store.attempts(study)
    if not attempts:
        raise UsageError(f"study {study}: has no attempts yet; start it, or wait for its first validation")
    known = {record.name: record for record in store.studies()}
    board = build(attempts, baseline=baseline or str(known[study].config["baseline"]))
    return store, board_with_ends(board, [known[study]]), attempts
