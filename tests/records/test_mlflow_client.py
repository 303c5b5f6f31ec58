"""What MLflow raises is one line of ours that says why, not through which layers it came."""

from __future__ import annotations

import errno
import os
import tempfile

import pytest
from mlflow.exceptions import MlflowException
from mlflow.protos import databricks_pb2 as codes
from sqlalchemy.exc import OperationalError

from vsetune.errors import StorageError, UnusableStore
from vsetune.records.mlflow_client import in_one_line, opening

POOL = "HTTPConnectionPool(host='mlflow', port=5000)"
ASKED = f"API request to http://mlflow:5000/api/2.0/mlflow/runs/get failed with exception {POOL}: Max retries exceeded"


def refusal(said: str) -> OperationalError:
    """By a database's server, to a connection."""
    return OperationalError(None, None, RuntimeError(said))


@pytest.mark.parametrize(
    ("caused_by", "told"),
    [
        (
            "NewConnectionError(\"HTTPConnection(host='mlflow', port=5000): Failed to establish a new connection: "
            "[Errno 111] Connection refused\")",
            "[Errno 111] Connection refused",
        ),
        ("ResponseError('too many 500 error responses')", "too many 500 error responses"),
        (f'ReadTimeoutError("{POOL}: Read timed out. (read timeout=30)")', "Read timed out. (read timeout=30)"),
    ],
)
def test_a_request_that_failed_is_told_by_its_cause(caused_by: str, told: str) -> None:
    raised = MlflowException(f"{ASKED} with url: /api/2.0/mlflow/runs/get?run_uuid=0 (Caused by {caused_by})")
    with pytest.raises(StorageError) as error, in_one_line("store: cannot open", then="go on"):
        raise raised
    assert str(error.value) == (
        f"store: cannot open ({told}); check free space, permissions and the server, then go on"
    )


@pytest.mark.parametrize("raised", [
    MlflowException("API request failed with error code 401 != 200.", error_code=codes.UNAUTHENTICATED),
    MlflowException("API request failed with error code 403 != 200.", error_code=codes.PERMISSION_DENIED),
    refusal('FATAL:  password authentication failed for user "me"'),
    refusal('FATAL:  database "vsetune" does not exist'),
    refusal("file is not a database"),
    refusal("(1045, \"Access denied for user 'me'@'host' (using password: YES)\")"),
])
def test_a_server_that_does_not_let_us_in_is_not_waited_for(raised: Exception) -> None:
    with pytest.raises(UnusableStore, match="forbidden .*; check user, password and database$"), opening("http://mlflow:5000"):
        raise raised


@pytest.mark.parametrize("raised", [
    MlflowException("API request to endpoint /x failed with error code 503 != 200."),
    refusal("FATAL:  the database system is starting up"),
    refusal("FATAL:  sorry, too many clients already"),
])
def test_a_server_that_cannot_let_us_in_just_now_is(raised: Exception) -> None:
    with pytest.raises(StorageError, match="cannot open") as error, opening("http://mlflow:5000"):
        raise raised
    assert not isinstance(error.value, UnusableStore)


@pytest.mark.parametrize(("package", "how"), [
    ("psycopg", r"run: pip install 'vsetune\[postgres\]'"), ("MySQLdb", "install it, or name another driver"),
])
def test_a_driver_that_is_not_installed_is_told_with_what_installs_it(package: str, how: str) -> None:
    told = f"needs the package {package}, which is not installed; {how}"
    with pytest.raises(UnusableStore, match=told), opening("http://mlflow:5000"):
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)


def test_a_disk_that_is_full_somewhere_is_told_with_the_temporary_folder() -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(StorageError, match=f"check free space, in {tempfile.gettempdir()} too, permissions"), \
            in_one_line("store: cannot open", then="go on"):
        raise full
    full.filename = "/store/meta.yaml"
    with pytest.raises(StorageError, match=r"'/store/meta.yaml'\); check free space, permissions"), \
            in_one_line("store: cannot open", then="go on"):
        raise full
