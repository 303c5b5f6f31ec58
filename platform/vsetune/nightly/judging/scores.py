"""How unusual a night is, as a normal score, and how unusual it must be.

Score: Wallace's (1959) transformation of Student's t, which Hawkins (1987) uses for self-starting charts: the error of
a centre and a scale learnt from few nights is in it. Limit: the normal quantile where noise is normal; where it is
not, the quantile of a generalised Pareto tail (Pickands 1975), fitted by moments (Hosking & Wallis 1987) to the scores
above `ABOVE` of all cells of the measure, beside some of the whole report and `PRIOR_SCORES` imagined ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from vsetune.nightly.judging.arrays import Floats

ABOVE = 1.2815515655446004
"""A tenth of normal scores are above."""
PRIOR_SCORES = 200.0
PRIOR_TAIL = (1.0, 0.1, 0.1 * 0.5, 0.1 * 0.6)
"""Of an imagined score: itself, above, excess and its square. Heavier than normal scores (0.1 * 0.47, 0.1 * 0.39)."""
BORROWED_SCORES = 2000.0
MOST_EXCESS = 15.0
"""One score says no more than this about the tail."""
HEAVIEST = 0.45
"""Shape of a Pareto tail: moments know no heavier one than 0.5."""
FURTHEST = 1e9


def normal_score(students_t: Floats, freedom: Floats) -> Floats:
    """The normal score that is as unusual as a value of Student's t with these degrees of freedom (at least 1)."""
    nu = np.maximum(freedom, 1.0)
    t = np.clip(students_t, -FURTHEST, FURTHEST)
    score: Floats = np.sign(t) * (8 * nu + 1) / (8 * nu + 3) * np.sqrt(nu * np.log1p(t**2 / nu))
    return score


def students_t(score: Floats, freedom: Floats) -> Floats:
    """The way back; score >= 0."""
    nu = np.maximum(freedom, 1.0)
    exponent = np.minimum((score * (8 * nu + 3) / (8 * nu + 1)) ** 2 / nu, 2 * np.log(FURTHEST))
    t: Floats = np.sqrt(nu * np.expm1(exponent))
    return t


@dataclass(frozen=True)
class Tail:
    """Scores, and how far they were above `ABOVE`. sums: (4, ..., measures), the number of scores, of those above, the
    sum of their excess and that of its squares."""

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
        """(..., streams), in scales: what a quiet night goes beyond with this probability, (..., measures).

        Where noise is normal that is a quantile of Student's t; it is stretched by as much as the limit of scores is.
        Turned back into t itself, a heavy limit would grow without end: no night, however slow, would be beyond it.
        members: (streams, measures). freedom: (..., streams).
        """
        usual = -ndtri(probability)
        stretch = (self.limit(probability) / usual) @ members.T
        far: Floats = students_t(usual @ members.T, freedom) * stretch
        return far

    def limit(self, probability: Floats) -> Floats:
        """(..., measures): the score that a quiet night goes above with this probability, 0 < it < 0.1, (..., measures)
        or (..., 1).

        From the scores of the measure, at most `BORROWED_SCORES` of the whole report, and the imagined ones.
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
