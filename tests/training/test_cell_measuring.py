"""What is timed of a cell before a study runs: steps in the middle of its training, a validation or a part of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from vsetune.data.stored.dataset import Dataset
from vsetune.study.planning import cell_measuring
from vsetune.study.planning.cell_measuring import measure_cell, time_evaluation
from vsetune.training.attempt import TrainingAttempt
from vsetune.training.step import Learner

CPU = torch.device("cpu")


@pytest.mark.parametrize(("network", "training", "steps"), [
    ("scan", {"epochs": 0.4}, 2), ("vsepp", {"epochs": 0}, 0),
    ("vsepp", {"epochs": 5, "phases": [{"epochs": 2.5}, {"learning_rate_factor": 0.1}]}, 8),
])
def test_every_number_of_a_cell_is_measured(
    network: str, training: dict[str, Any], steps: int, make_trial: Any, small: Any, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cell_measuring, "_MOST", 8)  # of six an epoch
    times = measure_cell(make_trial(network=small(network), **training), device=CPU, seconds=30.0)
    assert (times.steps_per_epoch, times.steps_timed, times.scored_share) == (6, steps, 1.0)
    assert min(times.start, times.validation, times.test) > 0
    assert (times.step > 0) is (steps > 0)
    assert times.peak_memory_bytes is None or times.peak_memory_bytes > 2**26


def test_the_steps_are_those_of_an_attempt(make_trial: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same losses at the same places."""
    trial = make_trial(epochs=1)
    seen: list[float] = []
    taken = Learner.step

    def step(self: Learner, batch: Any, drawn: Any) -> Any:
        result = taken(self, batch, drawn)
        seen.append(result.loss.item())
        return result

    monkeypatch.setattr(Learner, "step", step)
    TrainingAttempt(trial, tmp_path / "attempt", device="cpu", threads=1).advance()
    own, seen[:] = list(seen), []
    measure_cell(trial, device=CPU, seconds=60.0)
    assert seen == own


def test_a_network_that_scores_pairs_is_validated_on_some_images(
    make_trial: Any, small: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell_measuring, "_SCORED_IMAGES", 4)  # of 12, with 24 captions
    for name, share in (("vsepp", 1), ("scan", 1 / 9)):
        trial = make_trial(network=small(name))
        dataset = Dataset.open(trial.data.path)
        network = Learner.build(trial, dataset, CPU).network
        validation, test, scored = time_evaluation(network, dataset, trial, CPU)
        assert scored == pytest.approx(share)
        assert test == pytest.approx(validation)  # both splits are of one size
        assert network.training
