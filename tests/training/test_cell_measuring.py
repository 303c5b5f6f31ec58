"""What is timed of a cell before a study runs: steps in every phase, a validation or a part of it, a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from vsetune.data.stored.dataset import Dataset
from vsetune.study.planning import cell_measuring
from vsetune.study.planning.cell_measuring import measure_cell, time_validation
from vsetune.training import validation
from vsetune.training.attempt import Attempt
from vsetune.training.step import Learner

CPU = torch.device("cpu")


@pytest.mark.parametrize(("network", "training"), [
    ("scan", {"epochs": 0.4}), ("vsepp", {"epochs": 5, "phases": [{"epochs": 2.5}, {"learning_rate_factor": 0.1}]}),
])
def test_every_number_of_a_cell_is_measured_and_nothing_is_left(
    network: str, training: dict[str, Any], make_trial: Any, small: Any, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cell_measuring, "_MOST", 8)  # of six an epoch
    trial = make_trial(network=small(network), **training)
    times = measure_cell(trial, device=CPU, seconds=30.0, folder=tmp_path)
    assert times.steps_per_epoch == 6
    assert times.steps_timed == 8 * max(1, len(trial.training.phases))
    assert min(times.first_start, times.opening, times.step, times.validation, times.test, times.checkpoint) > 0
    assert 0 <= times.start <= times.first_start
    assert (times.encoded_share, times.scored_share, times.is_scaled) == (1.0, 1.0, False)
    assert times.peak_memory_bytes is None or times.peak_memory_bytes > 2**26
    assert list(tmp_path.iterdir()) == []


def test_the_times_of_a_cell_are_of_the_steps_of_an_attempt(
    make_trial: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps, epochs and phases are those an attempt takes: the same losses at the same places."""
    trial = make_trial(epochs=1)
    seen: list[float] = []
    taken = Learner.step

    def step(self: Learner, batch: Any, drawn: Any) -> Any:
        result = taken(self, batch, drawn)
        seen.append(result.loss.item())
        return result

    monkeypatch.setattr(Learner, "step", step)
    Attempt(trial, tmp_path / "attempt", device="cpu", threads=1).advance()
    own, seen[:] = list(seen), []
    monkeypatch.setattr(cell_measuring, "_WARM_UP", 6)
    measure_cell(trial, device=CPU, seconds=60.0, folder=tmp_path)
    assert seen[:6] == own


def test_part_of_a_validation_is_scaled_to_the_whole(
    make_trial: Any, small: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "_IMAGES_PER_BATCH", 4)  # of 12, with 24 captions
    for name in ("vsepp", "scan"):
        trial = make_trial(network=small(name))
        dataset = Dataset.open(trial.data.path)
        network = Learner.build(trial, dataset, CPU).network
        part = time_validation(network, dataset, trial, CPU, seconds=0.0)
        assert (part.encoded_share, part.scored_share) == (pytest.approx(1 / 3), pytest.approx(1 / 9))
        whole = time_validation(network, dataset, trial, CPU, seconds=60.0)
        assert (whole.encoded_share, whole.scored_share) == (1.0, 1.0)
        assert network.training
