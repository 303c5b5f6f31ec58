"""From a tracking URI to a store. MLflow is imported only here and only when a store is opened."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from vsetune.config.spec.paths import home
from vsetune.config.spec.secrets import shown_url
from vsetune.errors import StorageError, UnusableStore
from vsetune.tracking.artifact_place import ARTIFACTS, require_own_place
from vsetune.tracking.guarded_store import GuardedStore
from vsetune.tracking.journaled_store import JournaledStore
from vsetune.tracking.memory_store import MemoryStore
from vsetune.tracking.night_runs import NightRuns
from vsetune.tracking.sqlite_file import prepare_sqlite
from vsetune.tracking.sqlite_reading import ReadStore, has_known_tables
from vsetune.tracking.store import TrackingStore

_SQLITE = "sqlite:///"
_PORTS = {"http": 80, "https": 443, "postgresql": 5432, "mysql": 3306, "mssql": 1433}
_DATABASES = {"postgresql", "mysql", "mssql"}
_PROBE_TIMEOUT_S = 5.0
_MLFLOW_SETTINGS = {
    # MLflow reports usage to its makers, draws a bar for every file it copies and prints the server's address (and
    # password) for every run that ends, unless told otherwise.
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    # It tries a dead server 8 times with 120 s each; the journal's thread has its own patience. Half a minute is for a
    # server that passes on a large file.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}
_NOISY = {
    # Every schema migration, and a traceback for every statement that met a lock; the error itself reaches us.
    "alembic": logging.WARNING, "mlflow.store.db_migrations": logging.WARNING,
    "mlflow.store.db.utils": logging.CRITICAL,
    # That it validates an example.
    "mlflow.pyfunc": logging.WARNING,
    # Every retry of a request.
    "urllib3.connectionpool": logging.ERROR,
}


def open_store(
    uri: str, artifact_root: Path | str | None, *, curve_plots: bool = True, all_numbers: bool = False
) -> TrackingStore:
    """The store behind a URI: `memory:`, `sqlite:///PATH`, or any other URI that MLflow tracks to.

    artifact_root: folder or URL for artifacts; None leaves the choice to the server behind the URI, and means a folder
    `artifacts` beside the file for SQLite, under VSETUNE_HOME for another database. curve_plots: draw a picture of each
    attempt's curves when it finishes. all_numbers: MLflow draws every number of every validation, not M-Recall alone.
    Raises StorageError (one line) if it cannot be reached or written, within seconds.
    """
    if is_memory(uri):
        return MemoryStore(Path(artifact_root) if artifact_root is not None else None)
    location = made_ready(uri, artifact_root)
    from vsetune.tracking.mlflow_store import MlflowStore

    return MlflowStore(uri, location, shown_uri=shown_url(uri), curve_plots=curve_plots, all_numbers=all_numbers)


def open_existing(uri: str) -> TrackingStore:
    """A store to be read. A SQLite file that MLflow has made is read without MLflow, as far as its tables tell.

    StorageError where no such file is, rather than a new one, and as `open_store`.
    """
    require_existing(uri)
    if uri.startswith(_SQLITE) and has_known_tables(_sqlite_file(uri)):
        return ReadStore(_sqlite_file(uri), lambda: open_store(uri, None))
    return open_store(uri, None)


def open_nights(uri: str, artifact_root: Path | str | None) -> NightRuns | None:
    """Where nights of sweeps are kept, by the same rules as `open_store`; None where nothing is: `memory:`."""
    if is_memory(uri):
        return None
    location = made_ready(uri, artifact_root)
    from vsetune.tracking.mlflow_nights import MlflowNights

    return MlflowNights(uri, location, shown_uri=shown_url(uri))


def open_journaled(
    uri: str, artifact_root: Path | str | None, folder: Path, *, curve_plots: bool = True, all_numbers: bool = False,
    check: Callable[[], None] | None = None, bring: Callable[[Path], Path] | None = None,
) -> JournaledStore:
    """The store behind a URI with a journal in a study's folder before it. Returns before the store has answered.

    folder: local, with the study's name; the caller holds its lock. check: called before each write, as GuardedStore
    has it; bring: as JournaledStore has it. Raises UnusableStore for a URI that no store is behind, StorageError for a
    folder that cannot be written. A store in a copied home is an UnusableStore when it is opened.
    """
    if not is_memory(uri):
        _load_adapter(uri)

    def opened() -> TrackingStore:
        store = open_store(uri, artifact_root, curve_plots=curve_plots, all_numbers=all_numbers)
        require_own_place(uri, folder.name)  # before what waits is delivered
        return store if check is None else GuardedStore(store, check)

    return JournaledStore(opened, folder, bring=bring)


def made_ready(uri: str, artifact_root: Path | str | None) -> str | None:
    """MLflow imported, the store reachable, a SQLite file made: the place of artifacts as a URL. StorageError."""
    _load_adapter(uri)
    if uri.startswith(_SQLITE):
        database = _sqlite_file(uri)
        prepare_sqlite(database)
        artifact_root = artifact_root or database.absolute().parent / ARTIFACTS
    else:
        _probe(uri)
        if is_database(uri):  # else MLflow takes ./mlruns, wherever somebody stands
            artifact_root = artifact_root or home().absolute() / "artifacts"
    return artifact_root.absolute().as_uri() if isinstance(artifact_root, Path) else artifact_root


def is_database(uri: str) -> bool:
    """Whether MLflow writes to a database server itself."""
    return urlsplit(uri).scheme.split("+")[0] in _DATABASES


def is_memory(uri: str) -> bool:
    """Whether the store lives and dies with its process."""
    return uri in ("memory:", "memory://")


def _load_adapter(uri: str) -> None:
    """Import MLflow, in the caller's thread and with our settings. UnusableStore for what is no URI."""
    if "://" not in uri and uri != "databricks":
        raise UnusableStore(
            f"tracking uri {shown_url(uri)}: not a URI (plain folders are MLflow's deprecated file store); "
            f"use sqlite:///{Path(uri).absolute() / 'mlflow.db'} or the address of an MLflow server"
        )
    for name, value in _MLFLOW_SETTINGS.items():
        os.environ.setdefault(name, value)
    for name, level in _NOISY.items():
        logging.getLogger(name).setLevel(level)
    import vsetune.tracking.mlflow_store  # noqa: F401


def require_existing(uri: str) -> None:
    """StorageError if the URI names a SQLite file that is not there; opening it for reading would create it."""
    if uri.startswith(_SQLITE) and not _sqlite_file(uri).is_file():
        raise StorageError(
            f"tracking database {uri.removeprefix(_SQLITE)}: no such file; run a study first, or name the store of one "
            "with --tracking-uri"
        )


def _sqlite_file(uri: str) -> Path:
    """UnusableStore for options: they would be taken for a part of the file's name here, and for options by MLflow."""
    if "?" in uri:
        raise UnusableStore(f"tracking uri {shown_url(uri)}: options of SQLite files are not taken; remove ?...")
    return Path(uri.removeprefix(_SQLITE))


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
