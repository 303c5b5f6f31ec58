"""A driver goes on listening for requests to stop, whatever its home does meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from logged_studies import Logs, logs

from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.study_spec import StudySpec
from vsetune.errors import StorageError
from vsetune.records.studies import Studies
from vsetune.study.run import stop_watched
from vsetune.study.stopping import StopRequest

__all__ = ["logs"]
OLD, NEW = "2026-01-01 by an earlier driver's friend", "2026-01-02 by somebody"


class Answers:
    """One answer a look, the last one for ever; an exception is raised. looks: how many there were."""

    def __init__(self, *answers: str | Exception | None) -> None:
        self.answers, self.looks, self.seen_all = list(answers), 0, threading.Event()

    def __call__(self) -> str | None:
        answer = self.answers[min(self.looks, len(self.answers) - 1)]
        self.looks += 1
        if self.looks > len(self.answers):
            self.seen_all.set()
        if isinstance(answer, Exception):
            raise answer
        return answer


def watched(*answers: str | Exception | None) -> StopRequest:
    """What became of a watch over these answers."""
    asked, stop = Answers(*answers), StopRequest()
    with stop_watched("nightly", stop, every_s=0.001, asked=asked):
        ends(stop, asked.seen_all.is_set)
    return stop


def ends(stop: StopRequest, is_over: Callable[[], bool] = lambda: False) -> bool:
    """Waits until somebody has asked to stop, or it is over."""
    for _ in range(5000):
        if stop.is_requested or is_over():
            break
        threading.Event().wait(0.001)
    return stop.is_requested


@pytest.mark.parametrize("trouble", [StorageError("runs/nightly: away"), KeyError("script"), RuntimeError("odd")])
def test_a_request_is_heard_after_any_failure_of_the_home(
    trouble: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    stop = watched(OLD, OLD, trouble, trouble, trouble, OLD, NEW)
    assert stop.reason == f"a request in its folder ({NEW})"
    away, back = [record.getMessage() for record in caplog.records]
    assert away.startswith("study nightly: requests to stop it (vsetune study stop) cannot be read now: ")
    assert str(trouble) in away
    assert back == "study nightly: requests to stop it can be read again"


def test_a_request_that_an_earlier_driver_followed_is_left_alone() -> None:
    assert not watched(OLD, OLD, OLD).is_requested


def test_a_first_request_is_followed() -> None:
    assert watched(None, None, NEW).is_requested


def test_a_home_that_is_away_when_the_driver_starts_hides_no_request() -> None:
    assert watched(StorageError("runs/nightly: away"), NEW).is_requested


def test_a_request_left_in_the_study_s_folder_reaches_its_driver(logs: Logs) -> None:
    plain = {"study": "nightly", "data": {"path": "x"}, "networks": [{"name": "vsepp"}], "losses": [{"name": "lmh"}]}
    logs.opened(parse_spec(plain, StudySpec, where="test"))
    Studies().ask_to_stop("nightly", OLD)
    stop = StopRequest()
    with stop_watched("nightly", stop, every_s=0.001):
        assert not stop.is_requested
        Studies().ask_to_stop("nightly", NEW)
        assert ends(stop)
    assert stop.reason == f"a request in its folder ({NEW})"
