"""From a tracking URI to a store. MLflow is imported only here and only when a store is opened."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sqlite3
from pathlib import Path
from urllib.parse import urlsplit

from vsetune.config.secrets import shown_url
from vsetune.errors import StorageError
from vsetune.tracking.memory_store import MemoryStore
from vsetune.tracking.store import TrackingStore

_SQLITE = "sqlite:///"
_PORTS = {"http": 80, "https": 443, "postgresql": 5432, "mysql": 3306, "mssql": 1433}
_PROBE_TIMEOUT_S = 10.0


def open_store(uri: str, artifact_root: Path | str | None, *, curve_plots: bool = True) -> TrackingStore:
    """The store behind a URI: `memory:`, `sqlite:///PATH`, or any other URI that MLflow tracks to.

    artifact_root: folder or URL for artifacts; None leaves the choice to the server behind the URI, and for SQLite
    means a folder `artifacts` beside the file. curve_plots: draw a PNG of each attempt's curve when it finishes.
    Raises StorageError (one line) if it cannot be reached or written, within seconds.
    """
    if uri in ("memory:", "memory://"):
        return MemoryStore(Path(artifact_root) if artifact_root is not None else None)
    if "://" not in uri and uri != "databricks":
        raise StorageError(
            f"tracking uri {shown_url(uri)}: not a URI (plain folders are MLflow's deprecated file store); "
            f"use sqlite:///{Path(uri).absolute() / 'mlflow.db'} or the address of an MLflow server"
        )
    if uri.startswith(_SQLITE):
        database = _sqlite_file(uri)
        _prepare_sqlite(database)
        artifact_root = artifact_root or database.absolute().parent / "artifacts"
    else:
        _probe(uri)
    location = artifact_root.absolute().as_uri() if isinstance(artifact_root, Path) else artifact_root
    # MLflow reports usage to its makers, logs every schema migration, draws a bar for every file it copies and prints
    # the server's address (and password) for every run that ends, unless told otherwise before its import.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    for name in ("alembic", "mlflow.store.db.utils", "mlflow.store.db_migrations"):
        logging.getLogger(name).setLevel(logging.WARNING)
    from vsetune.tracking.mlflow_store import MlflowStore

    return MlflowStore(uri, location, shown_uri=shown_url(uri), curve_plots=curve_plots)


def require_existing(uri: str) -> None:
    """StorageError if the URI names a SQLite file that is not there; opening it for reading would create it."""
    if uri.startswith(_SQLITE) and not _sqlite_file(uri).is_file():
        raise StorageError(
            f"tracking database {uri.removeprefix(_SQLITE)}: no such file; run a study first, or name the store of one "
            "with --tracking-uri"
        )


def _sqlite_file(uri: str) -> Path:
    """StorageError for options: they would be taken for a part of the file's name here, and for options by MLflow."""
    if "?" in uri:
        raise StorageError(f"tracking uri {shown_url(uri)}: options of SQLite files are not taken; remove ?...")
    return Path(uri.removeprefix(_SQLITE))


def _prepare_sqlite(database: Path) -> None:
    """Create the file and switch it to write-ahead logging, so that readers never wait for the driver.

    The mode stays in the file. MLflow itself sets a busy timeout of 20 s on every connection. It would retry an
    unusable file for many minutes, therefore it is tried here first.
    """
    is_new = not database.exists()
    try:
        database.absolute().parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(database, timeout=20.0)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("BEGIN IMMEDIATE")
            connection.rollback()
        finally:
            connection.close()
    except (OSError, sqlite3.Error) as error:
        if is_new:
            with contextlib.suppress(OSError):
                database.unlink(missing_ok=True)
        raise StorageError(
            f"tracking database {database}: cannot be opened for writing ({error}); "
            "check the path, its permissions and the free space, or set tracking.uri"
        ) from error


def _probe(uri: str) -> None:
    """Fail now if nothing listens at the address; MLflow's own retries take minutes."""
    parts = urlsplit(uri)
    port = parts.port or _PORTS.get(parts.scheme.split("+")[0])
    if not parts.hostname or port is None:
        return
    try:
        socket.create_connection((parts.hostname, port), timeout=_PROBE_TIMEOUT_S).close()
    except OSError as error:
        raise StorageError(
            f"tracking uri {shown_url(uri)}: cannot reach {parts.hostname}:{port} ({error.strerror or error}); "
            "start the MLflow server there, or set tracking.uri"
        ) from error
