"""Which tracking store a study, or whoever reads one, is meant to have. Loads neither torch nor MLflow."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from vsetune.config.spec.paths import HOME_VARIABLE, home, remote_home, usable_uri
from vsetune.config.spec.secrets import usable_url
from vsetune.config.study.study_spec import TrackingSpec
from vsetune.errors import ConfigError, UsageError
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


def mlflow_ui(given: str | None, tracking_uri: str) -> str | None:
    """Address of MLflow's UI without any password: as given (`--mlflow`), or of the tracking server; None where none is
    known. UsageError for what is no address."""
    address = given or (tracking_uri if tracking_uri.startswith(("http://", "https://")) else None)
    if address is None:
        return None
    try:
        parts = urlsplit(address)
        host, at = parts.hostname, f":{parts.port}" if parts.port else ""
    except ValueError as error:
        raise UsageError(f"--mlflow: got an address with {error}; need one such as http://127.0.0.1:5000") from error
    if parts.scheme not in ("http", "https") or not host:
        raise UsageError("--mlflow: need an address that begins with http:// or https://, e.g. http://127.0.0.1:5000")
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{at}{parts.path.rstrip('/')}"
