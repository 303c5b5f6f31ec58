"""`vsetune trial model`: a recorded trial as a model that MLflow lists and loads."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from vsetune.cli.output import messages, results, say
from vsetune.cli.recorded_runs import Device, Run
from vsetune.cli.tracking_option import Tracking, tracking_of
from vsetune.errors import UsageError

EXAMPLE = "Example: vsetune trial model quickstart/vsepp.lseh-c000-s0 --index test"


def model(
    run: Run,
    index: Annotated[str | None, typer.Option(
        help="split whose images and captions go along, encoded; default: none, the data set is searched at its place",
    )] = None,
    device: Device = "auto",
    tracking_uri: Tracking = None,
) -> None:
    """Log a trial's best network as an MLflow model, which `mlflow.pyfunc.load_model` asks with captions or features of
    images. It carries weights, settings and vocabulary or tokeniser, so it works on another machine; what it searches
    there is its index. Prints the model's address."""
    from vsetune.jobs.model_files import log_model
    from vsetune.jobs.recorded import find_attempt
    from vsetune.jobs.store_address import tracking_uri as store_uri
    from vsetune.records.studies import Studies
    from vsetune.scoring.device import choose_device

    store, uri = Studies(), store_uri(tracking_of(tracking_uri))
    attempt = find_attempt(store, run, finished=True)
    with tempfile.TemporaryDirectory() as into, messages.status("logging the model"):
        if uri is None:
            raise UsageError("trial model: no MLflow to log to; give --tracking-uri, or set MLFLOW_TRACKING_URI")
        from vsetune.records.mlflow_models import MlflowModels

        models = MlflowModels(uri, store)
        address, is_new = log_model(models, store, attempt, Path(into), index=index, device=choose_device(device))
    results.out(address, highlight=False)
    say("logged; it is among the models of the study in the MLflow UI" if is_new else "was logged before")
