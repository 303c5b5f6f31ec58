"""Recorded attempts as models that MLflow lists and loads; what is asked of a store for that."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from vsetune.records.attempts import AttemptRecord
from vsetune.records.studies import Studies

LOADER = "vsetune.serving.recorded_model"
WEIGHTS_SHA256 = "vsetune.weights_sha256"
"""Tag of a model: of the best checkpoint that it carries."""
INDEX = "vsetune.index"
"""Tag of a model: the split that it carries an index of, `none` without one."""


class LoggedModels(ABC):
    """Models of the store, by their address for `mlflow.pyfunc.load_model`.

    weights_sha256: of the recorded best checkpoint. index: the split whose encoded items are carried, or None.
    UsageError for an attempt that MLflow does not have, StorageError when the store cannot be read or written.
    """

    @abstractmethod
    def known(self, record: AttemptRecord, *, weights_sha256: str, index: str | None) -> str | None:
        """The address of a whole model of these weights with this index; None where there is none."""

    @abstractmethod
    def log(
        self, record: AttemptRecord, folder: Path, *, weights_sha256: str, index: str | None, reads_pieces: bool
    ) -> str:
        """The address of a new model. folder: its files. reads_pieces: it needs the packages of a tokeniser."""


def logged_models(uri: str, studies: Studies) -> LoggedModels:
    """Of the store behind a URI. StorageError where none answers. studies: which of its runs are attempts of ours."""
    from vsetune.records.mlflow_models import MlflowModels

    return MlflowModels(uri, studies)
