"""`vsetune serve`: boards, galleries and trained networks in the browser."""

from __future__ import annotations

from typing import Annotated

import typer

from vsetune.cli.leaderboard_output import MlflowUrl, TargetShare, share_of
from vsetune.cli.options import Baseline, Device
from vsetune.cli.output import BAD_VALUE, inform
from vsetune.config.study.study_spec import TrackingSpec
from vsetune.errors import UsageError
from vsetune.records.studies import Studies
from vsetune.study.places import mlflow_ui, tracking_uri

app = typer.Typer()


@app.command(epilog="Example: vsetune serve quickstart --port 8080")
def serve(
    studies: Annotated[
        list[str] | None, typer.Argument(metavar="STUDY", help="default: all under VSETUNE_HOME", show_default=False)
    ] = None,
    port: Annotated[int, typer.Option(help="0: any that is free")] = 8080,
    host: Annotated[
        str, typer.Option(help="address to listen on; 0.0.0.0 shows the pages to everybody who can reach this machine")
    ] = "127.0.0.1",
    mlflow: MlflowUrl = None,
    baseline: Baseline = None,
    target_share: TargetShare = None,
    device: Device = "auto",
) -> None:
    """Show studies in the browser: boards, brought up to date while their studies run, galleries, and a page where a
    sentence finds images and a photograph finds captions, with two trials side by side. Ends with Ctrl-C."""
    from vsetune.board.serving import StudyServer
    from vsetune.study.asked_trials import AskedTrials
    from vsetune.study.range_ends import board_with_ends
    from vsetune.training.device import choose_device

    share = share_of(target_share)
    if not 0 <= port <= 65535:
        raise UsageError(BAD_VALUE(option="--port", got=port, need="0 to 65535"))
    uri, store = tracking_uri(TrackingSpec()), Studies()
    ui = mlflow_ui(mlflow, uri)
    if studies:
        for study in studies:
            store.record(study)
    else:
        store.studies()  # a home that cannot be read is refused here
    with StudyServer(
        store, studies or [], host=host, port=port, ask=AskedTrials(store, device=choose_device(device)),
        baseline=baseline, mlflow_url=ui, told=board_with_ends, target_share=share,
    ) as server:
        inform(f"studies: {server.url}  (Ctrl-C ends it)")
        inform(f"ask a trained model: {server.url}search")
        if ui is None and uri is not None:
            inform("for links to runs start vsetune ui  and give --mlflow http://127.0.0.1:5000")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            inform("stopped")
