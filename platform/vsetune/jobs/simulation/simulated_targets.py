"""How soon the picks of simulated searches truly reach a target, beside the soonest that there is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, median

from vsetune.jobs.simulation.landscapes import LANDSCAPES
from vsetune.jobs.simulation.simulated_search import SimulatedSearch

NEAR_SOONEST = 1.1
"""A pick is near the soonest if it takes at most so many times its epochs."""


@dataclass(frozen=True)
class TargetSummary:
    """Of some searches on one landscape, or on all. Epochs are true ones: of whole trainings, without noise.

    soonest, pick: medians of the fewest epochs of any configuration and of the pick's, inf where it never reaches the
    target. ratio: median of pick / soonest. near: share within NEAR_SOONEST. height: mean M-Recall in per cent at which
    a whole training of the pick ends, of the searches that have one. trials: mean.
    """

    name: str
    searches: int
    soonest: float
    pick: float
    ratio: float
    near: float
    height: float
    trials: float


def target_summaries(searches: Sequence[SimulatedSearch], *, target: float, epochs: float) -> list[TargetSummary]:
    """One per landscape, in their order, and one of all of them, called `all`. epochs: of a whole training."""
    rows = [
        _summary(name, found, target, epochs) for name in LANDSCAPES
        if (found := [search for search in searches if search.landscape == name])
    ]
    return [*rows, _summary("all", searches, target, epochs)] if len(rows) > 1 else rows


def _summary(name: str, searches: Sequence[SimulatedSearch], target: float, epochs: float) -> TargetSummary:
    soonest = [_fewest(search.landscape, search.seed, target, epochs) for search in searches]
    ratios = [search.epochs_to_target / best for search, best in zip(searches, soonest, strict=True)]
    heights = [search.pick for search in searches if math.isfinite(search.pick)]
    return TargetSummary(
        name, len(searches), median(soonest), median(search.epochs_to_target for search in searches), median(ratios),
        fmean(ratio <= NEAR_SOONEST for ratio in ratios), fmean(heights) if heights else math.nan,
        fmean(search.trials for search in searches),
    )


@cache
def _fewest(landscape: str, seed: int, target: float, epochs: float) -> float:
    return LANDSCAPES[landscape].surface(seed).fewest_epochs(target, epochs)
