"""Logs an attempt as an MLflow model without its weights: signature, example, and a note of where the weights are."""

from __future__ import annotations

import tempfile
import warnings
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pandas
from mlflow.entities import LoggedModel, LoggedModelOutput
from mlflow.models import Model, ModelSignature
from mlflow.types.schema import Array, ColSpec, DataType, ParamSchema, ParamSpec, Schema

from vsetune.files.whole_files import write_json
from vsetune.tracking import encoding
from vsetune.tracking.artifact_place import require_own_place
from vsetune.tracking.mlflow_errors import in_one_line
from vsetune.tracking.mlflow_opening import client_of
from vsetune.tracking.models import ATTEMPT_FILE, LOADER, WEIGHTS_SHA256, LoggedModels
from vsetune.tracking.records import AttemptRecord

with warnings.catch_warnings():  # it warns of its own type hints
    warnings.simplefilter("ignore", UserWarning)
    import mlflow.pyfunc

_MOST = 50


class MlflowModels(LoggedModels):
    """Made by `models.logged_models`, which has checked that the URI answers."""

    def __init__(self, uri: str, *, shown_uri: str) -> None:
        self._uri, self._shown_uri = uri, shown_uri
        with self._storing("open"):
            self._client = client_of(uri)

    def log(self, record: AttemptRecord, *, weights_sha256: str) -> tuple[str, bool]:
        require_own_place(self._uri, record.start.study)
        with self._storing(f"log a model of run {record.attempt_id}"):
            run = self._client.get_run(record.attempt_id)
            known = self._known(run.info.experiment_id, record.attempt_id, weights_sha256)
            if known is not None:
                return f"models:/{known.model_id}", False
            start = record.start
            model = self._client.create_logged_model(
                run.info.experiment_id, name=_name(start.trial), source_run_id=record.attempt_id,
                params=encoding.attempt_params(start), model_type="image-text retrieval",
                tags={WEIGHTS_SHA256: weights_sha256, "cell": start.cell, "trial": start.trial},
            )
            with tempfile.TemporaryDirectory() as folder:
                saved = Path(folder) / "model"
                _save(saved, record, weights_sha256, model.model_id, Path(folder))
                self._client.log_model_artifacts(model.model_id, str(saved))
            self._client.finalize_logged_model(model.model_id, "READY")
            self._client.log_outputs(record.attempt_id, [LoggedModelOutput(model.model_id, 0)])
        return f"models:/{model.model_id}", True

    def _known(self, experiment_id: str, run_id: str, weights_sha256: str) -> LoggedModel | None:
        """A model of these weights that was logged whole."""
        found = self._client.search_logged_models(
            [experiment_id], filter_string=f"source_run_id = '{run_id}'", max_results=_MOST
        )
        for model in found:
            if model.tags.get(WEIGHTS_SHA256) == weights_sha256 and str(model.status) == "READY":
                return model
        return None

    def _storing(self, doing: str) -> AbstractContextManager[None]:
        return in_one_line(f"tracking store {self._shown_uri}: cannot {doing}", then="repeat")


def signature() -> ModelSignature:
    """One of two columns filled in each row; for each row ids of images or texts of captions, best first."""
    inputs = Schema([
        ColSpec(DataType.string, "caption", required=False),
        ColSpec(Array(Array(DataType.double)), "image_features", required=False),
    ])
    outputs = Schema([ColSpec(Array(DataType.string), "items"), ColSpec(Array(DataType.double), "scores")])
    params = ParamSchema([ParamSpec("top", DataType.long, 5), ParamSpec("split", DataType.string, "")])
    return ModelSignature(inputs, outputs, params)


def _save(saved: Path, record: AttemptRecord, weights_sha256: str, model_id: str, folder: Path) -> None:
    start = record.start
    named = {"run": record.attempt_id, "study": start.study, "trial": start.trial, "number": start.number,
             "sha256": weights_sha256}
    write_json(folder / ATTEMPT_FILE, named, durable=False)
    trained_by = start.environment.get("package_vsetune")
    about: Any = Model(run_id=record.attempt_id, artifact_path=_name(start.trial), model_id=model_id)
    with warnings.catch_warnings():  # how it writes the example is deprecated in pandas
        warnings.simplefilter("ignore", DeprecationWarning)
        mlflow.pyfunc.save_model(
            str(saved), loader_module=LOADER, data_path=str(folder / ATTEMPT_FILE), mlflow_model=about,
            signature=signature(), pip_requirements=[f"vsetune=={trained_by}" if trained_by else "vsetune"],
            input_example=pandas.DataFrame({"caption": ["a dog runs on the grass"]}),
            metadata={"study": start.study, "trial": start.trial, "cell": start.cell},
        )


def _name(trial: str) -> str:
    """MLflow refuses these signs in the name of a model."""
    return "".join("-" if sign in "/:.%\"'" else sign for sign in trial)
