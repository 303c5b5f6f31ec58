"""`vsetune ui` serves the runs of the home, or says in one line why it cannot."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from refusals import refused

from vsetune.cli.ui import ui


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return tmp_path


def test_a_home_without_a_study_has_nothing_to_show(home: Path) -> None:
    with refused("VSE-X062", file=home / "mlflow.db"):
        ui()


def test_a_study_that_a_server_has_is_shown_by_that_server(home: Path) -> None:
    with refused("VSE-X061", address="http://mlflow:5000"):
        ui(tracking_uri="http://ann:secret@mlflow:5000")


def test_studies_that_are_not_exported_are_nowhere(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "none")
    with refused("VSE-X060"):
        ui()


def test_a_port_that_is_taken_or_none_is_refused(home: Path) -> None:
    (home / "mlflow.db").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with refused("VSE-X063", host="127.0.0.1", port=port):
            ui(port=port)
    with refused("VSE-X002", option="--port", got=0):
        ui(port=0)


@pytest.mark.slow
def test_it_serves_the_home_and_leaves_nothing_where_it_was_started(home: Path, empty_store: Path) -> None:
    (home / "mlflow.db").write_bytes(empty_store.read_bytes())
    (home / "here").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "vsetune.cli.entry", "ui", "--port", str(port)]
    server = subprocess.Popen(command, cwd=home / "here")
    try:
        for _ in range(600):
            try:
                answer = urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).read()
                break
            except OSError:
                assert server.poll() is None
                signal.sigtimedwait([], 0.2)
        assert answer == b"OK"
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
    assert server.returncode == 0
    assert list((home / "here").iterdir()) == []
    with socket.create_server(("127.0.0.1", port)):  # MLflow has gone as well
        pass
