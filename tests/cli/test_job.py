"""`vsetune job` where it cannot work: each cause is one line with what to do, and exit code 2.

The cluster is a stand-in that answers as Ray's dashboard does; the real one answers in test_job_commands.py.
"""

from __future__ import annotations

import errno
import json
import os
import platform
from base64 import b64encode
from collections.abc import Callable, Iterator
from hashlib import sha1
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar

import pytest
import ray
from local_http import answering
from ray._raylet import AuthenticationTokenLoader
from ray.job_submission import JobSubmissionClient

from vsetune.study.submission import Job

TOKEN = "f" * 40
HERE = {"rayVersion": ray.__version__, "pythonVersion": platform.python_version()}


class Dashboard(BaseHTTPRequestHandler):
    """The part of Ray's dashboard that is asked before a job is sent. facts: of the cluster; None: something else."""

    facts: ClassVar[dict[str, str] | None] = HERE
    elsewhere: ClassVar[int] = 200
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            self._answer(403 if self.headers["Authorization"] else 401, "Forbidden: Invalid authentication token")
        elif self.facts is None:
            self._answer(self.elsewhere, "<html>a printer</html>")
        elif self.path == "/api/version":
            self._answer(200, json.dumps({"ray_version": self.facts["rayVersion"]}))
        elif self.path == "/api/v0/cluster_metadata":
            self._answer(200, json.dumps({"result": True, "msg": "", "data": self.facts}))
        else:
            self._answer(200, "[]")

    def do_POST(self) -> None:
        self.asked.append(self.path)
        self._answer(500, "Traceback (most recent call last): ... No available agent to submit job, please try again")

    def do_PUT(self) -> None:
        self._answer(200, "")

    def _answer(self, code: int, text: str) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def dashboard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "RAY_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "token").write_text(TOKEN)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    AuthenticationTokenLoader.instance().reset_cache()
    monkeypatch.setattr(Dashboard, "facts", HERE)
    Dashboard.asked.clear()
    with answering(Dashboard) as url:
        yield url
    AuthenticationTokenLoader.instance().reset_cache()


class LostHead(Dashboard):
    """Has a job, and is gone while the job is followed."""

    def do_GET(self) -> None:
        if self.path == "/api/jobs/":
            job = {"type": "SUBMISSION", "submission_id": "mine-1", "status": "RUNNING", "entrypoint": "x"}
            self._answer(200, json.dumps([job]))
        elif self.path.endswith("/logs/tail"):
            self.protocol_version = "HTTP/1.1"
            key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, 4.2.2
            self.send_response(101)
            self.send_header("Upgrade", "websocket")
            self.send_header("Connection", "Upgrade")
            self.send_header("Sec-WebSocket-Accept", b64encode(sha1(key.encode()).digest()).decode())
            self.end_headers()
            self.close_connection = True
        else:
            super().do_GET()


@pytest.fixture
def refused(vsetune, dashboard) -> Callable[..., bool]:
    """refused(*words): `job list` on this dashboard ends with one line that has the words."""
    return lambda *words: vsetune("job", "list", "--address", dashboard).refused(*words)


def test_no_cluster_there(vsetune, dashboard) -> None:
    assert vsetune("job", "list", "--address", "http://127.0.0.1:9").refused("http://127.0.0.1:9", "--address")


@pytest.mark.parametrize("code", [200, 404, 501])
def test_something_that_is_no_cluster(refused, dashboard, code, monkeypatch) -> None:
    monkeypatch.setattr(Dashboard, "facts", None)
    monkeypatch.setattr(Dashboard, "elsewhere", code)
    assert refused(dashboard)


def test_a_token_that_is_wrong_missing_or_not_sent(refused, dashboard, monkeypatch, tmp_path) -> None:
    def with_token(change: Callable[[], object]) -> None:
        change()
        AuthenticationTokenLoader.instance().reset_cache()

    with_token(lambda: (tmp_path / "token").write_text("e" * 40))
    assert refused(dashboard, "auth_token")
    with_token(lambda: monkeypatch.setenv("RAY_AUTH_MODE", "disabled"))
    assert refused("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    with_token(lambda: monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "missing")))
    assert refused("RAY_AUTH_TOKEN_PATH", str(tmp_path / "missing"))
    with_token(lambda: monkeypatch.delenv("RAY_AUTH_TOKEN_PATH"))
    assert refused("~/.ray/auth_token")


def test_a_full_temporary_folder_is_not_taken_for_a_dashboard_that_does_not_answer(
    vsetune, dashboard, monkeypatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(JobSubmissionClient, "submit_job", full)
    monkeypatch.setattr(JobSubmissionClient, "list_jobs", lambda _: [])
    said = vsetune("job", "submit", "studies/quickstart.yaml", "--address", dashboard)
    assert said.refused("No space left on device", "TMPDIR")


@pytest.mark.parametrize(("there", "said"), [({"rayVersion": "2.50.1"}, "2.50.1"), ({"pythonVersion": "3.9.1"}, "3.9")])
def test_a_cluster_of_another_ray_or_python(refused, there, said, monkeypatch) -> None:
    monkeypatch.setattr(Dashboard, "facts", HERE | there)
    assert refused(said, "constraints.txt")


def test_a_job_that_is_not_there(vsetune, dashboard) -> None:
    for command in ("logs", "attach", "stop"):
        assert vsetune("job", command, "nightly-3", "--address", dashboard).refused("nightly-3")


@pytest.mark.filterwarnings("default")  # Ray's client uses a deprecated argument of aiohttp
def test_a_head_that_is_lost_is_an_interruption(vsetune, dashboard) -> None:
    with answering(LostHead) as lost:
        said = vsetune("job", "attach", "mine-1", "--address", lost)
    assert said.refused("VSE-X024", "job mine-1: ", lost, code=130)


def test_a_cluster_that_has_only_just_started(vsetune, dashboard, study) -> None:
    assert vsetune("job", "submit", str(study()), "--address", dashboard).refused(dashboard, "in a minute")


def test_a_study_file_is_checked_before_anything_is_sent(vsetune, dashboard, study) -> None:
    assert vsetune("job", "submit", str(study(losses=[{"name": "lhm"}])), "--address", dashboard).refused("lhm")
    assert Dashboard.asked == []


@pytest.mark.parametrize(("code", "left_with"), [(1, 1), (2, 2), (3, 3), (4, 4), (130, 130), (-9, 1), (None, 1)])
def test_a_failed_job_exits_with_the_code_of_study_run(code, left_with) -> None:
    assert Job("x-1", "x", "FAILED", "", 1.0, 2.0, code, "").exit_code == left_with
