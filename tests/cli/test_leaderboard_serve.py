"""`vsetune leaderboard serve`: it starts, answers, ends with Ctrl-C, and says in one line why it cannot."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
import urllib.request

import pytest

from vsetune.cli.leaderboard_output import mlflow_url
from vsetune.records.events import StudyRecord


@pytest.fixture
def tiny(opened):
    """A study without attempts."""
    opened(StudyRecord("tiny", "f", {"baseline": "lmh"}))


@pytest.fixture
def ctrl_c():
    """Heard although this process was started in the background, where shells have it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c", "tiny")
def test_it_answers_until_ctrl_c(vsetune):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    heard = []

    def look_and_interrupt() -> None:
        for _ in range(1000):
            try:
                heard.append(urllib.request.urlopen(f"http://127.0.0.1:{port}/studies/tiny", timeout=20).read())
                break
            except OSError:
                threading.Event().wait(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    looking = threading.Thread(target=look_and_interrupt)
    looking.start()
    said = vsetune("leaderboard", "serve", "tiny", "--port", str(port))
    looking.join()
    assert said.code == 0
    assert b"has no attempts yet" in heard[0]
    assert f"leaderboard: http://127.0.0.1:{port}/" in said.lines[0]
    assert said.lines[-1] == "stopped"


@pytest.mark.parametrize(("words", "told"), [
    (["--port", "70000"], "--port: got 70000, need 0 to 65535"),
    (["--host", "192.0.2.1", "--port", "0"], "leaderboard serve: cannot listen on 192.0.2.1"),
    (["--hit-share", "-1"], "--hit-share: got -1, need a share above 0"),
    (["--mlflow", "ftp://host"], "--mlflow: need an address that begins with http:// or https://"),
    (["none_such"], "study none_such: not in "),
])
def test_what_cannot_be_served_is_told_in_one_line(vsetune, tiny, words, told):
    said = vsetune("leaderboard", "serve", *words)
    assert said.code == 2
    assert len(said.lines) == 1
    assert told in re.sub(r"\s+", " ", said.lines[0])


def test_links_to_mlflow_hold_no_password():
    assert mlflow_url(None, "https://ann:secret@host:5000/mlflow/") == "https://host:5000/mlflow"
    assert mlflow_url("http://127.0.0.1:5000", "sqlite:///x.db") == "http://127.0.0.1:5000"
    assert mlflow_url(None, "sqlite:///x.db") is None
