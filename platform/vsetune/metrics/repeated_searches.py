"""Comparison of two tuned losses by repeated searches: the repeat, not the seed, is the unit of a claim.

A tuned loss is its search and its training. Two searches of one loss can end further apart than its seeds do, so seeds
of one search hold no information on the next search. Each repeat has a search of its own, with its own pick and fresh
seeds; the mean of these seeds is one independent observation. docs/statistics.md has the simulations.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from vsetune.metrics.seed_statistics import LEVEL, ROUNDING, Epochs, mean_interval, paired_t

FEWEST_REPEATS = 3
"""Fewest searches of each loss for a claim or an interval. With two, an interval is some ten times the deviation."""


@dataclass(frozen=True)
class Effect:
    """A difference between two losses over their repeats or seeds. difference: ours minus theirs, of the means.
    low, high: 95 % interval. p: two-sided. None and p = 1 where a loss has fewer than FEWEST_REPEATS repeats."""

    difference: float | None
    low: float | None
    high: float | None
    p: float


NO_EFFECT = Effect(None, None, None, 1.0)


def welch(ours: Sequence[float], theirs: Sequence[float], *, level: float = LEVEL) -> Effect:
    """Difference of two means with unequal variances (Welch 1947; degrees of freedom by Satterthwaite 1946).

    The degrees of freedom are at most those of two samples of the smaller size, 2 (min n - 1). Satterthwaite's estimate
    never exceeds that at equal sizes. At unequal ones it does where the few happen to lie close together, and three
    searches against ten seeds then gave a false claim on one board in ten (docs/statistics.md).

    ours, theirs: one number per repeat, such as the mean best M-Recall of its seeds in per cent. Repeats that are all
    equal up to rounding have no deviation, and give no interval and p = 1.
    """
    a, b = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    if min(len(a), len(b)) < FEWEST_REPEATS:
        return NO_EFFECT
    difference = float(a.mean() - b.mean())
    of_a, of_b = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    variance = of_a + of_b
    if max(np.ptp(a), np.ptp(b)) <= ROUNDING:
        return Effect(difference, None, None, 1.0)
    satterthwaite = variance**2 / (of_a**2 / (len(a) - 1) + of_b**2 / (len(b) - 1))
    freedom = min(satterthwaite, 2.0 * (min(len(a), len(b)) - 1))
    error = math.sqrt(variance)
    half = float(scipy.special.stdtrit(freedom, (1 + level) / 2)) * error
    p = float(min(1.0, 2 * scipy.special.stdtr(freedom, -abs(difference) / error)))
    return Effect(difference, difference - half, difference + half, p)


def log_ratio(ours: Sequence[Sequence[Epochs]], theirs: Sequence[Sequence[Epochs]], *, level: float = LEVEL) -> Effect:
    """Natural logarithm of the ratio of epochs to a fixed target, ours over theirs; below 0 is faster.

    Per repeat the epochs of each seed. A seed that never reaches the target counts with its last epoch, which is too
    few. So a loss with such a seed is never called faster. Difference and interval are computed from these epochs too.
    """
    return _known(welch(*map(log_means, (ours, theirs)), level=level), ours, theirs)


def log_means(repeats: Sequence[Sequence[Epochs]]) -> list[float]:
    """Mean natural logarithm of the epochs of each repeat; a censored seed enters with its last epoch."""
    return [statistics.fmean(math.log(seed.value) for seed in repeat) for repeat in repeats]


def paired_log_ratio(ours: Sequence[Epochs], theirs: Sequence[Epochs], *, level: float = LEVEL) -> Effect:
    """The same of losses that were not tuned, over seeds: ours[i] and theirs[i] are of one seed. Paired t test.

    No interval and p = 1 for one seed, and for seeds whose ratios are equal up to rounding. ValueError without seeds.
    """
    logs = [math.log(one.value / other.value) for one, other in zip(ours, theirs, strict=True)]
    low, high = map(float, mean_interval(logs, level))
    has_interval = not math.isnan(low)
    effect = Effect(
        statistics.fmean(logs), low if has_interval else None, high if has_interval else None, paired_t(logs)
    )
    return _known(effect, [ours], [theirs])


def _known(effect: Effect, ours: Sequence[Sequence[Epochs]], theirs: Sequence[Sequence[Epochs]]) -> Effect:
    """The effect, without a claim where a seed of the faster side is censored."""
    faster = ours if (effect.difference or 0.0) < 0 else theirs
    is_known = not any(seed.censored for repeat in faster for seed in repeat)
    return effect if is_known else replace(effect, p=1.0)


@dataclass(frozen=True)
class Spread:
    """Standard deviations of a number, in its unit: between searches of one loss, and between seeds of one pick."""

    search: float
    seed: float


def spread(repeats: Sequence[Sequence[float]]) -> Spread | None:
    """Components of variance of a one-way random-effects model (Searle, Casella and McCulloch 1992, 3.6).

    repeats: per search the numbers of its seeds. The variance between searches is that of their means without the part
    that seeds explain, at least 0. None with fewer than two searches, or without a search of two seeds.
    """
    several = [repeat for repeat in repeats if len(repeat) > 1]
    if len(repeats) < 2 or not several:
        return None
    freedom = sum(len(repeat) - 1 for repeat in several)
    seed = sum(statistics.variance(repeat) * (len(repeat) - 1) for repeat in several) / freedom
    share = statistics.fmean(1 / len(repeat) for repeat in repeats)
    search = statistics.variance([statistics.fmean(repeat) for repeat in repeats]) - seed * share
    return Spread(math.sqrt(max(search, 0.0)), math.sqrt(seed))


def detectable(spread: Spread, *, repeats: int, seeds: int, power: float = 0.8, level: float = LEVEL) -> float:
    """The difference that a comparison of so many repeats each finds with this probability, in the unit of `spread`.

    Both losses are taken to have the same spread. seeds: per repeat. The usual approximation by two quantiles of t with
    2 (repeats - 1) degrees of freedom. inf below FEWEST_REPEATS.
    """
    if repeats < FEWEST_REPEATS:
        return math.inf
    freedom = 2 * (repeats - 1)
    quantiles = scipy.special.stdtrit(freedom, (1 + level) / 2) + scipy.special.stdtrit(freedom, power)
    return float(quantiles * math.sqrt(2 * (spread.search**2 + spread.seed**2 / seeds) / repeats))


def collapse_bound(collapsed: int, of: int, *, level: float = LEVEL) -> float:
    """Upper bound of the share of seeds that collapse, 0 to 1 (Clopper and Pearson 1934, one-sided).

    None of 9 seen leaves up to 28 % possible: this bounds what a mean over seeds predicts of the next seed.
    """
    return 1.0 if collapsed == of else float(scipy.special.betaincinv(collapsed + 1, of - collapsed, level))
