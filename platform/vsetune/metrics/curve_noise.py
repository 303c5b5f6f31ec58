"""Noise of validation curves, and what it leaves of their best point and of their end."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from vsetune.metrics.curves import SAME_EPOCH, Curve, best_of_curve, mean_curve

_RESIDUALS = 5
"""From fewer the noise is not estimated."""
_NORMAL_QUARTILE = 0.6744897501960817
_REPEATABILITY = 1.959963984540054 * math.sqrt(2)
_ONE_SIDED = 1.6448536269514722
_END = 4
"""The end of a curve is its last quarter, and has to have as many points."""


def curve_noise(curves: Sequence[Curve]) -> float | None:
    """Standard deviation of one validation around the smooth course of its curve, in points of M-Recall.

    Of every four neighbouring points the contrast that no parabola has (their third divided difference) is taken,
    scaled to the deviation of one point: differences estimate noise without a model of the curve (Gasser, Sroka and
    Jennen-Steinmetz 1986). The median of their sizes, over all curves of one configuration, over the quartile of the
    normal distribution keeps the steep beginning out. None from fewer than five contrasts.
    """
    sizes = [abs(each) for curve in curves for each in _contrasts(curve)]
    if len(sizes) < _RESIDUALS:
        return None
    return statistics.median(sizes) / _NORMAL_QUARTILE


def noise_tolerance(noise: float) -> float:
    """Points of M-Recall that two validations of one level differ by in one of twenty cases: 2.77 deviations, the
    repeatability limit of ISO 5725-6."""
    return _REPEATABILITY * noise


def still_rises(curves: Sequence[Curve]) -> bool:
    """Whether one configuration was still getting better when it ended. curves: its seeds, at least one.

    Of the mean of those seeds that were trained longest either the best is the last point, or the line through the last
    quarter (of at least four points) rises by more than its noise explains, one-sided at 5 %, and by more than one
    deviation of a validation: with many seeds a rise is certain that moves no target.
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
