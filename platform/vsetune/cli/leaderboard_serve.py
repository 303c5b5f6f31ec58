"""`vsetune leaderboard serve`: boards in the browser, while their studies run."""

from __future__ import annotations

from typing import Annotated

import typer

from vsetune.cli.leaderboard_reading import HitShare, share_of
from vsetune.cli.output import mlflow_server, say
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
) -> None:
    """Show boards in the browser, brought up to date while their studies run. Ends with Ctrl-C."""
    from vsetune.config.study.study_spec import TrackingSpec
    from vsetune.jobs.range_ends import board_with_ends
    from vsetune.jobs.store_address import tracking_uri as store_uri
    from vsetune.leaderboard.serving import BoardServer
    from vsetune.records.studies import Studies

    share = share_of(hit_share)
    if not 0 <= port <= 65535:
        raise UsageError(f"--port: got {port}, need 0 to 65535")
    uri, store = store_uri(TrackingSpec()), Studies()
    ui = mlflow_url(mlflow, uri)
    for study in studies or [each.name for each in store.studies()]:  # a home that cannot be read is refused here
        store.record(study)
    with BoardServer(
        store, studies or [], host=host, port=port, baseline=baseline, mlflow_url=ui, told=board_with_ends,
        hit_share=share,
    ) as server:
        say(f"leaderboard: {server.url}  (Ctrl-C ends it)")
        command = mlflow_server(uri) if ui is None else None
        if command is not None:
            say(f"for links to runs start {command}  and give --mlflow http://127.0.0.1:5000")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("stopped")


def mlflow_url(given: str | None, tracking_uri: str | None) -> str | None:
    """As `mlflow_ui` has it."""
    from vsetune.jobs.store_address import mlflow_ui

    return mlflow_ui(given, tracking_uri)
