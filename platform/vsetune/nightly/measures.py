"""The measures of every cell each night: name, unit, direction of a regression, smallest change that matters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Measure:
    """One number of a cell and night.

    worse: the direction of a regression. scale: `linear` is judged as it is, `ratio` in logarithms (seconds, bytes).
    smallest_change: default for the smallest change that matters; in `unit` where linear, a fraction (0.05 is 5 %)
    where ratio. most: the largest possible value; the smallest is 0.
    """

    name: str
    text: str
    unit: str
    worse: Literal["lower", "higher"]
    scale: Literal["linear", "ratio"]
    smallest_change: float
    most: float = math.inf

    def possible(self, value: float | None) -> float | None:
        """The nearest possible value."""
        return None if value is None else min(max(value, 0.0), self.most)


STEP_TIME, STEP_WALL_TIME = STEP_TIMES = ("step_time", "step_wall_time")
"""Measured with the first losses; the other measures are of whole trials."""

MEASURES: tuple[Measure, ...] = (
    Measure("best_m_recall", "best M-Recall", "points", "lower", "linear", 1.0, most=100.0),
    Measure("epochs_to_target", "epochs to target", "epochs", "higher", "linear", 1.0),
    Measure("m_recall_area", "mean M-Recall over the curve", "points", "lower", "linear", 1.0, most=100.0),
    Measure(STEP_TIME, "time per training step", "calibration steps", "higher", "ratio", 0.05),
    Measure(STEP_WALL_TIME, "wall time per training step", "calibration steps", "higher", "ratio", 0.05),
    Measure("epoch_time", "time per epoch", "products", "higher", "ratio", 0.05),
    Measure("epoch_wall_time", "wall time per epoch", "products", "higher", "ratio", 0.05),
    Measure("pair_rate", "pairs per product", "pairs", "lower", "ratio", 0.05),
    Measure("peak_memory", "peak memory", "bytes", "higher", "ratio", 0.10),
    Measure("start_time", "time to start a trial", "products", "higher", "ratio", 0.50),
    Measure("data_wait", "share of time waiting for data", "share", "higher", "linear", 0.05, most=1.0),
)
"""`products`: seconds divided by those of a calibration product timed beside them (`training/calibration.py`).
step_time, step_wall_time: of a step on one otherwise idle core, measured with the first losses, in `calibration steps`
timed between them. step_time, epoch_time: processor time spent on training steps, without waiting, so that other
processes hardly affect it; on a GPU all seconds. step_wall_time, epoch_wall_time: wall time, including waits for locks,
disks and sleeps; step_wall_time also includes the wait for the batch. pair_rate: by wall time, waits included.
epochs_to_target: a seed that never reaches the target counts with its last epoch (restricted mean)."""

FIRST_LOSSES = "first_losses"
"""The losses of the first steps (`first_steps.steps`, 20 by default) at a fixed seed, and the recalls after them: equal
bit for bit, or changed. No band, no tolerance."""

ALL_CELLS = "all cells"
"""Cell name in rows about the mean over all cells of a measure."""

BY_NAME = {measure.name: measure for measure in MEASURES}
