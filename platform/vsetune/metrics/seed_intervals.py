"""Intervals over few seeds with their stated coverage (docs/statistics.md has the simulated table, decision 0046).

The interval functions take arrays whose last axis is the seeds and give (low, high) without it. With too few seeds for
the stated coverage both are NaN, and no interval may be shown. The limits are the constants below, from simulation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

Floats = npt.NDArray[np.float64]

LEVEL = 0.95
MEAN_SEEDS = 2
"""Fewest seeds for an interval of a mean, of a mean difference, and of the probability of improvement."""
MEDIAN_SEEDS = 5
"""Fewest seeds for an interval of a median: the range of four covers 87.5 %, the range of five 93.75 %."""
ROUNDING = 1e-9
"""Per cent, epochs or shares. Numbers that differ by no more are equal: one hit of a validation changes 1e-5 or more.
"""
_CERTAIN = 500.0
"""Distance of a mean from 0, in deviations, beyond which even an interval of two seeds is at 0 or 1. SciPy takes
minutes for about 1e5 and does not end from 1e6."""
_FOR_LONG_TAILS = 0.25
"""Share of 1 - level by which the interval of the probability of improvement is widened. Without it, the interval is
exact for normal differences, but covered 92 % instead of 95 % where some seeds fall far behind."""


def mean_interval(values: npt.ArrayLike, level: float = LEVEL) -> tuple[Floats, Floats]:
    """Interval of the mean over all possible seeds: mean ± t(n-1) s / sqrt(n) (Student 1908). values: (..., seeds).

    Values that are all equal (see ROUNDING) give NaN, because they have no deviation.
    """
    rows = np.asarray(values, dtype=np.float64)
    seeds = rows.shape[-1]
    if seeds < MEAN_SEEDS:
        return _nothing(rows)
    deviation = np.where(deviate(rows), rows.std(axis=-1, ddof=1), np.nan)
    half = scipy.special.stdtrit(seeds - 1, (1 + level) / 2) * deviation / np.sqrt(seeds)
    mean = rows.mean(axis=-1)
    return mean - half, mean + half


def median_interval(
    lower: npt.ArrayLike, upper: npt.ArrayLike | None = None, level: float = LEVEL
) -> tuple[Floats, Floats]:
    """Distribution-free interval of the median, from order statistics.

    The interval from the d-th smallest to the d-th largest covers 1 - 2 P(Binomial(n, 1/2) < d). Its ends are
    interpolated between the two d that enclose the level (Hettmansperger and Sheather 1986). Five seeds give their
    range, 93.75 %. lower: (..., seeds). upper: equal to lower where a value is known exactly, infinity where it is only
    known to lie above `lower`. An end that such a value leaves unbounded is infinite.
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
    """Interval of the probability that a seed improves, P(difference > 0), 0 to 1. differences: (..., seeds).

    For normal differences the probability is Phi(mean / deviation), and sqrt(seeds) mean / s has a non-central t
    distribution whose parameter is inverted (Johnson and Welch 1940; Reiser and Guttman 1986 for P(X > Y)). 96.25 %
    are used for 95 %, to allow for tails longer than normal ones. Differences that are all equal give NaN.
    """
    rows = np.asarray(differences, dtype=np.float64)
    seeds = rows.shape[-1]
    if seeds < MEAN_SEEDS:
        return _nothing(rows)
    known = deviate(rows)
    size = rows.mean(axis=-1) / np.where(known, rows.std(axis=-1, ddof=1), 1.0)
    statistic = np.sqrt(seeds) * np.clip(size, -_CERTAIN, _CERTAIN)
    tail = (1 - level) * (1 - _FOR_LONG_TAILS) / 2
    shifts = (scipy.special.nctdtrinc(seeds - 1, share, statistic) for share in (1 - tail, tail))
    low, high = (np.where(known, scipy.special.ndtr(shift / np.sqrt(seeds)), np.nan) for shift in shifts)
    return low, high


def deviate(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Whether values along the last axis differ by more than ROUNDING."""
    deviating: npt.NDArray[np.bool_] = np.ptp(rows, axis=-1) > ROUNDING
    return deviating


def median_depth(seeds: int, level: float = LEVEL) -> tuple[int, float]:
    """(d, share) of `median_interval`: rank from either end, and share of the way to the next value, 0 to 1. seeds: at
    least five."""
    cover = [1 - 2 * float(scipy.special.bdtr(d - 1, seeds, 0.5)) for d in range(1, seeds // 2 + 2)]
    if cover[0] < level:
        return 1, 0.0
    depth = max(d for d, covered in enumerate(cover, 1) if covered >= level)
    way = (cover[depth - 1] - level) / (cover[depth - 1] - cover[depth])
    return depth, (seeds - depth) * way / (depth + (seeds - 2 * depth) * way)


def _between(outer: Floats, inner: Floats, share: float) -> Floats:
    """Interpolation from outer to inner by `share`; infinite where outer is."""
    finite = np.where(np.isfinite(outer), outer, 0.0), np.where(np.isfinite(inner), inner, 0.0)
    result: Floats = np.where(np.isfinite(outer), (1 - share) * finite[0] + share * finite[1], outer)
    return result


def _nothing(rows: npt.NDArray[Any]) -> tuple[Floats, Floats]:
    empty = np.full(rows.shape[:-1], np.nan)
    return empty, empty.copy()
