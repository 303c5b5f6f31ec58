"""Where MLflow is told of studies. Loads neither torch nor MLflow."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from vsetune.config.spec.paths import home, remote_home, usable_uri
from vsetune.config.spec.secrets import usable_url
from vsetune.config.study.study_spec import TrackingSpec
from vsetune.errors import ConfigError, UsageError

TRACKING_VARIABLE = "MLFLOW_TRACKING_URI"
NOWHERE = "none"
"""Given as a tracking URI: studies are not exported."""


def tracking_uri(tracking: TrackingSpec) -> str | None:
    """The MLflow tracking URI to which studies are exported: as given, or as MLFLOW_TRACKING_URI says, or the SQLite
    file under the home folder. None: nowhere, by `none` or with a home on object storage where no URI is given.

    It may hold a password: to be used, not shown. ConfigError for one that was masked, names an unset variable, or can
    be no URI.
    """
    given = tracking.uri or os.environ.get(TRACKING_VARIABLE)
    if given == NOWHERE:
        return None
    if tracking.uri:
        return usable_url(tracking.uri, where="tracking.uri")
    if not given:
        return None if remote_home() is not None else f"sqlite:///{home() / 'mlflow.db'}"
    try:
        return usable_url(usable_uri(given), where=TRACKING_VARIABLE)
    except ValueError as error:
        raise ConfigError(f"{TRACKING_VARIABLE}: {error}") from error


def mlflow_ui(given: str | None, tracking_uri: str | None) -> str | None:
    """Address of MLflow's UI without any password: as given (`--mlflow`), or of the tracking server; None where none is
    known. UsageError for what is no address."""
    address = given or (tracking_uri if (tracking_uri or "").startswith(("http://", "https://")) else None)
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
