"""A spot node that AWS takes back tells Ray in time; a pod that is stopped waits for its trials."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from typing import ClassVar

import psutil
import pytest
from local_http import answering
from refusals import refused

from vsetune.study.leaving_node import NodeHere, interruption, leave, main, wait_for_interruption, wait_for_trials


class Metadata(BaseHTTPRequestHandler):
    """What a machine of AWS is told about itself, with the tokens that version 2 of the service asks for."""

    notices: ClassVar[list[str | None]] = []

    def do_PUT(self) -> None:
        self._answer("a-token" if self.headers["X-aws-ec2-metadata-token-ttl-seconds"] else None)

    def do_GET(self) -> None:
        asked = self.path == "/latest/meta-data/spot/instance-action"
        is_known = self.headers["X-aws-ec2-metadata-token"] == "a-token"
        self._answer(self.notices.pop(0) if asked and is_known and self.notices else None)

    def _answer(self, text: str | None) -> None:
        self.send_response(404 if text is None else 200)
        self.end_headers()
        self.wfile.write((text or "").encode())

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def metadata() -> Iterator[str]:
    Metadata.notices = []
    with answering(Metadata) as url:
        yield f"{url}/latest"


def notice(seconds: float) -> str:
    at = datetime.now(UTC) + timedelta(seconds=seconds)
    return f'{{"action": "terminate", "time": "{at:%Y-%m-%dT%H:%M:%SZ}"}}'


def test_no_notice_is_no_interruption(metadata: str) -> None:
    assert interruption(metadata) is None


def test_a_notice_tells_how_long_is_left(metadata: str) -> None:
    Metadata.notices = [notice(100), notice(-5), notice(9000)]
    assert interruption(metadata) == pytest.approx(100, abs=10)
    assert [interruption(metadata), interruption(metadata)] == [0, 120]


def test_the_watch_asks_until_there_is_one(metadata: str) -> None:
    Metadata.notices = [None, None, notice(110)]
    assert wait_for_interruption(metadata, every_s=0.01) == pytest.approx(110, abs=10)


def test_a_node_without_this_service_is_told() -> None:
    with pytest.raises(OSError, match="refused"):
        interruption("http://127.0.0.1:9/latest")


def test_trials_are_waited_for_no_longer_than_there_is_time() -> None:
    still_there = iter([True, False])
    assert wait_for_trials(60, lambda: next(still_there))
    assert not wait_for_trials(0, lambda: True)


@pytest.fixture
def raylets() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that look like the raylets of a head, of a worker of its cluster, and of a worker of another."""
    sleep = "import sys, time; print(flush=True); time.sleep(60)"
    started = [
        subprocess.Popen(
            ["/ray/raylet", "-c", sleep, f"--node_id={node_id}", f"--gcs-address={address}", *more],
            executable=sys.executable, stdout=subprocess.PIPE,
        )
        for node_id, address, *more in (
            ("aa", "10.0.0.1:6101", "--head"), ("bb", "10.0.0.1:6101"), ("cc", "10.0.0.1:6102"),
        )
    ]
    for process in started:
        assert process.stdout is not None
        process.stdout.readline()
    yield started
    for process in started:
        process.kill()
        process.communicate()


def test_the_node_that_leaves_is_the_worker_of_the_cluster_that_is_named(
    raylets: list[subprocess.Popen[bytes]]
) -> None:
    node = NodeHere.of("127.0.0.1:6101")
    assert (node.id, node.raylet.pid) == ("bb", raylets[1].pid)
    assert not node.works()
    with refused("VSE-S040", address="127.0.0.1:6103", nodes="none"):
        NodeHere.of("127.0.0.1:6103")


@pytest.mark.parametrize("words", [[], ["spot"], ["now", "head:6379"], ["now", "head:6379", "soon"], ["if", "x", "1"]])
def test_misuse_is_told_with_what_is_needed(words: list[str], caplog: pytest.LogCaptureFixture) -> None:
    assert main(words) == 2
    need = "need `spot HEAD:PORT` or `now HEAD:PORT SECONDS`"
    assert f"got {' '.join(words) or 'nothing'}, {need}" in caplog.text


@pytest.mark.slow  # Ray's command takes seconds to start
def test_a_cluster_that_does_not_answer_is_told_in_a_line() -> None:
    with refused("VSE-S041", address="127.0.0.1:9"):
        leave("127.0.0.1:9", NodeHere("f" * 56, psutil.Process()), 100, "test")
