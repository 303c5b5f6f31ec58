"""Performance profiles of a board, as plain frozen data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Unit = Literal["epochs", "seconds"]
UNITS: tuple[Unit, ...] = ("epochs", "seconds")
"""Units of time to the target; seconds count training only."""


@dataclass(frozen=True)
class LossProfile:
    """factors: by task, time to the target over that of the fastest loss, infinite (null in JSON) where too few seeds
    reached it. steps: (tau, share of the tasks within the factor tau), at tau = 1 and every tau where it rises. score:
    mean share from tau = 1 to the largest factor, 0 to 1. seeds: the smallest number of seeds on any task."""

    loss: str
    factors: tuple[float, ...]
    steps: tuple[tuple[float, float], ...]
    score: float
    seeds: int


@dataclass(frozen=True)
class TimeProfile:
    """Profiles over the tasks, (data set, network), of a board; losses with the highest score first.

    hit_share: share of the seeds of a task, above 0 and at most 1, that must reach the target, the baseline's best. The
    time of a loss is that of the seed that completes the share. left_out: sentences on the tasks and losses that the
    profiles leave out.
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
