"""The progress of a trial over all its executions, and the numbers that are recorded of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar

from pydantic import ConfigDict

from vsetune.metrics.efficiency import epochs_to_best
from vsetune.records.events import ValidationPoint
from vsetune.training.executions import Count, Execution, Seconds


@dataclass
class Progress:
    """step, pairs_seen: trained so far. Seconds: spent so far, without the work lost by dead executions.

    load_seconds: waiting for batches. train_seconds: the steps themselves. best_step: step of the best validation.
    """

    __pydantic_config__: ClassVar = ConfigDict(strict=True, extra="forbid")  # of a state that is read back

    step: Count = 0
    pairs_seen: Count = 0
    train_seconds: Seconds = 0.0
    load_seconds: Seconds = 0.0
    validation_seconds: Seconds = 0.0
    checkpoint_seconds: Seconds = 0.0
    best_step: Count | None = None
    best_m_recall: float = float("-inf")
    history: list[ValidationPoint] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """How long the device was occupied."""
        return self.train_seconds + self.load_seconds + self.validation_seconds + self.checkpoint_seconds

    def record(self, point: ValidationPoint) -> bool:
        """Append a validation; True when it is the best so far. A tie keeps the earlier one."""
        self.history.append(point)
        if point.m_recall <= self.best_m_recall:
            return False
        self.best_step, self.best_m_recall = point.step, point.m_recall
        return True

    def state_dict(self) -> dict[str, Any]:
        """Plain data."""
        plain = {name.name: getattr(self, name.name) for name in fields(self)}
        return plain | {"history": [asdict(point) for point in self.history]}


def device_seconds(progress: Progress, execution: Execution) -> float:
    """How long the trial has occupied its device: training, loading, validations and checkpoints of all its executions,
    lost work included."""
    return progress.seconds + execution.wasted_seconds


def summarise(progress: Progress, execution: Execution, *, pairs: int) -> dict[str, float]:
    """Totals of the trial over all its executions; `wasted_*` is work lost by dead executions, counted separately.

    best_m_recall: per cent, validation split. epochs_to_best: epoch of the first validation that reached it.
    seconds_per_epoch: training steps alone. pairs: in the train split. Without any validation the numbers about the
    best are absent.
    """
    epochs = progress.pairs_seen / pairs
    wasted = execution.wasted_seconds
    summary = {
        "epochs": epochs,
        "steps": float(progress.step),
        "pairs_seen": float(progress.pairs_seen),
        "validations": float(len(progress.history)),
        "train_seconds": progress.train_seconds,
        "load_seconds": progress.load_seconds,
        "validation_seconds": progress.validation_seconds,
        "checkpoint_seconds": progress.checkpoint_seconds,
        "device_seconds": device_seconds(progress, execution),
        "wasted_epochs": execution.wasted_pairs / pairs,
        "wasted_seconds": wasted,
    }
    if epochs > 0:
        summary["seconds_per_epoch"] = progress.train_seconds / epochs
    if progress.best_step is not None:
        best = next(point for point in progress.history if point.step == progress.best_step)
        summary |= {
            "best_m_recall": best.m_recall,
            "best_step": float(best.step),
            "epochs_to_best": epochs_to_best([(p.epoch, p.m_recall) for p in progress.history], tolerance=0.0),
            "train_seconds_to_best": best.train_seconds,
        }
    return summary
