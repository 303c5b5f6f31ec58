"""Phases of a training: what is frozen, what carries over, and continuing in any of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from trained_here import advanced_anew, first_step, open_attempt, train

from vsetune.training.checkpoint import CHECKPOINT_FILE

PHASES = [
    {"epochs": 1},
    {"epochs": 1, "trains": "loss", "learning_rate_factor": 0.5, "loss": {"softmax_temperature": 0.5}},
    {"learning_rate_factor": 0.1},
]
LEARNED = {"name": "info_nce", "learned": True, "softmax_temperature": 0.1}


def state(folder: Path) -> dict[str, Any]:
    learner: dict[str, Any] = torch.load(folder / CHECKPOINT_FILE, weights_only=True)["state"]["learner"]
    return learner


def test_a_phase_that_trains_the_loss_leaves_the_network_alone_and_carries_on_what_was_learned(
    make_trial: Any, tmp_path: Path
) -> None:
    attempt = open_attempt(make_trial(loss=LEARNED, phases=PHASES, epochs=3.0), tmp_path)
    states = []
    for _ in range(3):
        attempt.advance()
        states.append(state(tmp_path))
    attempt.close()
    assert [each["phase"] for each in states] == [0, 1, 2]
    first, second, third = (each["network"] for each in states)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert any(not torch.equal(second[name], third[name]) for name in second)
    scales = [float(each["loss"]["log_scale"]) for each in states]
    assert scales[0] != pytest.approx(-torch.tensor(0.1).log().item(), abs=1e-6)  # learned in the first phase
    assert scales[1] != scales[0]
    assert abs(scales[1] - scales[0]) < 0.1  # continued from there, not from the start value of the second phase
    assert [point.metrics["gradient_norm"] == 0 for point in attempt.history] == [False, True, False]


def test_learning_rates_follow_the_phase_and_drops_count_from_its_start(make_trial: Any, tmp_path: Path) -> None:
    trial = make_trial(loss=LEARNED, phases=PHASES, epochs=4.0, learning_rate_step=1, learning_rate=0.01)
    attempt = train(trial, tmp_path)
    assert [point.metrics["learning_rate"] for point in attempt.history] == pytest.approx([0.01, 0.005, 0.001, 0.0001])


def test_a_trial_interrupted_in_every_phase_and_between_them_equals_one_never_interrupted(
    make_trial: Any, tmp_path: Path
) -> None:
    trial = make_trial(loss=LEARNED, phases=PHASES, epochs=3.0, validate_every_steps=3)
    straight = train(trial, tmp_path / "straight")
    broken = advanced_anew(trial, tmp_path / "broken")
    assert broken.number == 6
    assert [p.m_recall for p in straight.history] == [p.m_recall for p in broken.history]
    ours, theirs = state(tmp_path / "straight"), state(tmp_path / "broken")
    for part in ("network", "loss"):
        assert all(torch.equal(ours[part][name], theirs[part][name]) for name in ours[part])


def test_a_sum_of_losses_is_the_weighted_sum_and_logs_every_part(make_trial: Any) -> None:
    def value(loss: dict[str, Any]) -> tuple[float, dict[str, Tensor]]:
        result = first_step(make_trial(loss=loss))
        return float(result.loss), result.output.parts

    hinge, _ = value({"name": "lmh"})
    softmax, _ = value({"name": "info_nce"})
    parts = {"lmh": {"loss": {"name": "lmh"}}, "nce": {"weight": 0.1, "loss": {"name": "info_nce"}}}
    total, logged = value({"name": "sum", "parts": parts})
    assert total == pytest.approx(hinge + 0.1 * softmax, rel=1e-6)
    assert float(logged["lmh"]) == pytest.approx(hinge)
    assert float(logged["nce"]) == pytest.approx(softmax)
    assert "lmh_active_share" in logged
    assert "nce_temperature" in logged
