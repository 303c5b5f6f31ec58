"""Values as judged, and robust location and scale of a stream's quiet nights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vsetune.nightly.night import Measure

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]

LARGEST = 1e100
"""Values further from 0 count as missing: their squares could overflow."""


def of_all_cells(name: str) -> str:
    """Name of the mean over all cells of a measure."""
    return f"{name} of all cells"


@dataclass(frozen=True)
class Streams:
    """The judged streams, one entry per stream. sign: +1 where higher is worse. is_ratio: judged in logarithms.
    smallest: smallest change that matters (as judged, > 0). measure: number of its measure, 0 to measures - 1. whole:
    index of the stream that is the mean over all cells of its measure, -1 for none."""

    sign: Floats
    is_ratio: Bools
    smallest: Floats
    measure: Integers
    whole: Integers

    @classmethod
    def of(cls, measures: Sequence[Measure], smallest: Sequence[float]) -> Streams:
        each = [measure.name for measure in measures]
        names = sorted(set(each))
        return cls(
            sign=np.array([1.0 if measure.worse == "higher" else -1.0 for measure in measures], dtype=np.float64),
            is_ratio=np.array([measure.scale == "ratio" for measure in measures], dtype=np.bool_),
            smallest=np.array(smallest, dtype=np.float64),
            measure=np.array([names.index(name) for name in each], dtype=np.int64),
            whole=np.array([each.index(name) if name in each else -1 for name in map(of_all_cells, each)], np.int64),
        )

    @property
    def members(self) -> Floats:
        """(streams, measures), 1 where a stream belongs to a measure."""
        return np.eye(int(self.measure.max(initial=-1)) + 1)[self.measure]

    def judged(self, values: Floats) -> Floats:
        """(..., streams) in units of the measures, to values as judged; infinities and ratios <= 0 become NaN."""
        known = np.isfinite(values) & (np.abs(np.where(np.isfinite(values), values, 0.0)) <= LARGEST)
        known &= ~self.is_ratio | (np.where(known, values, 0.0) > 0)
        plain = np.where(known, values, np.nan)
        logarithms = np.log(np.where(known & self.is_ratio, values, 1.0))
        return np.where(self.is_ratio & known, logarithms, plain) * self.sign

    def in_units(self, judged: Floats) -> Floats:
        """Inverse of `judged`."""
        plain = judged * self.sign
        return np.where(self.is_ratio, np.exp(np.clip(np.where(self.is_ratio, plain, 0.0), -700, 700)), plain)

    def change_in_units(self, difference: Floats) -> Floats:
        """A difference of judged values, in the unit where linear, as a fraction where ratio; positive is higher."""
        plain = difference * self.sign
        return np.where(self.is_ratio, np.expm1(np.clip(np.where(self.is_ratio, plain, 0.0), -700, 700)), plain)


CLIP = 2.5
WINSORISED_VARIANCE = 0.9776
"""Variance of a standard normal value, winsorised at CLIP."""
SMALLEST_SHARE = 1 / 8
MOST_SHARED_FREEDOM = 12.0
"""Largest number of degrees of freedom that the shared scale may have, so that a cell's own nights can outweigh it."""
FEWEST_CELLS = 3
"""Fewer cells than these share no scale."""
IMAGINED_NIGHTS, DOUBT = 7.0, 0.5
"""Autocorrelation is shrunk as if IMAGINED_NIGHTS more nights had none, then reduced by DOUBT standard errors."""
MOST_ALIKE = 0.8
"""Largest autocorrelation that is used."""
LEAST_LEFT = 0.4
"""Smallest share of the variance that a few nights are taken to show, however correlated they are."""


@dataclass(frozen=True)
class Noise:
    """Noise of quiet nights, as judged. Fields are (..., streams): centre (NaN without nights), scale (> 0), degrees of
    freedom of the scale (>= 0), number of nights used. autocorrelation: of successive nights, 0 to `MOST_ALIKE`."""

    centre: Floats
    scale: Floats
    freedom: Floats
    nights: Floats
    autocorrelation: Floats

    @property
    def of_a_night(self) -> Floats:
        """Scale of one more night around the centre: its own noise and the error of the centre."""
        return self.scale * np.sqrt(1 + self.inflation / np.maximum(self.nights, 1))

    @property
    def inflation(self) -> Floats:
        """Variance of a mean of many nights, divided by that of as many independent ones (Bayley & Hammersley 1946)."""
        return (1 + self.autocorrelation) / (1 - self.autocorrelation)


def noise(quiet: Floats, smallest: Floats, members: Floats, remembered: Floats | None = None) -> Noise:
    """Estimates the noise. quiet: (..., streams, nights), NaN where a night does not count. smallest: (streams,).
    members: (streams, measures). remembered: as quiet, the nights from which autocorrelation is estimated; None: nights
    are taken as independent."""
    nights = np.isfinite(quiet).sum(axis=-1).astype(np.float64)
    middle = median(quiet)
    spread = 1.4826 * (1 + 1 / np.maximum(nights, 1)) * median(np.abs(quiet - middle[..., None]))
    reach = CLIP * np.fmax(spread, SMALLEST_SHARE * smallest)[..., None]
    inside = np.clip(quiet, middle[..., None] - reach, middle[..., None] + reach)
    at_least_one = np.maximum(nights, 1)
    centre = np.where(nights > 0, np.nansum(inside, axis=-1) / at_least_one, np.nan)
    squares = np.nansum((inside - centre[..., None]) ** 2, axis=-1)
    variance = squares / np.maximum(nights - 1, 1) / WINSORISED_VARIANCE
    least = (SMALLEST_SHARE * smallest) ** 2
    alike = np.zeros_like(variance)
    if remembered is not None:
        scale = np.sqrt(np.maximum(variance, least))[..., None]
        alike = autocorrelation(np.clip((remembered - centre[..., None]) / scale, -CLIP, CLIP), members)
    variance = variance / np.maximum(1 - 2 * alike / (1 - alike) / np.maximum(nights - 1, 1), LEAST_LEFT)
    freedom = np.maximum(nights - 1, 0) * (1 - alike**2) / (1 + alike**2)
    moderated, freedom = _moderated(np.maximum(variance, least), freedom, members)
    return Noise(centre, np.sqrt(np.maximum(moderated, least)), freedom, nights, alike)


def autocorrelation(away: Floats, members: Floats) -> Floats:
    """(..., streams): autocorrelation of successive nights, equal for all streams of a measure, 0 to `MOST_ALIKE`.

    away: (..., streams, nights), distance from the centre in scales, NaN where a night does not count. The bias of few
    nights is removed (Marriott & Pope 1954). Only the part that exceeds `DOUBT` standard errors is returned, so white
    noise hardly widens the limits.
    """
    known = np.isfinite(away)
    are_pairs = known[..., 1:] & known[..., :-1]
    values = np.where(known, away, 0.0)
    products = (values[..., 1:] * values[..., :-1] * are_pairs).sum(axis=-1) @ members
    squares = (values**2).sum(axis=-1) @ members
    pairs, nights = (each.sum(axis=-1).astype(np.float64) @ members for each in (are_pairs, known))
    seen = products / np.maximum(pairs, 1) / np.maximum(squares / np.maximum(nights, 1), 1e-300)
    count = pairs / np.maximum(are_pairs.any(axis=-1) @ members, 1)
    unbiased = (count * seen + 1) / np.maximum(count - 3, 1)
    believed = unbiased * count / (count + IMAGINED_NIGHTS) - DOUBT / np.sqrt(np.maximum(count, 1))
    alike: Floats = np.clip(believed, 0.0, MOST_ALIKE) @ members.T
    return alike


def median(values: Floats) -> Floats:
    """Median over the last axis of the finite entries; NaN where none is."""
    if not values.shape[-1]:
        return np.full(values.shape[:-1], np.nan)
    ordered = np.sort(values, axis=-1)  # NaN last
    count = np.isfinite(values).sum(axis=-1)[..., None]
    low = np.take_along_axis(ordered, np.maximum(count - 1, 0) // 2, axis=-1)
    high = np.take_along_axis(ordered, np.minimum(count // 2, values.shape[-1] - 1), axis=-1)
    middle: Floats = (low + high)[..., 0] / 2
    return middle


def _moderated(variance: Floats, freedom: Floats, members: Floats) -> tuple[Floats, Floats]:
    """Variance and degrees of freedom, moderated towards the variance that the cells of a measure share."""
    counts = freedom > 0
    own = np.maximum(freedom, 1)
    logarithm = np.where(counts, np.log(variance) + 1 / own + 1 / (3 * own**2), 0.0)
    cells = counts @ members
    enough = np.maximum(cells, 1)
    mean = logarithm @ members / enough
    around = np.where(counts, logarithm - mean @ members.T, 0.0)
    scatter = around**2 @ members / np.maximum(cells - 1, 1)
    half = own / 2
    expected = np.where(counts, 1 / half + 1 / (2 * half**2) + 1 / (6 * half**3), 0.0) @ members / enough
    unlike = np.maximum(scatter - expected, 2 / MOST_SHARED_FREEDOM)
    solved = np.minimum(1 + 2 / unlike, 2.2 / np.sqrt(unlike))  # trigamma(solved / 2) is about unlike
    shared_freedom = np.where(cells >= FEWEST_CELLS, solved, 0.0)
    shared_freedom = np.minimum(shared_freedom, MOST_SHARED_FREEDOM)
    floor = np.maximum(shared_freedom, 0.1)
    shared = np.exp(mean - 1 / floor - 1 / (3 * floor**2))
    weight = shared_freedom @ members.T
    total = weight + freedom
    moderated = (weight * (shared @ members.T) + freedom * variance) / np.maximum(total, 1)
    return np.where(total > 0, moderated, variance), total
