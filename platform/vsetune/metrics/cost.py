"""Seconds per epoch against the number of training pairs: the straight line of LSEH Fig. 6."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class LineFit:
    """seconds = slope * pairs + intercept, by least squares.

    r_squared: 0 to 1, share of the variance explained. largest_residual: seconds, always positive.
    """

    slope: float
    intercept: float
    r_squared: float
    largest_residual: float


def fit_seconds(pairs: Sequence[float], seconds: Sequence[float]) -> LineFit:
    """Line through the seconds of an epoch over its pairs (or any unit of n; the slope is per unit).

    Raises ValueError for lists of different length, fewer than two different sizes, or a number that is not finite.
    """
    if len(pairs) != len(seconds) or len(set(pairs)) < 2:
        raise ValueError(
            f"fit: got {len(pairs)} sizes, {len(set(pairs))} different, and {len(seconds)} times; "
            "need one time per size and two different sizes"
        )
    broken = sum(not math.isfinite(number) for number in (*pairs, *seconds))
    if broken:
        raise ValueError(f"fit: got {broken} numbers that are not finite, need all finite")
    mean_size, mean_time = math.fsum(pairs) / len(pairs), math.fsum(seconds) / len(seconds)
    sizes, times = [n - mean_size for n in pairs], [t - mean_time for t in seconds]
    slope = math.fsum(n * t for n, t in zip(sizes, times, strict=True)) / math.fsum(n * n for n in sizes)
    residuals = [t - slope * n for n, t in zip(sizes, times, strict=True)]
    variation = math.fsum(t * t for t in times)
    return LineFit(
        slope=slope, intercept=mean_time - slope * mean_size,
        r_squared=1 - math.fsum(r * r for r in residuals) / variation if variation else 1.0,
        largest_residual=max(abs(r) for r in residuals),
    )
