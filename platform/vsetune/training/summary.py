"""The numbers that are recorded of a trial: `summary` of its attempt record."""

from __future__ import annotations

from vsetune.metrics.efficiency import epochs_to_best
from vsetune.training.attempt_progress import Progress
from vsetune.training.executions import Execution


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
