"""Robust location and scale of a stream's quiet nights; the scale also uses the other cells.

Location: mean of the nights, winsorised at `CLIP` scales from their median (one step towards Huber's (1964) estimator).
Scale: the winsorised standard deviation, made consistent for normal noise, then moderated towards the scale that the
cells of the same measure share (Smyth 2004, "Linear models and empirical Bayes methods", section 6.2). The shared scale
has more weight the fewer the nights and the more alike the cells. The scale is at least `SMALLEST_SHARE` of the
smallest change that matters, so that a history without noise raises no alarm for changes that do not matter.

Where successive nights are correlated, few nights underestimate the scale and the error of their mean. Both are
enlarged by the autocorrelation estimated from all streams of the measure.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vsetune.nightly.judging.arrays import Floats

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
