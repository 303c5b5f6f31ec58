"""Logs the files of an attempt's network as an MLflow model: with signature, example and requirements."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import pandas
from mlflow.entities import LoggedModelOutput
from mlflow.models import Model, ModelSignature
from mlflow.types.schema import Array, ColSpec, DataType, ParamSchema, ParamSpec, Schema

from vsetune.errors import UsageError
from vsetune.records.mlflow_client import in_one_line, open_client
from vsetune.records.mlflow_descriptions import attempt_params
from vsetune.records.state import Attempt
from vsetune.records.studies import Studies

with warnings.catch_warnings():  # mlflow.pyfunc warns about its own type hints
    warnings.simplefilter("ignore", UserWarning)
    import mlflow.pyfunc

LOADER = "vsetune.study.recorded_model"
WEIGHTS_SHA256 = "vsetune.weights_sha256"
"""Tag of a model: SHA-256 of the best checkpoint in it."""
INDEX = "vsetune.index"
"""Tag of a model: the split whose index it contains, `none` without one."""
_MOST = 50


class MlflowModels:
    """Models in MLflow, by their address for `mlflow.pyfunc.load_model`.

    weights_sha256: of the recorded best checkpoint. index: the split whose encoded items are in the model, or None.
    UsageError for an attempt that MLflow does not have, StorageError when the store cannot be read or written.
    """

    def __init__(self, uri: str, studies: Studies) -> None:
        """studies: give the experiment and the runs of our attempts in MLflow. StorageError if no store answers."""
        self._uri, self._studies = uri, studies
        self._client = open_client(uri)

    def known(self, record: Attempt, *, weights_sha256: str, index: str | None) -> str | None:
        """The address of a complete model with these weights and this index; None if there is none."""
        wanted = _tags(record, weights_sha256, index)
        experiment, run = self._place(record)
        with in_one_line(self._uri, f"look for models of {record.attempt_id}"):
            found = self._client.search_logged_models(
                [experiment], filter_string=f"source_run_id = '{run}'", max_results=_MOST,
            )
        whole = [model for model in found if wanted.items() <= model.tags.items() and str(model.status) == "READY"]
        return f"models:/{whole[0].model_id}" if whole else None

    def log(
        self, record: Attempt, folder: Path, *, weights_sha256: str, index: str | None, reads_pieces: bool
    ) -> str:
        """Log a new model; returns its address. folder: its files. reads_pieces: it needs the packages of a tokeniser.
        """
        start, (experiment, run) = record.start, self._place(record)
        with in_one_line(self._uri, f"log a model of {record.attempt_id}"):
            model = self._client.create_logged_model(
                experiment, name=_name(start.trial), source_run_id=run, params=attempt_params(start),
                model_type="image-text retrieval", tags=_tags(record, weights_sha256, index),
            )
            with tempfile.TemporaryDirectory() as into:
                saved = Path(into) / "model"
                _save(saved, record, folder, model.model_id, run, reads_pieces)
                self._client.log_model_artifacts(model.model_id, str(saved))
            self._client.finalize_logged_model(model.model_id, "READY")
            self._client.log_outputs(run, [LoggedModelOutput(model.model_id, 0)])
        return f"models:/{model.model_id}"

    def _place(self, record: Attempt) -> tuple[str, str]:
        """(experiment, run) of an attempt."""
        experiment, runs = self._studies.in_mlflow(record.start.study)
        if experiment is None or record.attempt_id not in runs:
            raise UsageError(
                "VSE-R038", "attempt {attempt}: MLflow does not have it yet; export its study with vsetune tracking "
                "flush {study}", attempt=record.attempt_id, study=record.start.study,
            )
        return experiment, runs[record.attempt_id]


def signature() -> ModelSignature:
    """Signature of outputs and parameters, without input columns: MLflow would silently drop unknown columns, and
    sentences that are in no column; the model itself refuses input that it cannot read."""
    strings, numbers = Array(DataType.string), Array(DataType.double)
    outputs = Schema([
        ColSpec(strings, "items", required=False), ColSpec(numbers, "scores", required=False),
        ColSpec(numbers, "embedding", required=False),
    ])
    params = ParamSchema([
        ParamSpec("top", DataType.long, 5), ParamSpec("split", DataType.string, ""),
        ParamSpec("answer", DataType.string, "items"),
    ])
    return ModelSignature(None, outputs, params)


def _tags(record: Attempt, weights_sha256: str, index: str | None) -> dict[str, str]:
    return {
        WEIGHTS_SHA256: weights_sha256, INDEX: index or "none", "cell": record.start.cell, "trial": record.start.trial,
    }


def _save(saved: Path, record: Attempt, folder: Path, model_id: str, run: str, reads_pieces: bool) -> None:
    start = record.start
    package, trained_by = "vsetune[encoder]" if reads_pieces else "vsetune", start.environment.get("package_vsetune")
    about: Any = Model(run_id=run, artifact_path=_name(start.trial), model_id=model_id)
    with warnings.catch_warnings():  # the way MLflow writes the example is deprecated in pandas
        warnings.simplefilter("ignore", DeprecationWarning)
        mlflow.pyfunc.save_model(
            str(saved), loader_module=LOADER, data_path=str(folder), mlflow_model=about, signature=signature(),
            pip_requirements=[f"{package}=={trained_by}" if trained_by else package],
            input_example=pandas.DataFrame({"caption": ["a dog runs on the grass"]}),
            metadata={"study": start.study, "trial": start.trial, "cell": start.cell},
        )


def _name(trial: str) -> str:
    """The trial's name without the characters that MLflow refuses in the name of a model."""
    return "".join("-" if sign in "/:.%\"'" else sign for sign in trial)
