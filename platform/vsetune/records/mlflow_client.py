"""MLflow's public client: opened once the store answers; its exceptions become ours, in one line."""

from __future__ import annotations

import errno
import logging
import os
import re
import socket
import ssl
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from vsetune.errors import StorageError, UnusableStore, UsageError, VsetuneError, one_line
from vsetune.home.addresses import masked, shown_url
from vsetune.home.locks import take_lock
from vsetune.home.paths import home, remote_home
from vsetune.home.web import require_web
from vsetune.home.whole_files import make_folder

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Metric, Run

SQLITE = "sqlite:///"
KIND, NOTE = "vsetune.kind", "mlflow.note.content"
"""Tags of experiments and runs: what they hold (`study`, `attempt`, `mean`, `nights`, `night`); a text shown on top."""
ATTEMPT, PARENT = "vsetune.attempt", "mlflow.parentRunId"
"""Tags of runs: the name of the attempt, study or mean; the run above it."""
LOG, STUDY = "vsetune.log", "vsetune.study"
"""Tags of experiments: identity of the log that they belong to (`mlflow_export.log_id`); name of its study."""
PIECE = 5000
"""Longest tag, in characters, that MLflow accepts on every store."""
_REFUSALS = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE", "INVALID_STATE", "RESOURCE_ALREADY_EXISTS")
_PORTS = {"http": 80, "https": 443, "postgresql": 5432, "mysql": 3306, "mssql": 1433}
_DATABASES = {"postgresql", "mysql", "mssql"}
_PROBE_S, _MAKING_S = 5.0, 120.0
_SETTINGS = {
    # MLflow reports usage to its makers, draws a bar for every file and prints addresses with passwords by default.
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    # By default it tries a dead server 8 times for 120 s each; the exporter has its own patience.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}
_NOISY = {
    "alembic": logging.WARNING, "mlflow.store.db_migrations": logging.WARNING,
    "mlflow.store.db.utils": logging.CRITICAL, "mlflow.pyfunc": logging.WARNING,
    "urllib3.connectionpool": logging.ERROR,
}
_FORBIDS = re.compile(
    # PostgreSQL; no driver gives a code for it
    r"password authentication failed|no password supplied|no pg_hba\.conf entry|(role|database) \".*\" does not exist"
    # MySQL
    r"|Access denied for user|Unknown database"
    # SQLite
    r"|file is not a database"
)
_NO_FOLDER = (FileNotFoundError, FileExistsError, NotADirectoryError, PermissionError)
_CARRIERS = {"mlflow", "sqlalchemy", "requests", "urllib3", "boto3", "botocore", "google", "azure", "s3transfer"}
_BATCH_METRICS, _BATCH_STRINGS, _PAGE = 900, 100, 250
"""Limits of one request to MLflow: 1,000 entries, 100 of them parameters and 100 tags."""


def is_database(uri: str) -> bool:
    """Whether MLflow writes to a database server itself."""
    return urlsplit(uri).scheme.split("+")[0] in _DATABASES


def require_uri(uri: str) -> None:
    """UnusableStore for text that is not a tracking URI, or for a SQLite file with options."""
    if "://" not in uri and uri != "databricks":
        instead = f"{SQLITE}{Path(uri).absolute() / 'mlflow.db'}"
        raise UnusableStore(
            "VSE-R032", "tracking uri {uri}: not a URI (plain folders are MLflow's deprecated file store); use "
            "{instead} or the address of an MLflow server", uri=shown_url(uri), instead=instead,
        )
    if uri.startswith(SQLITE) and "?" in uri:
        raise UnusableStore(
            "VSE-R033", "tracking uri {uri}: options of SQLite files are not taken; remove ?...", uri=shown_url(uri)
        )


def artifact_location(uri: str, experiment: str) -> str | None:
    """Where MLflow stores the files of an experiment in a database that this process writes itself; None: the server
    chooses."""
    folder = experiment.replace("/", "-")
    if uri.startswith(SQLITE):
        return (Path(uri.removeprefix(SQLITE)).absolute().parent / "artifacts" / folder).as_uri()
    if not is_database(uri):
        return None
    remote = remote_home()
    return f"{remote}/artifacts/{folder}" if remote is not None else (home().absolute() / "artifacts" / folder).as_uri()


def open_client(uri: str) -> MlflowClient:
    """A client of the store behind a URI. MLflow makes the tables of a new database.

    StorageError within seconds while nothing answers there; UnusableStore where waiting does not help: no URI, a folder
    that cannot be made, a driver that is not installed, a password that is refused.
    """
    require_uri(uri)
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    for name, level in _NOISY.items():
        logging.getLogger(name).setLevel(level)
    from mlflow import MlflowClient

    with opening(uri), _one_at_a_time(uri):
        _probe(uri)
        client = MlflowClient(tracking_uri=uri)
        client.search_experiments(max_results=1)
        return client


@contextmanager
def opening(uri: str) -> Iterator[None]:
    """Turn exceptions raised while a store is opened into the errors of `open_client`."""
    shown = shown_url(uri)
    try:
        with in_one_line(uri, "open"):
            yield
    except StorageError as error:
        cause = error.__cause__
        if isinstance(cause, _NO_FOLDER):
            raise UnusableStore(
                "VSE-R031", "tracking uri {uri}: opens no store ({reason})", uri=shown, reason=_gist(cause)
            ) from error
        if not isinstance(cause, Exception) or not _forbids(cause):
            raise
        raise UnusableStore(
            "VSE-R030", "tracking uri {uri}: forbidden ({reason}); check user, password and database", uri=shown,
            reason=_gist(cause),
        ) from error
    except (UsageError, ImportError) as error:
        package = _missing_package(error)
        if package is None:
            reason = error if isinstance(error, UsageError) else one_line(masked(str(error)))
            raise UnusableStore(
                "VSE-R031", "tracking uri {uri}: opens no store ({reason})", uri=shown, reason=reason
            ) from error
        install = "run: pip install 'vsetune[postgres]'" if package.startswith("psycopg") else (
            "install it, or name another driver in the address, as in mysql+pymysql://"
        )
        raise UnusableStore(
            "VSE-R034", "tracking uri {uri}: needs the package {package}, which is not installed; {install}", uri=shown,
            package=package, install=install,
        ) from error


def log_in_batches(
    client: MlflowClient, run_id: str, *, metrics: Sequence[Metric] = (), params: Mapping[str, str] | None = None,
    tags: Mapping[str, str] | None = None,
) -> None:
    """Log in one request, or in several where MLflow's limits require it. tags: at most 100; they are stored last."""
    from mlflow.entities import Param, RunTag

    new_params = [Param(name, value) for name, value in (params or {}).items()]
    for at in range(0, len(new_params), _BATCH_STRINGS):
        client.log_batch(run_id, params=new_params[at : at + _BATCH_STRINGS])
    rest = len(metrics) % _BATCH_METRICS
    for at in range(0, len(metrics) - rest, _BATCH_METRICS):
        client.log_batch(run_id, metrics=metrics[at : at + _BATCH_METRICS])
    new_tags = [RunTag(name, value[:PIECE]) for name, value in (tags or {}).items()]
    if rest or new_tags:
        client.log_batch(run_id, metrics=metrics[len(metrics) - rest :], tags=new_tags)


@contextmanager
def in_one_line(uri: str, doing: str) -> Iterator[None]:
    """Turn exceptions of MLflow, its libraries and the file system into one line. doing: a verb, `export`.

    StorageError where the same call may succeed later; UsageError where MLflow understood and refused it (a deleted
    run, a value it does not take), so that repeating would not help. Passwords in URLs are masked.
    """
    from mlflow.exceptions import MlflowException

    try:
        yield
    except VsetuneError:
        raise
    except Exception as error:
        if isinstance(error, MlflowException) and error.error_code in _REFUSALS:
            raise UsageError(
                "VSE-R028", "tracking store {store}: cannot {doing}: refused ({reason}); look at it in the MLflow UI",
                store=shown_url(uri), doing=doing, reason=one_line(masked(str(error))),
            ) from error
        if not isinstance(error, OSError) and type(error).__module__.split(".")[0] not in _CARRIERS:
            raise
        nowhere = isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None
        also = f", in {tempfile.gettempdir()} too" if nowhere else ""  # where MLflow first writes files that it stores
        raise StorageError(
            "VSE-R027", "tracking store {store}: cannot {doing} ({reason}); check free space{also}, permissions and "
            "the server, then repeat", store=shown_url(uri), doing=doing, reason=_gist(error), also=also,
        ) from error


@contextmanager
def _one_at_a_time(uri: str) -> Iterator[None]:
    """Lock a SQLite file: two processes that open a new one at once would both make its tables."""
    if not uri.startswith(SQLITE):
        yield
        return
    file = Path(uri.removeprefix(SQLITE))
    make_folder(file.absolute().parent)
    with take_lock(file.with_name(file.name + ".lock"), wait_s=_MAKING_S):
        yield


def _probe(uri: str) -> None:
    """Fail now if nothing listens at the address, or a database refuses; MLflow's own retries take up to an hour."""
    parts = urlsplit(uri)
    port = parts.port or _PORTS.get(parts.scheme.split("+")[0])
    if not parts.hostname or port is None:
        return
    try:
        if parts.scheme in ("http", "https"):
            is_any = os.environ.get("MLFLOW_TRACKING_INSECURE_TLS", "").lower() in ("true", "1")
            require_web(
                uri, within_s=_PROBE_S, certificate=os.environ.get("MLFLOW_TRACKING_CLIENT_CERT_PATH"),
                verify=not is_any and (os.environ.get("MLFLOW_TRACKING_SERVER_CERT_PATH") or True),
            )
        else:
            socket.create_connection((parts.hostname, port), timeout=_PROBE_S).close()
    except ssl.SSLError as error:
        raise UnusableStore(
            "VSE-R460", "tracking uri {uri}: its certificate is not accepted ({reason}); correct it, or name the file "
            "of its authority in MLFLOW_TRACKING_SERVER_CERT_PATH or REQUESTS_CA_BUNDLE",
            uri=shown_url(uri), reason=error.args[0],
        ) from error
    except OSError as error:
        raise StorageError(
            "VSE-R029", "tracking uri {uri}: cannot reach {host}:{port} ({reason}); start the MLflow server there, or "
            "set tracking.uri", uri=shown_url(uri), host=parts.hostname, port=port, reason=error.strerror or error,
        ) from error
    if is_database(uri):
        from sqlalchemy import create_engine

        engine = create_engine(uri)
        try:
            engine.connect().close()
        finally:
            engine.dispose()


def _forbids(error: Exception) -> bool:
    """Whether a reachable server refuses access, so that waiting does not help."""
    from mlflow.exceptions import MlflowException

    if isinstance(error, MlflowException):
        return error.error_code in ("UNAUTHENTICATED", "PERMISSION_DENIED")
    return _FORBIDS.search(str(error)) is not None


def _gist(error: Exception) -> str:
    """The message without SQLAlchemy's additions (its advice, the statement, a link); of a failed request only its
    cause."""
    text = re.sub(r"\(raised as a result of Query-invoked autoflush;.*?prematurely\)", "", " ".join(str(error).split()))
    if cause := re.search(r"\(Caused by \w+\(([\"'])(.*)\1\)\)$", text):
        text = cause[2].rpartition(": ")[2]
    return one_line(masked(text.partition("[SQL: ")[0].partition("(Background on")[0]) or type(error).__name__)


def _missing_package(error: BaseException) -> str | None:
    """The package whose absence made opening the address fail; None if none did."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ModuleNotFoundError):
        cause = cause.__cause__
    return None if cause is None or cause.name is None else cause.name.partition(".")[0]


def experiment_of(client: MlflowClient, uri: str, name: str, *, kind: str, note: str, **tags: str) -> Experiment:
    """The experiment of this name; made if there is none. UsageError for a deleted one."""
    found = client.get_experiment_by_name(name)
    if found is None:
        tags |= {KIND: kind, NOTE: note, "mlflow.experimentKind": "custom_model_development"}  # no views for LLMs
        made = client.create_experiment(name, artifact_location=artifact_location(uri, name), tags=tags)
        return client.get_experiment(made)
    return require_active(uri, found)


def require_active(uri: str, experiment: Experiment) -> Experiment:
    """The experiment. UsageError for a deleted one."""
    if experiment.lifecycle_stage != "active":
        raise UsageError(
            "VSE-R041", "{store}: the experiment {experiment} is deleted; remove it with `mlflow gc`, or restore it "
            "with `mlflow experiments restore --experiment-id {number}`", store=shown_url(uri),
            experiment=experiment.name, number=experiment.experiment_id,
        )
    return experiment


def runs_of(client: MlflowClient, experiment_id: str) -> Iterator[Run]:
    """All runs of an experiment that are not deleted, oldest first."""
    token: str | None = None
    while True:
        page = client.search_runs([experiment_id], max_results=_PAGE, page_token=token, order_by=["start_time ASC"])
        yield from page
        token = page.token
        if not token:
            return
