"""What performance profiles of a board say, as plain frozen data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Unit = Literal["epochs", "seconds"]
UNITS: tuple[Unit, ...] = ("epochs", "seconds")
"""What time to the target is counted in; seconds are of training alone."""


@dataclass(frozen=True)
class LossProfile:
    """factors: by task, time to the target over that of the soonest loss, infinite (null in JSON) where too few
    seeds got there. steps: (tau, share of the tasks within the factor tau), at every tau where it rises. score: mean
    height of these steps from 1 to the largest factor, 0 to 1. seeds: the fewest that a task was decided by."""

    loss: str
    factors: tuple[float, ...]
    steps: tuple[tuple[float, float], ...]
    score: float
    seeds: int


@dataclass(frozen=True)
class TimeProfile:
    """Over the tasks, (data set, network), of a board, the highest score first.

    hit_share: of the seeds of a task, above 0, at most 1, that must reach the target, which is the baseline's best; the
    time of a loss is that of the seed that makes the share. left_out: sentences on the tasks and losses that are not in
    it.
    """

    tasks: tuple[tuple[str, str], ...]
    hit_share: float
    largest_factor: float
    losses: tuple[LossProfile, ...]
    left_out: tuple[str, ...]
    unit: Unit = "epochs"

    @property
    def hit_words(self) -> str:
        """`50 %`."""
        return f"{100 * self.hit_share:.3g} %"
