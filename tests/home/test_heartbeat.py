"""One of all machines is at work; who died is succeeded, who was taken over stops."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

import pytest
from refusals import refused

from vsetune.errors import Overtaken, StorageError, StudyConflict
from vsetune.home import heartbeat as heartbeats
from vsetune.home.heartbeat import Heartbeat, holder_of
from vsetune.home.s3 import ObjectChanged, delete, put_bytes

EXPIRED_AT_ONCE_S = -60.0


@pytest.fixture
def url(prefix: str) -> str:
    return f"{prefix}/heartbeat.json"


def take(url: str, *, promised_s: float = 60.0, lost: list[str] | None = None) -> Heartbeat:
    told: list[str] = [] if lost is None else lost
    return Heartbeat(url, "study tiny", on_lost=told.append, promised_s=promised_s, beat_s=3600)


def said_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == heartbeats.__name__]


def test_a_second_holder_is_refused(url: str) -> None:
    first = take(url)
    with refused("VSE-O044", by=StudyConflict, name="study tiny", pid=os.getpid()):
        take(url)
    first.check()
    first.release()


def test_work_that_is_over_is_free_at_once_and_nobody_is_said_to_be_gone(url, caplog):
    take(url).release()
    assert holder_of(url) is None
    second = take(url)
    assert said_in(caplog) == []
    holder, age_s = holder_of(url) or pytest.fail("nobody holds it")
    assert (holder.pid, age_s is not None and age_s < 60) == (os.getpid(), True)
    second.release()


def test_who_was_taken_over_is_told_before_the_next_write_and_harms_nobody(url: str) -> None:
    lost: list[str] = []
    first = take(url, promised_s=EXPIRED_AT_ONCE_S, lost=lost)
    second = take(url)
    with refused("VSE-O046", by=Overtaken, name="study tiny", pid=os.getpid()):
        first.check()
    first.release()
    second.check()
    assert (holder_of(url) or pytest.fail("nobody holds it"))[0].owner == second._me.owner
    second.release()


def test_the_thread_that_renews_tells_of_the_loss(url: str) -> None:
    lost: list[str] = []
    first = Heartbeat(url, "study tiny", on_lost=lost.append, promised_s=EXPIRED_AT_ONCE_S, beat_s=0.02)
    for _ in range(50):
        try:
            second = take(url)
            break
        except StudyConflict:
            continue
    first._thread.join(30)
    assert len(lost) == 1
    second.release()


def test_work_is_over_although_the_answer_to_its_last_beat_was_lost(url, monkeypatch):
    only, put = take(url), heartbeats.put_bytes

    def lose_the_answer(*words: Any, **named: Any) -> str:
        put(*words, **named)
        raise StorageError("the answer was lost")

    with monkeypatch.context() as losing:
        losing.setattr(heartbeats, "put_bytes", lose_the_answer)
        with pytest.raises(StorageError, match="the answer was lost"):
            only._write(only._me)
    only.release()
    assert holder_of(url) is None


@pytest.mark.parametrize("condition", ["if_absent", "if_match"])
def test_a_conditional_write_whose_first_answer_was_lost_counts_and_another_one_does_not(url, condition):
    named = {"if_absent": True} if condition == "if_absent" else {"if_match": put_bytes(url, b"before")}
    etag = put_bytes(url, b"mine", **named)
    assert put_bytes(url, b"mine", **named) == etag
    with pytest.raises(ObjectChanged):
        put_bytes(url, b"another", **named)


def test_the_heart_beats_on_after_an_error_of_any_kind_and_an_outage_is_two_lines(url, monkeypatch, caplog):
    only, put, failures = take(url), heartbeats.put_bytes, iter([TypeError("odd answer"), OSError("odd socket")])
    has_beaten = threading.Event()

    def failing(*words: Any, **named: Any) -> str:
        for failure in failures:
            raise failure
        etag = put(*words, **named)
        has_beaten.set()
        return etag

    monkeypatch.setattr(heartbeats, "put_bytes", failing)
    only._beat_s = 0.001
    beating = threading.Thread(target=only._beats, daemon=True)
    beating.start()
    assert has_beaten.wait(10)
    only._beat_s = 10.0
    only.release()
    beating.join(30)
    assert said_in(caplog) == [
        "study tiny: the heartbeat is not written for now: TypeError: odd answer",
        "study tiny: the heartbeat is written again",
    ]


def test_who_could_not_write_in_time_goes_on_while_nobody_took_over(url: str) -> None:
    only = take(url, promised_s=EXPIRED_AT_ONCE_S)
    for beat in (1, 2):
        only._write(only._me)
        assert (holder_of(url) or pytest.fail("nobody holds it"))[0].beat == beat
    only.release()


def test_a_holder_of_this_machine_whose_process_is_gone_is_taken_over_at_once(url, caplog):
    code = (
        "import os, sys; from vsetune.home.heartbeat import Heartbeat\n"
        "Heartbeat(sys.argv[1], 'study tiny', on_lost=print)\n"
        "os.kill(os.getpid(), 9)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    died = subprocess.run([sys.executable, "-c", code, url], env=environment, capture_output=True, timeout=60)
    assert died.returncode == -9, died.stderr
    take(url).release()
    assert [line.split(",")[-1] for line in said_in(caplog)] == [" which is gone"]


def test_an_answer_that_was_lost_is_no_loss(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    held = take(url)

    def put_twice(*args: object, **options: object) -> str:
        put_bytes(*args, **options)  # type: ignore[arg-type]
        return put_bytes(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(heartbeats, "put_bytes", put_twice)
    held._write(held._me)
    held._write(held._me)
    monkeypatch.undo()
    held.check()
    held.release()


@pytest.mark.parametrize("content", [b"{", b"{}", b"[1]", b'{"owner": 1, "more": 2}'])
def test_a_damaged_heartbeat_is_one_line(url: str, content: bytes) -> None:
    put_bytes(url, content)
    with refused("VSE-O048", by=StorageError, url=url):
        take(url)


def test_a_heartbeat_that_somebody_removed_is_an_interruption(url: str) -> None:
    held = take(url)
    delete([url])
    with refused("VSE-O047", by=StorageError):
        held._write(held._me)
    held.release()
