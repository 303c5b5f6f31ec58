"""Statistics of a comparison: intervals over seeds, paired tests, censored times, noise of curves."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from vsetune.metrics.curves import SAME_EPOCH, Curve, best_of_curve, mean_curve

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
_FOR_LONG_TAILS = 0.9625
"""Level at which the interval of the probability of improvement covers 95 %: at 0.95 it is exact for normal
differences, but covered 92 % where some seeds fall far behind."""


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


def improvement_interval(differences: npt.ArrayLike, level: float = _FOR_LONG_TAILS) -> tuple[Floats, Floats]:
    """Interval of the probability that a seed improves, P(difference > 0), 0 to 1. differences: (..., seeds).

    For normal differences the probability is Phi(mean / deviation), and sqrt(seeds) mean / s has a non-central t
    distribution whose parameter is inverted (Johnson and Welch 1940; Reiser and Guttman 1986 for P(X > Y)). It excludes
    one half where `paired_t` is below 1 - level. Differences that are all equal give NaN.
    """
    rows = np.asarray(differences, dtype=np.float64)
    seeds = rows.shape[-1]
    if seeds < MEAN_SEEDS:
        return _nothing(rows)
    known = deviate(rows)
    size = rows.mean(axis=-1) / np.where(known, rows.std(axis=-1, ddof=1), 1.0)
    statistic = np.sqrt(seeds) * np.clip(size, -_CERTAIN, _CERTAIN)
    tail = (1 - level) / 2
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


def paired_t(differences: Sequence[float]) -> float:
    """P-value of a mean difference of 0 (Student 1908): two-sided t of mean / (s / sqrt(n)) with n - 1 degrees.

    1 for a single difference, and for differences that are equal up to rounding, which have no deviation.
    """
    values = np.asarray(differences, dtype=np.float64)
    if len(values) < 2 or not deviate(values):
        return 1.0
    statistic = abs(values.mean()) * math.sqrt(len(values)) / values.std(ddof=1)
    return float(min(1.0, 2 * scipy.special.stdtr(len(values) - 1, -statistic)))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for all comparisons together (Holm 1979), which controls the family-wise error rate.

    The k-th smallest of m is multiplied by m - k + 1, and is never below an earlier one and at most 1.
    """
    return [min(1.0, factor * p) for factor, p in zip(holm_factors(p_values), p_values, strict=True)]


def holm_factors(p_values: Sequence[float]) -> list[float]:
    """What `holm` multiplies each p-value with, before 1 is the most."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    factors, largest = [1.0] * len(p_values), 0.0
    for place, index in enumerate(order):
        factor = float(len(p_values) - place)
        largest = max(largest, factor * p_values[index])
        factors[index] = max(factor, largest / p_values[index]) if p_values[index] > 0 else factor
    return factors


@dataclass(frozen=True)
class Epochs:
    """Epochs until an event. If censored, the event had not happened by then, and value is a lower bound."""

    value: float
    censored: bool


@dataclass(frozen=True)
class EpochsOverSeeds:
    """median: by Kaplan and Meier. bounds: interval of the median (by default 95 %), None for fewer than five seeds;
    the upper end is infinite where censored seeds leave it unbounded. censored_share: of the seeds, 0 to 1."""

    median: Epochs
    bounds: tuple[float, float] | None
    seeds: int
    censored_share: float


def kaplan_meier(values: Sequence[Epochs]) -> list[tuple[float, float]]:
    """(epochs, share of seeds without the event after them) at every epoch with an event (Kaplan and Meier 1958): the
    product over epochs t of 1 - events at t / seeds still running just before t.

    A seed that ends at the epoch of an event counts as still running there.
    """
    left, steps = 1.0, []
    for moment in sorted({each.value for each in values if not each.censored}):
        running = sum(each.value >= moment for each in values)
        hits = sum(each.value == moment and not each.censored for each in values)
        left *= 1 - hits / running
        steps.append((moment, left))
    return steps


def kaplan_meier_median(values: Sequence[Epochs]) -> Epochs:
    """Epoch at which half of the seeds have the event. If exactly half have it, the mean of that epoch and of the next
    event's, as for a median of an even number.

    A lower bound where censored seeds leave it unbounded. Raises ValueError without values.
    """
    if not values:
        raise ValueError("median: got no seeds, need at least one")
    last = max(each.value for each in values)
    steps = kaplan_meier(values)
    reached = next((moment for moment, left in steps if left <= 0.5 + _SAME), None)
    passed = next((moment for moment, left in steps if left < 0.5 - _SAME), None)
    middle = ((last if reached is None else reached) + (last if passed is None else passed)) / 2
    return Epochs(middle, censored=reached is None or passed is None)


def epochs_over_seeds(values: Sequence[Epochs], *, level: float = LEVEL) -> EpochsOverSeeds:
    """Median, interval and share of censored seeds. A censored seed enters the interval as any later epoch.

    Raises ValueError without values.
    """
    median = kaplan_meier_median(values)
    lower = [each.value for each in values]
    low, high = median_interval(lower, [np.inf if each.censored else each.value for each in values], level)
    return EpochsOverSeeds(
        median, None if np.isnan(low) else (float(low), float(high)), len(values),
        sum(each.censored for each in values) / len(values),
    )


_SAME = 1e-9
"""Tolerance for products of shares, which may differ from one half in the last bits."""


_RESIDUALS = 5
"""Fewest contrasts for an estimate of the noise."""
_NORMAL_QUARTILE = 0.6744897501960817
_REPEATABILITY = 1.959963984540054 * math.sqrt(2)
_ONE_SIDED = 1.6448536269514722
_END = 4
"""Fewest points of the end of a curve, which is its last quarter."""


def curve_noise(curves: Sequence[Curve]) -> float | None:
    """Standard deviation of one validation around the smooth course of its curve, in points of M-Recall.

    The contrast of every four neighbouring points is their third divided difference, which is 0 for a parabola, scaled
    to the deviation of one point. Differences estimate noise without a model of the curve (Gasser, Sroka and
    Jennen-Steinmetz 1986). The estimate is the median of the absolute contrasts, over all curves of one configuration,
    divided by the upper quartile of the normal distribution; the median excludes the steep beginning. None for fewer
    than five contrasts.
    """
    sizes = [abs(each) for curve in curves for each in _contrasts(curve)]
    if len(sizes) < _RESIDUALS:
        return None
    return statistics.median(sizes) / _NORMAL_QUARTILE


def noise_tolerance(noise: float) -> float:
    """Points of M-Recall that the difference of two validations of one level exceeds in one of twenty cases: 2.77
    deviations, the repeatability limit of ISO 5725-6."""
    return _REPEATABILITY * noise


def still_rises(curves: Sequence[Curve]) -> bool:
    """Whether one configuration was still improving when it ended. curves: of its seeds, at least one.

    True if the mean curve of the seeds that were trained longest has its best at the last point, or if the line through
    its last quarter (of at least four points) rises by more than its noise explains, one-sided at 5 %, and by more than
    one deviation of a validation. The second limit is for many seeds, where a rise too small to move a target is
    significant.
    """
    last = max(curve[-1][0] for curve in curves)
    longest = [curve for curve in curves if curve[-1][0] >= last - SAME_EPOCH]
    mean = mean_curve(longest)
    if best_of_curve(mean).is_last:
        return True
    noise = curve_noise(longest)
    end = mean[-(len(mean) // 4):]
    if noise is None or len(end) < _END:
        return False
    middle = statistics.fmean(epoch for epoch, _ in end)
    spread = math.fsum((epoch - middle) ** 2 for epoch, _ in end)
    slope = math.fsum((epoch - middle) * m_recall for epoch, m_recall in end) / spread
    rise = slope * (end[-1][0] - end[0][0])
    return rise > noise and slope > _ONE_SIDED * noise / math.sqrt(len(longest) * spread)


def _contrasts(curve: Curve) -> Iterator[float]:
    for start in range(len(curve) - 3):
        four = curve[start:start + 4]
        weights = [
            1 / math.prod(epoch - other for other, _ in four if other != epoch) for epoch, _ in four
        ]
        length = math.sqrt(math.fsum(weight**2 for weight in weights))
        yield math.fsum(weight * m_recall for weight, (_, m_recall) in zip(weights, four, strict=True)) / length
