"""Exceptions of MLflow become one line of ours that gives the cause, not the layers it came through."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import pytest
from mlflow.exceptions import MlflowException
from mlflow.protos import databricks_pb2 as codes
from refusals import refused
from sqlalchemy.exc import OperationalError

from vsetune.errors import StorageError, UnusableStore
from vsetune.records.mlflow_client import in_one_line, open_client, opening

STORE = "http://mlflow:5000"
POOL = "HTTPConnectionPool(host='mlflow', port=5000)"
ASKED = f"API request to http://mlflow:5000/api/2.0/mlflow/runs/get failed with exception {POOL}: Max retries exceeded"


def refusal(text: str) -> OperationalError:
    """By a database's server, to a connection."""
    return OperationalError(None, None, RuntimeError(text))


@pytest.mark.parametrize(
    ("caused_by", "reason"),
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
def test_a_request_that_failed_is_reported_by_its_cause(caused_by: str, reason: str) -> None:
    raised = MlflowException(f"{ASKED} with url: /api/2.0/mlflow/runs/get?run_uuid=0 (Caused by {caused_by})")
    with refused("VSE-R027", by=StorageError, reason=reason), in_one_line(STORE, "open"):
        raise raised


@pytest.mark.parametrize("raised", [
    MlflowException("API request failed with error code 401 != 200.", error_code=codes.UNAUTHENTICATED),
    MlflowException("API request failed with error code 403 != 200.", error_code=codes.PERMISSION_DENIED),
    refusal('FATAL:  password authentication failed for user "me"'),
    refusal('FATAL:  database "vsetune" does not exist'),
    refusal("file is not a database"),
    refusal("(1045, \"Access denied for user 'me'@'host' (using password: YES)\")"),
])
def test_a_server_that_does_not_let_us_in_is_not_waited_for(raised: Exception) -> None:
    with refused("VSE-R030", by=UnusableStore), opening(STORE):
        raise raised


@pytest.mark.parametrize("raised", [
    MlflowException("API request to endpoint /x failed with error code 503 != 200."),
    refusal("FATAL:  the database system is starting up"),
    refusal("FATAL:  sorry, too many clients already"),
])
def test_a_server_that_cannot_let_us_in_just_now_is(raised: Exception) -> None:
    with refused("VSE-R027", by=StorageError) as error, opening(STORE):
        raise raised
    assert not isinstance(error.value, UnusableStore)


@pytest.mark.parametrize("package", ["psycopg", "MySQLdb"])
def test_a_driver_that_is_not_installed_is_named_with_the_way_to_install_it(package: str) -> None:
    with refused("VSE-R034", by=UnusableStore, package=package) as error, opening(STORE):
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    assert ("vsetune[postgres]" in str(error.value)) == (package == "psycopg")


def test_a_disk_that_is_full_somewhere_is_reported_with_the_temporary_folder() -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with refused("VSE-R027", also=f", in {tempfile.gettempdir()} too"), in_one_line(STORE, "open"):
        raise full
    full.filename = "/store/meta.yaml"
    with refused("VSE-R027", also=""), in_one_line(STORE, "open"):
        raise full


def test_a_plain_folder_is_no_tracking_store_and_the_database_in_it_is_named() -> None:
    with refused("VSE-R032", by=UnusableStore, uri="runs/mlruns", instead=f"sqlite:///{Path.cwd()}/runs/mlruns/mlflow.db"):
        open_client("runs/mlruns")
