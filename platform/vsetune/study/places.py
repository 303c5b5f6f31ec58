"""The MLflow of a study. Imports neither torch nor MLflow."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from vsetune.config.study.study_spec import TrackingSpec
from vsetune.errors import ConfigError, UsageError
from vsetune.home.addresses import usable_url
from vsetune.home.paths import home, remote_home, usable_uri

TRACKING_VARIABLE = "MLFLOW_TRACKING_URI"
NOWHERE = "none"
"""Tracking URI with which studies are not exported."""


def tracking_uri(tracking: TrackingSpec) -> str | None:
    """The MLflow tracking URI to which studies are exported: the given one, else MLFLOW_TRACKING_URI, else the SQLite
    file under the home folder. None if studies are not exported: the URI is `none`, or the home is on object storage
    and no URI is given.

    It may contain a password and must not be shown. ConfigError for a URI that was masked, names an unset variable, or
    is invalid.
    """
    given = tracking.uri or os.environ.get(TRACKING_VARIABLE)
    if given == NOWHERE:
        return None
    if tracking.uri:
        return usable_url(tracking.uri, where="tracking.uri")
    if not given:
        return None if remote_home() is not None else _sqlite_in(home())
    try:
        return usable_url(usable_uri(given), where=TRACKING_VARIABLE)
    except ValueError as error:
        raise ConfigError(UsageError(*error.args).problem.at(TRACKING_VARIABLE)) from error


def _sqlite_in(folder: Path) -> str:
    if re.search(r"\?|%[0-9A-Fa-f]{2}", str(folder)):
        raise ConfigError(
            "VSE-S470", "tracking.uri: the address of a SQLite file in {folder} cannot hold its `?` or `%` code; set "
            "tracking.uri to another store or to none, or name another home", folder=folder,
        )
    return f"sqlite:///{folder / 'mlflow.db'}"


def mlflow_ui(given: str | None, tracking_uri: str | None) -> str | None:
    """Address of MLflow's UI without any password: the given one (`--mlflow`), else that of the tracking server; None
    if neither is known. UsageError for an invalid address."""
    address = given or (tracking_uri if (tracking_uri or "").startswith(("http://", "https://")) else None)
    if address is None:
        return None
    try:
        parts = urlsplit(address)
        host, at = parts.hostname, f":{parts.port}" if parts.port else ""
    except ValueError as error:
        raise UsageError(
            "VSE-S031", "--mlflow: got {got}, need an address that begins with http:// or https://, such as "
            "http://127.0.0.1:5000", got=f"an address with {error}",
        ) from error
    if parts.scheme not in ("http", "https") or not host:
        raise UsageError(
            "VSE-S031", "--mlflow: got {got}, need an address that begins with http:// or https://, such as "
            "http://127.0.0.1:5000", got="no web address",
        )
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{at}{parts.path.rstrip('/')}"
