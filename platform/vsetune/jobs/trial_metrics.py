"""Metrics that the worker of a trial exports: the numbers of its last validation, and the memory it uses."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import psutil
import torch

from vsetune.jobs.exported_metrics import (
    MOST_LOSS_PARTS,
    TRIAL_DATA_WAIT,
    TRIAL_DEVICE_MEMORY,
    TRIAL_EPOCHS,
    TRIAL_LOSS,
    TRIAL_M_RECALL,
    TRIAL_PAIRS_PER_SECOND,
)
from vsetune.jobs.metrics_export import MetricsBoard
from vsetune.records.attempts import ValidationPoint

_GAUGES = (TRIAL_M_RECALL, TRIAL_EPOCHS, TRIAL_PAIRS_PER_SECOND, TRIAL_DATA_WAIT, TRIAL_LOSS, TRIAL_DEVICE_MEMORY)
_LOSS_PREFIX = "loss_"


class TrialMetrics:
    """Metrics of the one trial that a worker trains. Their series end when it is closed."""

    def __init__(self, board: MetricsBoard, labels: Mapping[str, str], history: Sequence[ValidationPoint] = ()) -> None:
        """labels: study, cell, trial, phase. history: validations of earlier executions of the trial."""
        self._board, self._labels = board, dict(labels)
        self._before = history[-1] if history else None
        board.sample(TRIAL_DEVICE_MEMORY, held_memory, **self._labels)

    def validated(self, point: ValidationPoint) -> None:
        """Exports the numbers of a validation."""
        board, labels, metrics = self._board, self._labels, point.metrics
        board.set(TRIAL_M_RECALL, point.m_recall / 100, **labels)
        board.set(TRIAL_EPOCHS, point.epoch, **labels)
        if "pairs_per_second" in metrics:
            board.set(TRIAL_PAIRS_PER_SECOND, metrics["pairs_per_second"], **labels)
        waited = waiting_share(self._before, point)
        if waited is not None:
            board.set(TRIAL_DATA_WAIT, waited, **labels)
        for part, value in loss_parts(metrics).items():
            board.set(TRIAL_LOSS, value, part=part, **labels)
        self._before = point

    def close(self) -> None:
        """Ends the series of the trial."""
        for metric in _GAUGES:
            self._board.drop(metric, **self._labels)


def waiting_share(before: ValidationPoint | None, point: ValidationPoint) -> float | None:
    """Waiting for batches / (waiting + training) between two validations. None if no time was spent on either."""
    loaded, trained = point.metrics.get("load_seconds", 0.0), point.train_seconds
    if before is not None:
        loaded, trained = loaded - before.metrics.get("load_seconds", 0.0), trained - before.train_seconds
    return loaded / (loaded + trained) if loaded + trained > 0 else None


def loss_parts(metrics: Mapping[str, float]) -> dict[str, float]:
    """The total loss as `total`, and at most MOST_LOSS_PARTS of its parts, by name."""
    parts = sorted(name for name in metrics if name.startswith(_LOSS_PREFIX))[:MOST_LOSS_PARTS]
    total = {"total": metrics["train_loss"]} if "train_loss" in metrics else {}
    return total | {name.removeprefix(_LOSS_PREFIX): metrics[name] for name in parts}


def held_memory() -> float:
    """Bytes that this process uses: of the GPU if it has used one, else of the machine."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return float(torch.cuda.memory_allocated())
    return float(psutil.Process(os.getpid()).memory_info().rss)
