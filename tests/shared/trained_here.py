"""Attempts, networks and single steps of a trial in this process, on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from vsetune.config.study.training import TrialSpec
from vsetune.data.stored.dataset import Dataset
from vsetune.networks.network_base import Network
from vsetune.networks.network_building import build_network
from vsetune.training.attempt import TrainingAttempt
from vsetune.training.batches import TrainingBatches
from vsetune.training.step import Learner, StepResult

CPU = torch.device("cpu")


def open_attempt(trial: TrialSpec, folder: Path, **more: Any) -> TrainingAttempt:
    return TrainingAttempt(trial, folder, device="cpu", threads=1, **more)


def run_through(attempt: TrainingAttempt) -> TrainingAttempt:
    """The attempt, trained to its budget."""
    while not attempt.is_finished:
        attempt.advance()
    attempt.close()
    return attempt


def train(trial: TrialSpec, folder: Path, **more: Any) -> TrainingAttempt:
    """A new attempt, trained to its budget."""
    return run_through(open_attempt(trial, folder, **more))


def advanced_anew(trial: TrialSpec, folder: Path, **more: Any) -> TrainingAttempt:
    """A trial trained to its budget, interrupted after every validation; the last of its attempts."""
    while True:
        attempt = open_attempt(trial, folder, **more)
        attempt.advance()
        attempt.close()
        if attempt.is_finished:
            return attempt
        torch.manual_seed(99)  # another process draws other numbers


def fresh_network(trial: TrialSpec, *, seed: int = 0) -> tuple[Network, Dataset]:
    """The untrained network of a trial, and its data set."""
    dataset = Dataset.open(trial.data.path)
    torch.manual_seed(seed)
    sizes = {"regions": dataset.regions, "width": dataset.width, "vocabulary_size": len(dataset.vocabulary)}
    return build_network(trial.network, **sizes), dataset


def learner_of(trial: TrialSpec, *, seed: int = 0) -> Learner:
    torch.manual_seed(seed)
    return Learner.build(trial, Dataset.open(trial.data.path), CPU)


def first_step(trial: TrialSpec, learner: Learner | None = None, *, epoch: float | None = None) -> StepResult:
    """The step of a learner on the first batch. learner: None for a fresh one."""
    learner = learner or learner_of(trial)
    batches = TrainingBatches(trial, Dataset.open(trial.data.path), CPU)
    if epoch is not None:
        learner.set_epoch(epoch)
    result = learner.step(batches.take(0))
    batches.close()
    return result
