from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from vsetune.study.signals import LeaveWatch, Signals, SignsOfLife, beat
from vsetune.study.stopping import StopRequest
from vsetune.study.tune_adapter import TRIALS_LEAVE_WITHIN_S, StudyStopper


class World:
    """A clock, one placed trial, its pulses, and which workers were ended."""

    def __init__(self) -> None:
        self.now = 0.0
        self.trial = SimpleNamespace(config={"trial": {"trial": "t"}})
        self.pulses: Mapping[str, int] | None = {}
        self.ended: list[Any] = []
        self.signs = SignsOfLife(
            30.0, lambda: self.pulses, clock=lambda: self.now, end=self.ended.append,
        )
        self.signs.started(self.trial)

    def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1.0
            self.signs.look()


def test_a_silent_trial_is_ended_once_and_the_reason_names_the_setting() -> None:
    world = World()
    world.signs.reported(world.trial)
    world.wait(29)
    assert world.ended == []
    world.wait(60)
    assert world.ended == [world.trial]
    reason = world.signs.ended(world.trial)
    assert reason is not None
    assert "30 s (resources.silence_timeout_s)" in reason


def test_a_trial_whose_pulse_changes_lives_on() -> None:
    world = World()
    for pulse in (5, 1, 4):  # a new attempt begins anew
        world.pulses = {"t": pulse}
        world.wait(25)
    assert world.ended == []
    assert world.signs.ended(world.trial) is None


def test_no_trial_is_ended_while_pulses_cannot_be_read() -> None:
    world = World()
    world.pulses = None
    world.wait(100)
    assert world.ended == []
    world.pulses = {"t": 1}
    world.wait(25)
    assert world.ended == []


def test_a_trial_that_is_no_longer_placed_is_not_ended() -> None:
    world = World()
    assert world.signs.are_awaited
    world.signs.ended(world.trial)
    assert not world.signs.are_awaited
    world.wait(60)
    assert world.ended == []


class Heard:
    """Stands for `Signals`: counts the requests."""

    requests = 0

    def ask_to_stop(self) -> None:
        self.requests += 1


def test_a_study_that_stops_waits_for_its_trials_to_leave_and_no_longer_than_they_have() -> None:
    world, stop, heard = World(), StopRequest(), Heard()
    stopper = StudyStopper(stop, heard, world.signs)
    assert not stopper.stop_all()
    stop.request("Ctrl-C")
    assert not stopper.stop_all()
    assert heard.requests == 1
    stop.since -= TRIALS_LEAVE_WITHIN_S
    assert stopper.stop_all()
    stop.since += TRIALS_LEAVE_WITHIN_S
    world.signs.ended(world.trial)
    assert stopper.stop_all()


def test_a_study_whose_ray_has_died_waits_for_no_trial() -> None:
    stop = StopRequest()
    stop.request("the death of Ray", leaves_time=False)
    assert StudyStopper(stop, Heard(), World().signs).stop_all()


@pytest.fixture
def cluster() -> Iterator[None]:
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


def awaited_pulses(signals: Signals) -> Mapping[str, int]:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        pulses = signals.pulses()
        if pulses:
            return pulses
        time.sleep(0.01)
    raise AssertionError("the actor does not answer")


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_worker_s_pulse_reaches_the_driver_and_the_request_to_stop_the_worker(cluster: None) -> None:
    ask = ray.remote(num_cpus=1)(beat)
    with closing(Signals()) as signals, closing(Signals()) as of_another_study:
        assert ray.get(ask.remote(signals.name, "t", 3)) is False
        assert awaited_pulses(signals) == {"t": 3}
        of_another_study.ask_to_stop()
        assert ray.get(ask.remote(signals.name, "t", 4)) is False
        signals.ask_to_stop()
        assert ray.get(ask.remote(signals.name, "t", 5)) is True


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
