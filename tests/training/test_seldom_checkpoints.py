"""Checkpoints that come more seldom than validations: when they are due, and that they lose nothing but time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import trained_here
from refusals import refused
from torch import Tensor
from trained_here import run_through

from vsetune.board.selection import cost_of
from vsetune.config.study.training import TrialSpec
from vsetune.errors import NumericError, Preempted
from vsetune.records.events import AttemptStart, ValidationPoint
from vsetune.records.state import trials_of
from vsetune.records.studies import BEST_FILE
from vsetune.records.writer import StudyWriter
from vsetune.training.attempt import TrainingAttempt
from vsetune.training.checkpoint import CHECKPOINT_FILE, CheckpointPace

SELDOM = 1e-9
"""Of the time: after the first checkpoint none is due in a lifetime."""


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def written_at(share: float, *, takes: float, validations: Iterator[float] | list[float]) -> list[float]:
    """When checkpoints of so many seconds are written, of those validations that are done at these times."""
    clock, written = Clock(), []
    pace = CheckpointPace(share, clock=clock)
    for done in validations:
        clock.now = max(clock.now, 100.0 + done)
        if pace.is_due():
            written.append(clock.now - 100.0)
            with pace.writing():
                clock.now += takes
    return written


def test_a_checkpoint_is_due_once_the_last_one_is_its_share_of_the_time() -> None:
    assert written_at(0.02, takes=0.5, validations=[10.0 * n for n in range(8)]) == [0.0, 30.0, 60.0]
    assert written_at(0.1, takes=0.5, validations=[1.0 * n for n in range(12)]) == [0.0, 5.0, 10.0]
    assert len(written_at(1.0, takes=3.0, validations=[0.1 * n for n in range(7)])) == 7
    assert len(written_at(0.02, takes=0.5, validations=[60.0 * n for n in range(5)])) == 5


def open_attempt(trial: TrialSpec, folder: Path, share: float = SELDOM) -> TrainingAttempt:
    return trained_here.open_attempt(trial, folder, checkpoint_share=share)


def kept_step(folder: Path) -> int:
    """Of the validation whose checkpoint is on disk."""
    step: int = torch.load(folder / CHECKPOINT_FILE, weights_only=True)["state"]["progress"]["step"]
    return step


def assert_same(one: TrainingAttempt, other: TrainingAttempt) -> None:
    """Curve, best weights and last parameters."""
    ours, theirs = ([(point.step, point.epoch, point.m_recall) for point in each.history] for each in (one, other))
    assert ours == theirs
    assert one.best_path.read_bytes() == other.best_path.read_bytes()
    last, others = (parameters(each.best_path.with_name(CHECKPOINT_FILE)) for each in (one, other))
    assert [name for name in last if not torch.equal(last[name], others[name])] == []


def parameters(checkpoint: Path) -> dict[str, Tensor]:
    found: dict[str, Tensor] = torch.load(checkpoint, weights_only=True)["state"]["learner"]["network"]
    return found


@pytest.fixture
def trial(make_trial: Any) -> TrialSpec:
    """Seven validations in two epochs of six steps."""
    spec: TrialSpec = make_trial(epochs=2.0, validate_every_steps=2, learning_rate=0.01)
    return spec


def test_the_first_and_the_last_validation_have_a_checkpoint_and_the_best_is_always_there(
    trial: TrialSpec, tmp_path: Path
) -> None:
    attempt, every = open_attempt(trial, tmp_path / "seldom"), open_attempt(trial, tmp_path / "every", share=1.0)
    while not attempt.is_finished:
        attempt.advance(), every.advance()
        assert kept_step(tmp_path / "every") == every.history[-1].step
        assert kept_step(tmp_path / "seldom") == (attempt.history[-1].step if attempt.is_finished else 2)
        assert attempt.best_path.read_bytes() == every.best_path.read_bytes()
    assert_same(attempt, every)
    assert sorted(path.name for path in (tmp_path / "seldom").glob("*best*")) == [BEST_FILE]


@pytest.mark.parametrize("validations", [2, 5])
def test_a_trial_that_dies_trains_what_came_after_its_checkpoint_again_to_the_same_bits(
    validations: int, trial: TrialSpec, tmp_path: Path
) -> None:
    straight = run_through(open_attempt(trial, tmp_path / "straight", share=1.0))
    dead = open_attempt(trial, tmp_path / "dead")
    for _ in range(validations):
        dead.advance()
    seen = [point.pairs_seen for point in dead.history]
    del dead  # as killed: nothing is written any more

    again = open_attempt(trial, tmp_path / "dead")
    assert (again.inherited, [point.step for point in again.history]) == (1, [2])
    assert again.summary()["wasted_epochs"] == pytest.approx((seen[-1] - seen[0]) / 42)
    assert_same(run_through(again), straight)


def test_points_tell_the_device_seconds_of_the_trial_and_what_a_death_lost_counts_once(
    trial: TrialSpec, tmp_path: Path
) -> None:
    """The log hears of no summary: the first attempt is killed, the second one still runs."""
    writer = StudyWriter()
    dead = open_attempt(trial, tmp_path)
    record(writer, 1, [dead.advance() for _ in range(3)])
    del dead

    again = open_attempt(trial, tmp_path)
    for _ in range(4):
        again.advance()
    record(writer, 2, again.history)
    seconds = [point.metrics["device_seconds"] for point in again.history]
    assert seconds == sorted(seconds)
    assert seconds[1] > writer.attempts()[0].summary["device_seconds"], "two validations are trained again"
    parts = ("train_seconds", "load_seconds", "validation_seconds")
    assert all(each >= sum(point.metrics[part] for part in parts)
               for each, point in zip(seconds, again.history, strict=True))
    assert cost_of(trials_of(writer.attempts())).device_seconds == pytest.approx(seconds[-1])
    assert again.summary()["device_seconds"] >= seconds[-1]


def record(writer: StudyWriter, number: int, points: list[ValidationPoint]) -> None:
    """An attempt that has not ended, as the driver records one."""
    start = AttemptStart("tiny", "vsepp.lmh-c000-s0", "vsepp.lmh", "vsepp", "lmh", number, 0, "search", {}, {})
    writer.record_points(writer.start_attempt(start), points)


def test_an_attempt_that_goes_on_keeps_its_first_validation(trial: TrialSpec, tmp_path: Path) -> None:
    for step in (2, 4, 6):
        attempt = open_attempt(trial, tmp_path)
        attempt.advance()
        assert kept_step(tmp_path) == step


def test_asked_to_keep_it_an_attempt_writes_its_last_validation(trial: TrialSpec, tmp_path: Path) -> None:
    attempt = open_attempt(trial, tmp_path)
    for _ in range(3):
        attempt.advance()
    assert kept_step(tmp_path) == 2
    attempt.keep()
    assert kept_step(tmp_path) == 6
    modified = (tmp_path / CHECKPOINT_FILE).stat().st_mtime_ns
    attempt.keep()  # it is there
    assert (tmp_path / CHECKPOINT_FILE).stat().st_mtime_ns == modified
    straight = run_through(open_attempt(trial, tmp_path / "straight"))
    assert_same(run_through(open_attempt(trial, tmp_path)), straight)


def test_a_machine_that_goes_takes_nothing_along(trial: TrialSpec, tmp_path: Path) -> None:
    attempt = open_attempt(trial, tmp_path)
    for _ in range(2):
        attempt.advance()
    attempt.leave()
    with refused("VSE-T002", by=Preempted, step=4):
        attempt.advance()
    again = open_attempt(trial, tmp_path)
    assert (again.inherited, again.summary()["wasted_epochs"]) == (2, 0.0)
    assert_same(run_through(again), run_through(open_attempt(trial, tmp_path / "straight")))


def test_a_spent_attempt_keeps_nothing_but_its_best_weights(
    trial: TrialSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = open_attempt(trial, tmp_path)
    for _ in range(2):
        attempt.advance()
    best = attempt.best_path.read_bytes()
    with torch.no_grad():
        next(iter(attempt._learner.network.parameters())).fill_(float("nan"))
    with pytest.raises(NumericError):
        attempt.advance()
    attempt.keep()  # its parameters are those of no validation
    assert kept_step(tmp_path) == 2
    assert attempt.best_path.read_bytes() == best
