"""Recorded attempts as models that MLflow lists and loads; what is asked of a store for that."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from vsetune.config.spec.secrets import shown_url
from vsetune.errors import UsageError
from vsetune.tracking.opening import is_memory, made_ready
from vsetune.tracking.records import AttemptRecord

LOADER = "vsetune.serving.recorded_model"
WEIGHTS_SHA256 = "vsetune.weights_sha256"
"""Tag of a model: of the best checkpoint that it carries."""
INDEX = "vsetune.index"
"""Tag of a model: the split that it carries an index of, `none` without one."""


class LoggedModels(ABC):
    """Models of the store, by their address for `mlflow.pyfunc.load_model`.

    weights_sha256: of the recorded best checkpoint. index: the split whose encoded items are carried, or None.
    UsageError for an unknown attempt, StorageError when the store cannot be read or written.
    """

    @abstractmethod
    def known(self, record: AttemptRecord, *, weights_sha256: str, index: str | None) -> str | None:
        """The address of a whole model of these weights with this index; None where there is none."""

    @abstractmethod
    def log(
        self, record: AttemptRecord, folder: Path, *, weights_sha256: str, index: str | None, reads_pieces: bool
    ) -> str:
        """The address of a new model. folder: its files. reads_pieces: it needs the packages of a tokeniser."""


def logged_models(uri: str) -> LoggedModels:
    """Of the store behind a URI. StorageError where none answers."""
    if is_memory(uri):
        raise UsageError(f"tracking uri {uri}: keeps no models; name a database or a server")
    made_ready(uri, None)
    from vsetune.tracking.mlflow_models import MlflowModels

    return MlflowModels(uri, shown_uri=shown_url(uri))
