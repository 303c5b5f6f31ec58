"""`vsetune ui`: MLflow's UI on the studies of the home."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from typing import Annotated

import typer

from vsetune.cli.options import Tracking, tracking_of
from vsetune.cli.output import BAD_VALUE, inform
from vsetune.errors import UsageError
from vsetune.home.paths import home
from vsetune.records.studies import Studies
from vsetune.study.places import mlflow_ui
from vsetune.study.places import tracking_uri as store_uri

app = typer.Typer()
_SQLITE = "sqlite:///"
_SETTINGS = {
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # eight processes of 230 MB, for evaluations of language models
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


@app.command(epilog="Example: vsetune ui --port 5000")
def ui(
    port: Annotated[int, typer.Option(help="to listen on")] = 5000,
    host: Annotated[
        str, typer.Option(help="address to listen on; 0.0.0.0 shows the runs to everybody who can reach this machine")
    ] = "127.0.0.1",
    tracking_uri: Tracking = None,
) -> None:
    """Start MLflow's UI on the runs of your studies, and print a link to the charts of each. Ends with Ctrl-C."""
    uri = _database(tracking_uri)
    _require_free(host, port)
    for line in _links(f"http://{host}:{port}"):
        inform(line)
    inform(f"MLflow: http://{host}:{port}  (ready in some seconds; Ctrl-C ends it)")
    command = [
        sys.executable, "-m", "mlflow", "server", "--workers", "1", "--host", host, "--port", str(port),
        "--artifacts-destination", str(home() / "artifacts"),
    ]
    address = {"MLFLOW_BACKEND_STORE_URI": uri}  # not an argument: others on this machine can read those
    server = subprocess.Popen(command, env={**os.environ, **_SETTINGS, **address}, start_new_session=True)
    try:
        code = server.wait()
    except KeyboardInterrupt:
        os.killpg(server.pid, signal.SIGTERM)  # MLflow's own child too
        server.wait()
        inform("stopped")
        return
    raise typer.Exit(1 if code else 0)


def _database(given: str | None) -> str:
    """The database of MLflow. UsageError where nothing is exported, no study has run, or a server has it."""
    uri = store_uri(tracking_of(given))
    if uri is None:
        raise UsageError(
            "VSE-X060", "studies of this home are not exported to MLflow (MLFLOW_TRACKING_URI is none, or the home is "
            "on S3); need --tracking-uri URI of the database that has them.",
        )
    if uri.startswith(("http://", "https://")):
        raise UsageError(
            "VSE-X061", "the MLflow server at {address} has the studies: open it in a browser.",
            address=mlflow_ui(None, uri),
        )
    file = uri.removeprefix(_SQLITE)
    if uri.startswith(_SQLITE) and not os.path.exists(file):
        raise UsageError(
            "VSE-X062", "{file}: no MLflow database yet; run a study first, such as vsetune quickstart.", file=file
        )
    return uri


def _require_free(host: str, port: int) -> None:
    """UsageError for a port that another process has, or that is none."""
    if not 1 <= port <= 65535:
        raise UsageError(BAD_VALUE(option="--port", got=port, need="1 to 65535"))
    try:
        socket.create_server((host, port)).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(
            "VSE-X063", "--port: cannot listen on {host}:{port} ({reason}); try --port {other}.", host=host, port=port,
            reason=reason, other=port + 1,
        ) from error


def _links(ui: str) -> list[str]:
    from vsetune.records.mlflow_descriptions import charts_link

    studies = Studies()
    found = studies.readable(studies.names(), lambda name: (name, studies.in_mlflow(name)[0]))
    return [f"{name}: {ui}/{charts_link(experiment)}" for name, experiment in found if experiment is not None]
