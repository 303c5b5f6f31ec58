"""True epochs to a target of the picks of simulated searches, compared with the fewest of any configuration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, median

from vsetune.jobs.simulation.landscapes import LANDSCAPES, Trainings
from vsetune.jobs.simulation.simulated_search import SimulatedSearch

NEAR_SOONEST = 1.1
"""A pick is near the soonest configuration if it takes at most this many times its epochs."""


@dataclass(frozen=True)
class TargetSummary:
    """Summary of searches on one landscape, or on all. Epochs are true ones: of whole trainings, without noise.

    soonest, pick: medians of the fewest epochs of any configuration and of the pick's epochs, inf if it never reaches
    the target. ratio: median of pick / soonest. near: share of searches within NEAR_SOONEST. height: mean M-Recall in
    per cent of a whole training of the pick, over the searches that have one. trials: mean number.
    """

    name: str
    searches: int
    soonest: float
    pick: float
    ratio: float
    near: float
    height: float
    trials: float


def target_summaries(
    searches: Sequence[SimulatedSearch], *, target: float, epochs: float,
    landscapes: Mapping[str, Trainings] = LANDSCAPES,
) -> list[TargetSummary]:
    """One summary per landscape, in the order of the searches, and one named `all` over several landscapes. target:
    M-Recall in per cent. epochs: of a whole training. landscapes: the searched ones, by name."""
    soonest = [_fewest(landscapes[search.landscape], search.seed, target, epochs) for search in searches]
    names = list(dict.fromkeys(search.landscape for search in searches))
    rows = [
        _summary(name, *zip(*(each for each in zip(searches, soonest, strict=True) if each[0].landscape == name),
                            strict=True)) for name in names
    ]
    return [*rows, _summary("all", searches, soonest)] if len(rows) > 1 else rows


def _summary(name: str, searches: Sequence[SimulatedSearch], soonest: Sequence[float]) -> TargetSummary:
    ratios = [search.epochs_to_target / best for search, best in zip(searches, soonest, strict=True)]
    heights = [search.pick for search in searches if math.isfinite(search.pick)]
    return TargetSummary(
        name, len(searches), median(soonest), median(search.epochs_to_target for search in searches), median(ratios),
        fmean(ratio <= NEAR_SOONEST for ratio in ratios), fmean(heights) if heights else math.nan,
        fmean(search.trials for search in searches),
    )


@cache
def _fewest(landscape: Trainings, seed: int, target: float, epochs: float) -> float:
    return landscape.surface(seed).fewest_epochs(target, epochs)
