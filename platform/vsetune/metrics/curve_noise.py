"""Noise of validation curves, and its effect on their best point and their end."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from vsetune.metrics.curves import SAME_EPOCH, Curve, best_of_curve, mean_curve

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
