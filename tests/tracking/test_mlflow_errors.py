"""What MLflow raises is one line of ours that says why, not through which layers it came."""

from __future__ import annotations

import errno
import os
import tempfile

import pytest
from mlflow.exceptions import MlflowException

from vsetune.errors import StorageError
from vsetune.tracking.mlflow_errors import in_one_line

POOL = "HTTPConnectionPool(host='mlflow', port=5000)"
ASKED = f"API request to http://mlflow:5000/api/2.0/mlflow/runs/get failed with exception {POOL}: Max retries exceeded"


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


def test_a_disk_that_is_full_somewhere_is_told_with_the_temporary_folder() -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(StorageError, match=f"check free space, in {tempfile.gettempdir()} too, permissions"), \
            in_one_line("store: cannot open", then="go on"):
        raise full
    full.filename = "/store/meta.yaml"
    with pytest.raises(StorageError, match=r"'/store/meta.yaml'\); check free space, permissions"), \
            in_one_line("store: cannot open", then="go on"):
        raise full
