"""Many simulated searches: how often settings find the best of a cell, at what cost, and its epochs to a target."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, median

import numpy as np
from scipy.stats import binomtest, bootstrap

from simulation.landscapes import LANDSCAPES, Landscape, Vector
from simulation.simulated_search import (
    SimulatedSearch,
    SimulationSettings,
    simulate_search,
)
from vsetune.config.study.study_spec import StudySpec

_RESAMPLES = 2000


@dataclass(frozen=True)
class SearchSummary:
    """Summary of several searches.

    hits: share whose pick is truly near the optimum. hits_within: its 95 % interval (Wilson). found: share in which a
    trial truly near the optimum has finished, picked or not. epochs_to_hit: geometric mean, in which a miss counts as
    `miss_epochs`. epochs_to_hit_within: its 95 % interval (bootstrap over searches). costly: share that pruned a trial
    truly better than the pick. shortfall: mean points below the optimum, over the searches that have a pick; None if
    none has. The others: means per search.
    """

    name: str
    searches: int
    hits: float
    hits_within: tuple[float, float]
    found: float
    epochs_to_hit: float
    epochs_to_hit_within: tuple[float, float]
    costly: float
    shortfall: float | None
    epochs: float
    trials: float
    pruned: float
    failed: float
    seconds: float


def simulate(
    study: StudySpec, landscapes: Sequence[Landscape], *, seeds: int, settings: SimulationSettings
) -> Iterator[SimulatedSearch]:
    """Simulates every landscape with the seeds 0 to seeds - 1, and yields each search when it is done."""
    for landscape in landscapes:
        for seed in range(seeds):
            yield simulate_search(study, landscape, seed=seed, settings=settings)


def summaries(searches: Sequence[SimulatedSearch], *, miss_epochs: float) -> list[SearchSummary]:
    """One summary per landscape, in the order of the searches, and one named `all` over several landscapes."""
    rows = [
        summary_of(name, [search for search in searches if search.landscape == name], miss_epochs=miss_epochs)
        for name in dict.fromkeys(search.landscape for search in searches)
    ]
    return [*rows, summary_of("all", searches, miss_epochs=miss_epochs)] if len(rows) > 1 else rows


def summary_of(name: str, searches: Sequence[SimulatedSearch], *, miss_epochs: float) -> SearchSummary:
    """The summary of some searches. searches: at least one."""
    hits = [search.epochs_to_hit for search in searches if search.epochs_to_hit is not None]
    waits = [*hits, *[miss_epochs] * (len(searches) - len(hits))]
    logs = np.log(waits)
    share = binomtest(len(hits), len(searches)).proportion_ci(method="wilson")
    short = [search.shortfall for search in searches if math.isfinite(search.shortfall)]
    return SearchSummary(
        name, len(searches), hits=len(hits) / len(searches), hits_within=(share.low, share.high),
        found=fmean(search.is_found for search in searches),
        epochs_to_hit=float(np.exp(logs.mean())), epochs_to_hit_within=_geometric_interval(logs),
        costly=fmean(search.is_costly for search in searches), shortfall=fmean(short) if short else None,
        epochs=fmean(search.epochs for search in searches), trials=fmean(search.trials for search in searches),
        pruned=fmean(search.pruned for search in searches), failed=fmean(search.failed for search in searches),
        seconds=fmean(search.seconds for search in searches),
    )


def _geometric_interval(logs: Vector) -> tuple[float, float]:
    """95 % interval of a geometric mean, from logarithms: percentiles of the means of resampled searches."""
    if len(logs) == 1:
        return float(np.exp(logs[0])), float(np.exp(logs[0]))
    found = bootstrap((logs,), np.mean, n_resamples=_RESAMPLES, method="percentile", rng=0).confidence_interval
    return float(np.exp(found.low)), float(np.exp(found.high))


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
    landscapes: Mapping[str, Landscape] = LANDSCAPES,
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
def _fewest(landscape: Landscape, seed: int, target: float, epochs: float) -> float:
    return landscape.surface(seed).fewest_epochs(target, epochs)
