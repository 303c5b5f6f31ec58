"""Trainings that read the bank of their node are those that read the shards."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from trained_here import open_attempt, run_through

from vsetune.config.sources.trial_inputs import STREAMED, Reading
from vsetune.errors import Preempted
from vsetune.training.attempt import TrainingAttempt

BANK = Reading("auto", bank_bytes=10**9)


def curve(attempt: TrainingAttempt) -> list[tuple[int, float, float]]:
    return [(point.step, point.m_recall, point.metrics["train_loss"]) for point in run_through(attempt).history]


@pytest.mark.parametrize("loss", [{"name": "lseh"}, {"name": "lmh"}])
def test_a_training_from_the_bank_is_that_from_the_shards_also_when_it_is_continued(make_trial, tmp_path, loss):
    trial = make_trial(epochs=2.0, loss=loss)

    def attempt(folder: str, reading: Reading) -> TrainingAttempt:
        return open_attempt(trial, tmp_path / folder, reading=reading)

    streamed = curve(attempt("streamed", STREAMED))
    assert curve(attempt("bank", BANK)) == streamed
    broken = attempt("broken", BANK)
    with broken._random.active():
        broken._step()
        broken._step()
    broken.leave()
    with pytest.raises(Preempted):
        broken.advance()
    assert list(Path(os.environ["VSETUNE_HOME"]).rglob("*.arrays"))
    assert curve(attempt("broken", replace(BANK, source="bank"))) == streamed
