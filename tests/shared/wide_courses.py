"""Trainings in float64, of every network whose batches can be divided, with every loss that fits it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import torch

from vsetune.config.component_specs import LOSSES, NETWORKS
from vsetune.config.study.compatibility import mismatch
from vsetune.config.study.training import TrialSpec
from vsetune.data.batches.batch import Batch
from vsetune.data.stored.dataset import Dataset
from vsetune.training.attempt_progress import Progress
from vsetune.training.batches import TrainingBatches
from vsetune.training.loop import TrainingLoop
from vsetune.training.processes import ALONE, Processes
from vsetune.training.step import Learner

CPU = torch.device("cpu")
UNITS: tuple[Literal["pairs", "images"], ...] = ("pairs", "images")
DIVISIBLE: dict[str, dict[str, Any]] = {
    "vsepp": {}, "scan": {}, "gsmn": {}, "pvse": {"dropout": 0.0}, "pcme": {}, "mse": {}, "malali_keller": {},
    "vse_infinity": {"image_mlp": False, "augment": False},
    "vsrn": {"mode": "coco", "graph": "paper", "captioning_weight": 0.0},
    "tags": {"dropout": 0.0, "mlm_weight": 0.0, "istm_weight": 0.0, "wod_weight": 0.0, "woc_weight": 0.0},
}
"""Settings with which the network samples nothing and can be encoded in chunks."""
NORMALISING: dict[str, dict[str, Any]] = {
    "vse_infinity": {"augment": False}, "vsrn": {"captioning_weight": 0.0, "mode": "flickr30k"},
    "cgmn": {"matching_weight": 0.0}, "sgraf_sgr": {"dropout": 0.0},
}
"""Settings with which the network normalises over the batch and samples nothing: for several processes alone."""
SETTINGS: dict[str, dict[str, Any]] = {
    "many_to_many": {"semantics": "svd"}, "semantic_center": {"quantised_centers": 4}, "irtm": {"drawn": 0},
}


class WideBatches(TrainingBatches):
    """The batches of a trial in float64."""

    def take(self, step: int) -> Batch:
        batch = super().take(step)
        return replace(batch, images=replace(batch.images, features=batch.images.features.double()))


def course(trial: TrialSpec, *, steps: int, processes: Processes = ALONE) -> tuple[list[float], list[torch.Tensor]]:
    """Losses of the first steps in float64; the gradients of the first one, and the running statistics after it."""
    torch.manual_seed(0)
    learner = Learner.build(trial, Dataset.open(trial.data.path), CPU, processes=processes)
    learner.network.double()
    learner.loss.double()
    batches = WideBatches(trial, Dataset.open(trial.data.path), CPU)
    loop = TrainingLoop(trial, learner, batches, Progress(), where="test")
    losses, gradients = [], []
    torch.manual_seed(trial.seed)
    for _ in range(steps):
        loop.begin()
        losses.append(loop.step().loss.item())
        gradients = gradients or [
            *(torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in learned(learner)),
            *(buffer.clone() for buffer in learner.network.buffers()),
        ]
    batches.close()
    return losses, gradients


def learned(learner: Learner) -> list[torch.nn.Parameter]:
    return [*learner.network.parameters(), *learner.loss.parameters()]


def fitting(network: str) -> list[tuple[dict[str, Any], Literal["pairs", "images"]]]:
    """Every loss that trains the network, with the unit of its batches."""
    return [
        ({"name": loss} | SETTINGS.get(loss, {}), unit) for loss in LOSSES for unit in UNITS
        if mismatch(NETWORKS[network](**DIVISIBLE[network]), LOSSES[loss](**SETTINGS.get(loss, {})), batch_unit=unit)
        is None
    ]
