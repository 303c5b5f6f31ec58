"""`vsetune trial model`: a recorded trial as a model that MLflow lists and loads."""

from __future__ import annotations

import tempfile
from pathlib import Path

from vsetune.cli.output import messages, results, say
from vsetune.cli.recorded_runs import Run, recorded_store
from vsetune.cli.tracking_option import Tracking, tracking_of
from vsetune.errors import StaleCheckpoint

EXAMPLE = "Example: vsetune trial model quickstart/vsepp.lseh-c000-s0"


def model(run: Run, tracking_uri: Tracking = None) -> None:
    """Log a trial's best network as an MLflow model, which `mlflow.pyfunc.load_model` asks with captions or features of
    images. The weights are not stored again: the model names the run that has them. Prints the model's address."""
    from vsetune.files.hashes import sha256_of_file
    from vsetune.jobs.preparation import tracking_uri as store_uri
    from vsetune.jobs.recorded import best_weights, find_attempt
    from vsetune.tracking.models import logged_models

    store = recorded_store(tracking_uri)
    attempt = find_attempt(store, run, finished=True)
    with tempfile.TemporaryDirectory() as into, messages.status("logging the model"):
        weights = best_weights(store, attempt, Path(into))
        if weights is None:
            raise StaleCheckpoint(f"{attempt.where}: no checkpoint left to make a model of; train the trial again")
        models = logged_models(store_uri(tracking_of(tracking_uri)))
        address, is_new = models.log(attempt.record, weights_sha256=sha256_of_file(weights))
    results.out(address, highlight=False)
    say("logged; it is among the models of the study in the MLflow UI" if is_new else "was logged before")
