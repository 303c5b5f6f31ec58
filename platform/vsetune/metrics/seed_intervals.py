"""Intervals over few seeds that cover what they state (docs/statistics.md has the simulated table, decision 0046).

Every function takes arrays whose last axis are the seeds and gives (low, high) without it. Where there are too few
seeds for the stated coverage both are NaN: nothing may be shown then. How few: the constants below, by simulation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

Floats = npt.NDArray[np.float64]

LEVEL = 0.95
MEAN_SEEDS = 2
"""Seeds that an interval of a mean takes, one of a mean difference, and one of the probability of improvement."""
MEDIAN_SEEDS = 5
"""Seeds that an interval of a median takes: the range of four covers 87.5 %, that of five 93.75 %."""
_FOR_LONG_TAILS = 0.25
"""Share of 1 - level by which the interval of the probability of improvement is made surer than it says: it is exact
for normal differences, and covered 92 % instead of 95 where some seeds fall far behind."""
_ROUNDING = 1e-9
"""Of values in per cent: what lies closer is equal. Differences of equal recalls come out some 1e-14 apart."""
_SURE = 1000.0
"""Mean / deviation beyond which an improvement is certain in every digit; its inversion takes minutes, or forever."""


def are_apart(values: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Whether the seeds (last axis) differ by more than rounding."""
    return np.asarray(np.ptp(np.asarray(values, dtype=np.float64), axis=-1) > _ROUNDING)


def mean_interval(values: npt.ArrayLike, level: float = LEVEL) -> tuple[Floats, Floats]:
    """Of the mean over all seeds there could be: mean ± t(n-1) s / sqrt(n) (Student 1908). values: (..., seeds).

    Values that are all equal, but for rounding, show no deviation, which is no certainty: NaN.
    """
    rows = np.asarray(values, dtype=np.float64)
    seeds = rows.shape[-1]
    if seeds < MEAN_SEEDS:
        return _nothing(rows)
    deviation = np.where(are_apart(rows), rows.std(axis=-1, ddof=1), np.nan)
    half = scipy.special.stdtrit(seeds - 1, (1 + level) / 2) * deviation / np.sqrt(seeds)
    mean = rows.mean(axis=-1)
    return mean - half, mean + half


def median_interval(
    lower: npt.ArrayLike, upper: npt.ArrayLike | None = None, level: float = LEVEL
) -> tuple[Floats, Floats]:
    """Of the median, from order statistics, whatever the distribution.

    The interval from the d-th smallest to the d-th largest covers 1 - 2 P(Binomial(n, 1/2) < d); between the two d that
    enclose the level their ends are interpolated (Hettmansperger and Sheather 1986). Five seeds give their
    range, 93.75 %. lower: (..., seeds); upper: the same where a value is known exactly, infinity where it is only known
    to lie above `lower`. An end that such a value leaves open is infinite.
    """
    least = np.sort(np.asarray(lower, dtype=np.float64), axis=-1)
    most = least if upper is None else np.sort(np.asarray(upper, dtype=np.float64), axis=-1)
    seeds = least.shape[-1]
    if seeds < MEDIAN_SEEDS:
        return _nothing(least)
    depth, share = median_depth(seeds, level)
    return _between(least[..., depth - 1], least[..., depth], share), _between(
        most[..., seeds - depth], most[..., seeds - depth - 1], share
    )


def improvement_interval(differences: npt.ArrayLike, level: float = LEVEL) -> tuple[Floats, Floats]:
    """Of the probability that a seed improves, P(difference > 0), as shares of 1. differences: (..., seeds).

    For normal differences it is Phi(mean / deviation), and sqrt(seeds) mean / s has a non-central t distribution whose
    parameter is inverted (Johnson and Welch 1940; Reiser and Guttman 1986 for P(X > Y)), with 96.25 % for 95 to allow
    for tails longer than normal ones. Differences that are all equal, but for rounding, give NaN.
    """
    rows = np.asarray(differences, dtype=np.float64)
    seeds = rows.shape[-1]
    if seeds < MEAN_SEEDS:
        return _nothing(rows)
    known = are_apart(rows)
    deviation = np.where(known, rows.std(axis=-1, ddof=1), 1.0)
    statistic = np.sqrt(seeds) * np.clip(rows.mean(axis=-1) / deviation, -_SURE, _SURE)
    tail = (1 - level) * (1 - _FOR_LONG_TAILS) / 2
    shifts = (scipy.special.nctdtrinc(seeds - 1, share, statistic) for share in (1 - tail, tail))
    low, high = (np.where(known, scipy.special.ndtr(shift / np.sqrt(seeds)), np.nan) for shift in shifts)
    return low, high


def median_depth(seeds: int, level: float = LEVEL) -> tuple[int, float]:
    """(d, share) of `median_interval`: how many values to count from either end, and how far to go on to the next, 0 to
    1. seeds: at least five."""
    cover = [1 - 2 * float(scipy.special.bdtr(d - 1, seeds, 0.5)) for d in range(1, seeds // 2 + 2)]
    if cover[0] < level:
        return 1, 0.0
    depth = max(d for d, covered in enumerate(cover, 1) if covered >= level)
    way = (cover[depth - 1] - level) / (cover[depth - 1] - cover[depth])
    return depth, (seeds - depth) * way / (depth + (seeds - 2 * depth) * way)


def _between(outer: Floats, inner: Floats, share: float) -> Floats:
    """Infinite where the outer one is."""
    finite = np.where(np.isfinite(outer), outer, 0.0), np.where(np.isfinite(inner), inner, 0.0)
    result: Floats = np.where(np.isfinite(outer), (1 - share) * finite[0] + share * finite[1], outer)
    return result


def _nothing(rows: npt.NDArray[Any]) -> tuple[Floats, Floats]:
    empty = np.full(rows.shape[:-1], np.nan)
    return empty, empty.copy()
