"""Normal scores of nights, their cumulative sums, and the limits for both."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from scipy.special import ndtri

from vsetune.nightly.judging.noise import Floats
from vsetune.nightly.night import Measure

ABOVE = 1.2815515655446004
"""Exceeded by a tenth of normal scores."""
PRIOR_SCORES = 200.0
PRIOR_TAIL = (1.0, 0.1, 0.1 * 0.5, 0.1 * 0.6)
"""`Tail.sums` of one imagined score: count, count above, excess, squared excess. Heavier than normal scores
(0.1 * 0.47, 0.1 * 0.39)."""
BORROWED_SCORES = 2000.0
MOST_EXCESS = 15.0
"""Largest excess that one score adds to the tail."""
HEAVIEST = 0.45
"""Largest shape of the Pareto tail; fitting by moments needs a shape below 0.5."""
FURTHEST = 1e9


def normal_score(students_t: Floats, freedom: Floats) -> Floats:
    """The normal score that is as unusual as a value of Student's t with these degrees of freedom (at least 1)."""
    nu = np.maximum(freedom, 1.0)
    t = np.clip(students_t, -FURTHEST, FURTHEST)
    score: Floats = np.sign(t) * (8 * nu + 1) / (8 * nu + 3) * np.sqrt(nu * np.log1p(t**2 / nu))
    return score


def students_t(score: Floats, freedom: Floats) -> Floats:
    """Inverse of `normal_score`; score >= 0."""
    nu = np.maximum(freedom, 1.0)
    exponent = np.minimum((score * (8 * nu + 3) / (8 * nu + 1)) ** 2 / nu, 2 * np.log(FURTHEST))
    t: Floats = np.sqrt(nu * np.expm1(exponent))
    return t


@dataclass(frozen=True)
class Tail:
    """Scores and their excess above `ABOVE`. sums: (4, ..., measures): number of scores, number above, sum of the
    excess, sum of its squares."""

    sums: Floats

    @classmethod
    def unseen(cls, shape: tuple[int, ...]) -> Tail:
        return cls(np.zeros((4, *shape)))

    def with_scores(self, scores: Floats, members: Floats) -> Tail:
        """scores: (..., streams), NaN where there is none. members: (streams, measures)."""
        known = np.isfinite(scores)
        excess = np.clip(np.where(known, scores, 0.0) - ABOVE, 0.0, MOST_EXCESS)
        return Tail(self.sums + np.stack([known, excess > 0, excess, excess**2]) @ members)

    def reach(self, probability: Floats, members: Floats, freedom: Floats) -> Floats:
        """(..., streams), in scales: the distance that a quiet night exceeds with this probability.

        Where noise is normal this is a quantile of Student's t. It is stretched by the same factor as the limit of
        scores. A heavy limit transformed back to t would grow without bound, so that no night could exceed it.
        probability: (..., measures). members: (streams, measures). freedom: (..., streams).
        """
        usual = -ndtri(probability)
        stretch = (self.limit(probability) / usual) @ members.T
        far: Floats = students_t(usual @ members.T, freedom) * stretch
        return far

    def limit(self, probability: Floats) -> Floats:
        """(..., measures): the score that a quiet night exceeds with this probability.

        probability: (..., measures) or (..., 1), above 0 and below 0.1. Estimated from the scores of the measure, at
        most `BORROWED_SCORES` of the whole report, and the imagined ones.
        """
        whole = self.sums.sum(axis=-1, keepdims=True)
        borrowed = whole * np.minimum(1.0, BORROWED_SCORES / np.maximum(whole[0], 1.0))
        imagined = np.reshape(PRIOR_SCORES * np.array(PRIOR_TAIL), (4, *[1] * (whole.ndim - 1)))
        seen, above, excess, squares = self.sums + borrowed + imagined
        mean = excess / above
        shape = np.minimum(0.5 * (1 - mean**2 / (squares / above - mean**2)), HEAVIEST)
        shape = np.where(np.abs(shape) < 1e-6, 1e-6, shape)
        times = np.maximum(np.log(above / seen / probability), 0.0)
        heavy = ABOVE + mean * (1 - shape) * np.expm1(shape * times) / shape
        limit: Floats = np.maximum(heavy, -ndtri(probability))
        return limit


LEAST_ALLOWANCE, MOST_ALLOWANCE = 0.25, 1.0


def allowance(smallest: Floats, scale: Floats) -> Floats:
    """Half the change that matters, in scores, which finds a change of that size fastest (Moustakides 1986)."""
    return np.clip(smallest / (2 * scale), LEAST_ALLOWANCE, MOST_ALLOWANCE)


def limit(allowance: Floats, nights: Floats) -> Floats:
    """Limit of the sum that one stream of quiet nights exceeds once in `nights` on average.

    Siegmund (1985), "Sequential Analysis", eq. 2.57: nights = (exp(2 k b) - 2 k b - 1) / (2 k^2), b = limit + 1.166.
    """
    target = 2 * allowance**2 * nights
    exponent = np.log1p(target)
    for _ in range(12):
        exponent = np.log1p(exponent + target)
    height: Floats = np.maximum(exponent / (2 * allowance) - 1.166, 0.0)
    return height


@dataclass(frozen=True)
class Tolerance:
    """The promise of a report, independent of the number of its cells and measures.

    false_alarm_nights: one false alarm in so many nights, over the whole report, > 1. baseline_nights: nights with a
    value before a stream is judged, >= 2. smallest_change: by name of a measure, overrides the measure's default; in
    its unit where linear, a fraction where ratio; > 0. Raises ValueError for other values.
    """

    false_alarm_nights: float = 30.0
    baseline_nights: int = 7
    smallest_change: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.false_alarm_nights) and self.false_alarm_nights > 1):
            raise ValueError(f"false_alarm_nights: got {self.false_alarm_nights}, need a number of nights above 1")
        if self.baseline_nights < 2:
            raise ValueError(f"baseline_nights: got {self.baseline_nights}, need at least 2 nights to see any noise")
        for name, change in self.smallest_change.items():
            if not (math.isfinite(change) and change > 0):
                raise ValueError(f"smallest_change.{name}: got {change}, need a number above 0")

    def change_that_matters(self, measure: Measure) -> float:
        """Smallest change of this measure that matters, as judged: in its unit where linear, in logarithms where ratio.
        """
        change = self.smallest_change.get(measure.name, measure.smallest_change)
        return math.log1p(change) if measure.scale == "ratio" else change
