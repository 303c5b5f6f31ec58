"""What MLflow, and the libraries it talks through, raise: one line of ours, and whether to try again."""

from __future__ import annotations

import errno
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from mlflow.exceptions import MlflowException
from mlflow.protos import databricks_pb2 as codes

from vsetune.config.spec.database_drivers import missing_driver
from vsetune.errors import StorageError, UnusableStore, UsageError, VsetuneError
from vsetune.tracking.encoding import one_line

NO_SUCH_RUN = {codes.ErrorCode.Name(code) for code in (codes.RESOURCE_DOES_NOT_EXIST, codes.INVALID_PARAMETER_VALUE)}
_REFUSED = NO_SUCH_RUN | {codes.ErrorCode.Name(code) for code in (codes.INVALID_STATE, codes.RESOURCE_ALREADY_EXISTS)}
_FORBIDDEN = {codes.ErrorCode.Name(code) for code in (codes.UNAUTHENTICATED, codes.PERMISSION_DENIED)}
_FORBIDS = re.compile(
    # PostgreSQL; no driver gives a code for it
    r"password authentication failed|no password supplied|no pg_hba\.conf entry|(role|database) \".*\" does not exist"
    # MySQL
    r"|Access denied for user|Unknown database"
)
_CARRIERS = {"mlflow", "sqlalchemy", "requests", "urllib3", "boto3", "botocore", "google", "azure", "s3transfer"}


@contextmanager
def in_one_line(doing: str, *, then: str) -> Iterator[None]:
    """Turn what MLflow, its carriers and the file system raise into one line that opens with `doing`.

    StorageError where the same call may succeed later; UsageError where MLflow understood and refuses it (a run that
    was deleted, a value it does not take): repeating it would not help. Passwords in URLs are masked.
    """
    try:
        yield
    except VsetuneError:
        raise
    except MlflowException as error:
        if error.error_code in _REFUSED:
            raise UsageError(f"{doing}: refused ({one_line(error)}); look at it in the MLflow UI") from error
        raise _storage_error(doing, error, then) from error
    except Exception as error:
        if not isinstance(error, OSError) and type(error).__module__.split(".")[0] not in _CARRIERS:
            raise
        raise _storage_error(doing, error, then) from error


@contextmanager
def opening(shown_uri: str) -> Iterator[None]:
    """The same while a store is opened, where a refusal, or a database driver not installed, is an UnusableStore."""
    try:
        with in_one_line(f"tracking store {shown_uri}: cannot open", then="repeat"):
            yield
    except StorageError as error:
        if not isinstance(error.__cause__, Exception) or not _forbids(error.__cause__):
            raise
        raise UnusableStore(
            f"tracking uri {shown_uri}: forbidden ({_gist(error.__cause__)}); check user, password and database"
        ) from error
    except (UsageError, ImportError) as error:
        why = missing_driver(error) or f"opens no store ({one_line(error)})"
        raise UnusableStore(f"tracking uri {shown_uri} {why}") from error


def _forbids(error: Exception) -> bool:
    """Whether a server that is there does not let us in. Waiting does not help."""
    if isinstance(error, MlflowException):
        return error.error_code in _FORBIDDEN
    return _FORBIDS.search(str(error)) is not None


def _gist(error: Exception) -> str:
    """The message without what SQLAlchemy writes around it (its advice, the statement, a link), and of a request that
    failed its cause alone."""
    text = re.sub(r"\(raised as a result of Query-invoked autoflush;.*?prematurely\)", "", " ".join(str(error).split()))
    if cause := re.search(r"\(Caused by \w+\(([\"'])(.*)\1\)\)$", text):
        text = cause[2].rpartition(": ")[2]
    return one_line(Exception(text.partition("[SQL: ")[0].partition("(Background on")[0]))


def _storage_error(doing: str, error: Exception, then: str) -> StorageError:
    nowhere = isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None
    too = f", in {tempfile.gettempdir()} too" if nowhere else ""  # MLflow writes what it keeps there first
    return StorageError(f"{doing} ({_gist(error)}); check free space{too}, permissions and the server, then {then}")
