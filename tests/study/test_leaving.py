from __future__ import annotations

import os
import signal
import threading
import time

from vsetune.study.signals import LeaveWatch


def test_an_attempt_leaves_once_when_its_study_stops_and_goes_on_beating() -> None:
    answers, callers, left, beats = iter([False, True]), [], threading.Event(), []

    def leave() -> None:
        callers.append(threading.current_thread().name)
        left.set()

    def beat() -> bool:
        beats.append(1)
        return next(answers, True)

    with LeaveWatch(leave, beat=beat, every_s=0.001).watching():
        assert left.wait(30)
        before = len(beats)
        while len(beats) < before + 3:  # it lives on until it has left
            time.sleep(0.001)
    assert callers == ["vsetune-leaving"]


def test_a_ray_that_does_not_answer_is_asked_again() -> None:
    left, asked = threading.Event(), []

    def beat() -> bool:
        asked.append(1)
        if len(asked) < 3:
            raise ConnectionError("GCS is away")
        return True

    with LeaveWatch(left.set, beat=beat, every_s=0.001).watching():
        assert left.wait(30)


def test_sigterm_is_a_warning_inside_and_what_it_was_outside() -> None:
    before, left = signal.getsignal(signal.SIGTERM), threading.Event()
    watch = LeaveWatch(left.set, beat=lambda: False)
    with watch.watching():
        os.kill(os.getpid(), signal.SIGTERM)
        while not left.is_set():
            time.sleep(0.001)
    assert watch.was_terminated
    assert signal.getsignal(signal.SIGTERM) == before
