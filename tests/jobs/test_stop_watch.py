"""A driver goes on listening for requests to stop, whatever its tracking store does meanwhile."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from vsetune.errors import StorageError, UnusableStore, UsageError
from vsetune.jobs import stop_watch
from vsetune.jobs.stop_watch import stop_watched
from vsetune.jobs.stopping import StopRequest

URI = "sqlite:///mlflow.db"
OLD, NEW = "2026-01-01 by an earlier driver's friend", "2026-01-02 by somebody"


class Store:
    """Answers as told, one answer a look, the last one for ever; an exception is raised. looks: how many there were."""

    def __init__(self, *answers: str | Exception | None) -> None:
        self.answers, self.looks, self.seen_all = list(answers), 0, threading.Event()

    def stop_asked(self, study: str) -> str | None:
        answer = self.answers[min(self.looks, len(self.answers) - 1)]
        self.looks += 1
        if self.looks > len(self.answers):
            self.seen_all.set()
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Callable[..., StopRequest]:
    """What became of a watch over these answers."""

    def run(*answers: str | Exception | None, opened: Callable[[], None] = lambda: None, **words: Any) -> StopRequest:
        store, stop = Store(*answers), StopRequest()

        def open_states(uri: str) -> Store:
            opened()
            return store

        monkeypatch.setattr(stop_watch, "open_states", open_states)
        with stop_watched("nightly", URI, stop, every_s=0.001, **words):
            for _ in range(5000):
                if stop.is_requested or store.seen_all.wait(0.001):
                    break
        return stop

    return run


@pytest.mark.parametrize("trouble", [StorageError("tracking store x: away"), KeyError("script"), RuntimeError("odd")])
def test_a_request_is_heard_after_any_failure_of_the_store(
    watched: Callable[..., StopRequest], trouble: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    stop = watched(OLD, OLD, trouble, trouble, trouble, OLD, NEW)
    assert stop.reason == f"a request in the tracking store ({NEW})"
    away, back = [record.getMessage() for record in caplog.records]
    assert away.startswith("study nightly: requests to stop it (vsetune study stop) are not heard for now: ")
    assert str(trouble) in away
    assert back == "study nightly: requests to stop it are heard again"


def test_a_store_that_cannot_be_opened_for_a_while_is_told_once(
    watched: Callable[..., StopRequest], caplog: pytest.LogCaptureFixture
) -> None:
    troubles = iter([KeyError("script"), StorageError("locked"), OSError("no route")])

    def opened() -> None:
        for trouble in troubles:
            raise trouble

    assert watched(OLD, OLD, NEW, opened=opened).reason is not None
    assert len([record for record in caplog.records if "not heard for now" in record.getMessage()]) == 1


def test_a_request_that_an_earlier_driver_followed_is_left_alone(watched: Callable[..., StopRequest]) -> None:
    assert not watched(OLD, OLD, OLD).is_requested


def test_what_is_asked_of_a_study_that_began_with_this_driver_is_for_it(watched: Callable[..., StopRequest]) -> None:
    """Also when it was asked before the first look."""
    assert watched(NEW, is_new=True).is_requested


def test_a_study_that_reaches_its_store_later_is_new_and_no_outage(
    watched: Callable[..., StopRequest], caplog: pytest.LogCaptureFixture
) -> None:
    assert watched(UsageError("study nightly: not in this store"), NEW).is_requested
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []


def test_a_store_that_nobody_can_use_is_no_outage(
    watched: Callable[..., StopRequest], caplog: pytest.LogCaptureFixture
) -> None:
    """It ends the study, in one line."""
    assert not watched(UnusableStore("tracking store x: wrong password")).is_requested
    assert caplog.records == []


def test_a_store_in_memory_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_watch, "open_states", lambda uri: pytest.fail("asked"))
    with stop_watched("nightly", "memory:", StopRequest(), every_s=0.001):
        pass
