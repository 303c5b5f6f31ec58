"""Which tracking store a study, or whoever reads one, is meant to have. Loads neither torch nor MLflow."""

from __future__ import annotations

import os

from vsetune.config.spec.paths import HOME_VARIABLE, home, remote_home, usable_uri
from vsetune.config.spec.secrets import usable_url
from vsetune.config.study.study_spec import TrackingSpec
from vsetune.errors import ConfigError
from vsetune.tracking.opening import open_existing, open_store
from vsetune.tracking.store import TrackingStore

TRACKING_VARIABLE = "MLFLOW_TRACKING_URI"


def tracking_store(tracking: TrackingSpec) -> TrackingStore:
    """The store that a study's tracking section names."""
    return open_store(tracking_uri(tracking), None)


def existing_store(tracking: TrackingSpec) -> TrackingStore:
    """The same, for reading: StorageError rather than a new database where there is none."""
    return open_existing(tracking_uri(tracking))


def tracking_uri(tracking: TrackingSpec) -> str:
    """The MLflow tracking URI: as given, or as MLFLOW_TRACKING_URI says, or the SQLite file under the home folder.

    It may hold a password: to be used, not shown. ConfigError for one that was masked, names an unset variable, or can
    be no URI.
    """
    if tracking.uri:
        return usable_url(tracking.uri, where="tracking.uri")
    given = os.environ.get(TRACKING_VARIABLE)
    if not given and remote_home() is not None:
        raise ConfigError(
            f"tracking.uri: got nothing, and {HOME_VARIABLE} is {remote_home()}, which other machines use too; need an "
            f"MLflow server or a database such as postgresql://, set {TRACKING_VARIABLE} or tracking.uri"
        )
    if not given:
        return f"sqlite:///{home() / 'mlflow.db'}"
    try:
        return usable_url(usable_uri(given), where=TRACKING_VARIABLE)
    except ValueError as error:
        raise ConfigError(f"{TRACKING_VARIABLE}: {error}") from error
