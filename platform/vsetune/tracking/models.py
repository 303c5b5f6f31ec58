"""Recorded attempts as models that MLflow lists and loads; what is asked of a store for that."""

from __future__ import annotations

from abc import ABC, abstractmethod

from vsetune.config.spec.secrets import shown_url
from vsetune.errors import UsageError
from vsetune.tracking.opening import is_memory, made_ready
from vsetune.tracking.records import AttemptRecord

ATTEMPT_FILE = "attempt.json"
LOADER = "vsetune.serving.recorded_model"
WEIGHTS_SHA256 = "vsetune.weights_sha256"
"""Tag of a model: of the best checkpoint that it was logged with."""


class LoggedModels(ABC):
    """Models of the store; the weights stay where the run has them."""

    @abstractmethod
    def log(self, record: AttemptRecord, *, weights_sha256: str) -> tuple[str, bool]:
        """(address for `mlflow.pyfunc.load_model`, whether it is new). The same weights are logged once.

        weights_sha256: of the recorded best checkpoint. UsageError for an unknown attempt, StorageError when the store
        cannot be written.
        """


def logged_models(uri: str) -> LoggedModels:
    """Of the store behind a URI. StorageError where none answers."""
    if is_memory(uri):
        raise UsageError(f"tracking uri {uri}: keeps no models; name a database or a server")
    made_ready(uri, None)
    from vsetune.tracking.mlflow_models import MlflowModels

    return MlflowModels(uri, shown_uri=shown_url(uri))
