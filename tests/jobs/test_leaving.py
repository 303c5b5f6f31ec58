from __future__ import annotations

import os
import signal
import threading
import time

from vsetune.jobs.leaving import LeaveWatch


def test_an_attempt_leaves_when_its_node_is_drained_and_is_told_once() -> None:
    answers, told, left = iter([False, True, True]), [], threading.Event()

    def leave() -> None:
        told.append(threading.current_thread().name)
        left.set()

    signs: list[int] = []
    watch = LeaveWatch(leave, live=lambda: signs.append(1), is_ending=lambda: next(answers), every_s=0.001)
    with watch.watching():
        assert left.wait(30)
        before = len(signs)
        while len(signs) < before + 3:  # it lives on until it has left
            time.sleep(0.001)
    assert told == ["vsetune-leaving"]


def test_a_ray_that_does_not_answer_is_asked_again() -> None:
    left, asked = threading.Event(), []

    def is_ending() -> bool:
        asked.append(1)
        if len(asked) < 3:
            raise ConnectionError("GCS is away")
        return True

    with LeaveWatch(left.set, is_ending=is_ending, every_s=0.001).watching():
        assert left.wait(30)


def test_a_sign_of_life_that_cannot_be_told_keeps_nobody_from_leaving() -> None:
    left = threading.Event()

    def live() -> None:
        raise ConnectionError("GCS is away")

    with LeaveWatch(left.set, live=live, is_ending=lambda: True, every_s=0.001).watching():
        assert left.wait(10)


def test_sigterm_is_a_warning_inside_and_what_it_was_outside() -> None:
    before, left = signal.getsignal(signal.SIGTERM), threading.Event()
    watch = LeaveWatch(left.set, is_ending=lambda: False)
    with watch.watching():
        os.kill(os.getpid(), signal.SIGTERM)
        while not left.is_set():
            time.sleep(0.001)
    assert watch.was_terminated
    assert signal.getsignal(signal.SIGTERM) == before
