"""The loss of Ray becomes a request to stop, and of its processes nothing stays."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from vsetune.study import cluster
from vsetune.study.cluster import LocalRay, RayWatch, children
from vsetune.study.stopping import StopRequest, forget_interruptions, interrupt, sigterm_like_ctrl_c

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """A signal that was heard here would stop the next study of this process."""
    yield
    forget_interruptions()


class Parts:
    """Ray, as far as the watch sees it."""

    def __init__(self) -> None:
        self.has_died = threading.Event()
        self.is_clean = False

    def connected(self) -> None:
        """Nothing changes."""

    def lost(self) -> str | None:
        return "the raylet died" if self.has_died.is_set() else None

    def clean_up(self) -> None:
        self.is_clean = True


def test_the_death_of_ray_is_a_request_to_stop_with_its_reason() -> None:
    parts, stop = Parts(), StopRequest()
    with RayWatch(parts, stop, farewell="resume"):
        parts.has_died.set()
        deadline = time.monotonic() + 30
        while not stop.is_requested and time.monotonic() < deadline:
            time.sleep(0.01)
    assert stop.reason == "the death of Ray (the raylet died)"
    assert parts.is_clean


def test_a_look_that_fails_is_followed_by_another_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers = iter([RuntimeError("the GCS gave no answer"), None, RuntimeError("again"), "the raylet died"])

    class Failing(Parts):
        def lost(self) -> str | None:
            answer = next(answers)
            if isinstance(answer, Exception):
                raise answer
            return answer

    monkeypatch.setattr(cluster, "LOOK_EVERY_S", 0.001)
    stop = StopRequest()
    with RayWatch(Failing(), stop, farewell="resume"):
        for _ in range(5_000):
            if stop.is_requested:
                break
            time.sleep(0.001)
    assert stop.reason == "the death of Ray (the raylet died)"
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == "cannot find out whether Ray lives (RuntimeError: the GCS gave no answer)"


@pytest.fixture
def raylet(tmp_path: Path) -> str:
    """A program that is called raylet and sleeps."""
    return str(shutil.copy(shutil.which("sleep") or "", tmp_path / "raylet"))


def test_a_part_that_dies_is_seen_and_what_was_started_beside_it_is_cleaned_up(raylet: str) -> None:
    ray = LocalRay()
    part, beside = subprocess.Popen([raylet, "60"]), subprocess.Popen(["sleep", "60"])
    assert ray.lost() is None
    part.kill()
    part.wait()
    assert ray.lost() == "the raylet died"
    ray.clean_up()
    assert beside.wait(timeout=10) == -signal.SIGKILL


def test_a_process_that_is_started_once_ray_runs_is_none_of_its(raylet: str) -> None:
    ray = LocalRay()
    part = subprocess.Popen([raylet, "60"])
    ray.connected()
    other = subprocess.Popen(["sleep", "60"])
    assert ray.lost() is None
    ray.clean_up()
    assert part.wait(timeout=10) == -signal.SIGKILL
    assert other.poll() is None
    other.kill()
    other.wait()


def test_a_child_of_the_raylet_is_ended_though_the_raylet_has_gone(raylet: str, tmp_path: Path) -> None:
    ray = LocalRay()
    parent = str(shutil.copy(shutil.which("sh") or "", tmp_path / "gcs_server"))
    part = subprocess.Popen([parent, "-c", "read x; sleep 60 & echo $!; wait"], stdin=-1, stdout=-1, text=True)
    assert part.stdin is not None
    assert part.stdout is not None
    ray.connected()
    part.stdin.write("go\n")
    part.stdin.flush()
    agent = psutil.Process(int(part.stdout.readline()))
    assert ray.lost() is None
    part.kill()
    part.wait()
    assert ray.lost() == "the GCS died"
    ray.clean_up()
    agent.wait(timeout=10)
    part.stdin.close()
    part.stdout.close()


def test_what_an_earlier_ray_of_this_process_left_is_none_of_the_next_one(raylet: str) -> None:
    earlier = subprocess.Popen([raylet, "60"])
    earlier.kill()
    os.waitid(os.P_PID, earlier.pid, os.WEXITED | os.WNOWAIT)  # dead, and still a child until it is waited for
    assert earlier.pid in {child.pid for child in children()}
    ray = LocalRay()
    later = subprocess.Popen([raylet, "60"])
    assert ray.lost() is None
    ray.clean_up()
    assert later.wait(timeout=10) == -signal.SIGKILL
    earlier.wait()


def test_a_process_that_ray_does_not_let_go_leaves_with_its_line() -> None:
    code = (
        "import time; from vsetune.study import cluster; from vsetune.study.stopping import StopRequest\n"
        "cluster.LEAVE_WITHIN_S = 0.1; cluster.LOOK_EVERY_S = 0.05\n"
        "stop = StopRequest()\n"
        "with cluster.RayWatch(cluster.LocalRay(), stop, farewell='go on with --resume'):\n"
        "    stop.request('Ctrl-C'); time.sleep(60)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60,
        env=os.environ | {"PYTHONPATH": str(ROOT / "platform")},
    )
    assert done.returncode == 130
    assert done.stderr.strip() == "interrupted by Ctrl-C; go on with --resume"


@pytest.mark.parametrize(("number", "reason"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")])
def test_a_signal_that_an_import_swallowed_still_stops_the_study(number: signal.Signals, reason: str) -> None:
    forget_interruptions()
    with contextlib.suppress(BaseException):  # as a bare `except:` of a library does
        interrupt(number, None)
    try:
        stop = StopRequest()
        with stop.listening():
            assert stop.reason == reason
    finally:
        forget_interruptions()
    fresh = StopRequest()
    with fresh.listening():
        assert not fresh.is_requested


def test_sigterm_asks_to_stop_like_ctrl_c_and_a_second_one_interrupts() -> None:
    stop = StopRequest()
    with stop.listening():
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.reason == "SIGTERM"
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    with sigterm_like_ctrl_c(), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)


def test_the_handler_that_ray_puts_in_place_is_replaced_again() -> None:
    stop = StopRequest()
    with stop.listening():
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(number))
        stop.listen_again()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.reason == "SIGTERM"
