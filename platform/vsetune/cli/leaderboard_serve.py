"""`vsetune leaderboard serve`: boards in the browser, while their studies run."""

from __future__ import annotations

from typing import Annotated

import typer

from vsetune.cli.leaderboard_reading import HitShare, share_of
from vsetune.cli.output import mlflow_server, say
from vsetune.cli.tracking_option import Tracking, tracking_of
from vsetune.errors import UsageError

SERVE_EXAMPLE = "Example: vsetune leaderboard serve quickstart --port 8080"

MlflowUrl = Annotated[
    str | None,
    typer.Option("--mlflow", metavar="URL", help="MLflow UI to link runs to; default: the tracking server, if any"),
]


def serve(
    studies: Annotated[
        list[str] | None, typer.Argument(metavar="STUDY", help="default: all of the store", show_default=False)
    ] = None,
    port: Annotated[int, typer.Option(help="0: any that is free")] = 8080,
    host: Annotated[
        str, typer.Option(help="address to listen on; 0.0.0.0 shows the boards to everybody who can reach this machine")
    ] = "127.0.0.1",
    mlflow: MlflowUrl = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="LOSS", help="to compare with; default: each study's baseline")
    ] = None,
    hit_share: HitShare = None,
    tracking_uri: Tracking = None,
) -> None:
    """Show boards in the browser, brought up to date while their studies run. Ends with Ctrl-C."""
    from vsetune.jobs.preparation import existing_store
    from vsetune.jobs.preparation import tracking_uri as store_uri
    from vsetune.jobs.range_ends import board_with_ends
    from vsetune.jobs.recorded_studies import record_of
    from vsetune.leaderboard.serving import BoardServer

    share = share_of(hit_share)
    if not 0 <= port <= 65535:
        raise UsageError(f"--port: got {port}, need 0 to 65535")
    tracking = tracking_of(tracking_uri)
    ui = mlflow_url(mlflow, store_uri(tracking))
    store = existing_store(tracking)
    for study in studies or []:
        record_of(store, study)
    with BoardServer(
        store, studies or [], host=host, port=port, baseline=baseline, mlflow_url=ui, told=board_with_ends,
        hit_share=share,
    ) as server:
        say(f"leaderboard: {server.url}  (Ctrl-C ends it)")
        command = mlflow_server(store_uri(tracking)) if ui is None else None
        if command is not None:
            say(f"for links to runs start {command}  and give --mlflow http://127.0.0.1:5000")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("stopped")


def mlflow_url(given: str | None, tracking_uri: str) -> str | None:
    """As `mlflow_ui` has it."""
    from vsetune.jobs.store_address import mlflow_ui

    return mlflow_ui(given, tracking_uri)
