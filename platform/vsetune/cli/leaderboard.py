"""`vsetune leaderboard`: which loss needs how many epochs to the best M-Recall."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vsetune.cli import leaderboard_explain
from vsetune.cli.output import mlflow_server, results, say
from vsetune.cli.tracking_option import Tracking, tracking_of
from vsetune.config.spec.paths import home
from vsetune.errors import UsageError
from vsetune.files.whole_files import write_text

if TYPE_CHECKING:
    from vsetune.leaderboard.rows import Leaderboard

app = typer.Typer(
    no_args_is_help=True, help="Compare what the studies recorded.",
    epilog="Example: vsetune leaderboard show quickstart",
)
app.command("explain", epilog=leaderboard_explain.EXPLAIN_EXAMPLE)(leaderboard_explain.explain)
app.command("repeat", epilog=leaderboard_explain.REPEAT_EXAMPLE)(leaderboard_explain.repeat)

StudyName = Annotated[str, typer.Argument(help="name of a study", show_default=False)]
Baseline = Annotated[str | None, typer.Option(metavar="LOSS", help="to compare with; default: the study's baseline")]


@app.command(epilog="Example: vsetune leaderboard show quickstart")
def show(
    study: StudyName,
    baseline: Baseline = None,
    tracking_uri: Tracking = None,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="everything, curves included, as JSON")] = False,
) -> None:
    """Print the leaderboard of a study."""
    from vsetune.leaderboard.export import to_json
    from vsetune.leaderboard.terminal import render_table

    board = read_leaderboard(study, baseline, tracking_uri)
    if as_json:
        results.out(to_json(board), highlight=False)
    else:
        results.print(render_table(board))


@app.command(epilog="Example: vsetune leaderboard export quickstart --html board.html --latex table.tex")
def export(
    study: StudyName,
    html: Annotated[Path | None, typer.Option(help="one self-contained page with curves")] = None,
    csv: Annotated[Path | None, typer.Option(help="one line per cell, full precision")] = None,
    curves: Annotated[Path | None, typer.Option(help="CSV with one line per validation")] = None,
    latex: Annotated[Path | None, typer.Option(help="table for the booktabs package")] = None,
    baseline: Baseline = None,
    tracking_uri: Tracking = None,
) -> None:
    """Write the leaderboard of a study to files; without options, the page to VSETUNE_HOME/leaderboards."""
    from vsetune.jobs.store_address import tracking_uri as store_uri
    from vsetune.leaderboard.export import curves_to_csv, to_csv, to_latex
    from vsetune.leaderboard.page import to_html
    from vsetune.object_storage.home_files import keep_in_home

    board = read_leaderboard(study, baseline, tracking_uri)
    if not (html or csv or curves or latex):
        html = home() / "leaderboards" / f"{study}.html"
    for path, render in ((html, to_html), (csv, to_csv), (curves, curves_to_csv), (latex, to_latex)):
        if path is not None:
            write_text(path, render(board))
            say(f"written: {path.absolute()}")
            keep_in_home(path)
    if html is not None:
        server = mlflow_server(store_uri(tracking_of(tracking_uri)))
        if server is not None:
            say(f"runs in the MLflow UI: {server}")


def read_leaderboard(study: str, baseline: str | None, tracking_uri: str | None) -> Leaderboard:
    """The leaderboard of a study in the store. UsageError for an unknown study or baseline."""
    from vsetune.jobs.store_address import existing_store
    from vsetune.leaderboard.building import build

    store = existing_store(tracking_of(tracking_uri))
    attempts = store.attempts(study)
    if not attempts:
        raise UsageError(f"study {study}: has no attempts yet; start it, or wait for its first validation")
    known = {record.name: record for record in store.studies()}
    return build(attempts, baseline=baseline or str(known[study].config["baseline"]))


