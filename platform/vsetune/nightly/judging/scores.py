"""How unusual a night is, as a normal score, and how unusual it must be.

Score: Wallace's (1959) transformation of Student's t, which Hawkins (1987) uses for self-starting charts: the error of a
centre and a scale learnt from few nights is in it. Limit: the normal quantile where noise is normal; where it is not,
the quantile of a generalised Pareto tail (Pickands 1975), fitted by moments (Hosking & Wallis 1987) to the scores of all
cells of the measure that went above `ABOVE`, beside `PRIOR_SCORES` imagined scores with an exponential tail.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from vsetune.nightly.judging.arrays import Floats

ABOVE_SHARE = 0.1
ABOVE = 1.2815515655446004
"""A tenth of normal scores are above."""
PRIOR_SCORES = 100.0
PRIOR_EXCESS = 0.5
MOST_EXCESS = 15.0
"""One night says no more than this about the tail."""
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
    """What scores have been above `ABOVE`, (..., measures): all scores seen, how many were above, the sums of their
    excess and of its square."""

    seen: Floats
    above: Floats
    excess: Floats
    squares: Floats

    @classmethod
    def unseen(cls, shape: tuple[int, ...]) -> Tail:
        return cls(*(np.zeros(shape) for _ in range(4)))

    def with_scores(self, scores: Floats, members: Floats) -> Tail:
        """scores: (..., streams), NaN where there is none."""
        known = np.isfinite(scores)
        excess = np.clip(np.where(known, scores, 0.0) - ABOVE, 0.0, MOST_EXCESS)
        return Tail(self.seen + known @ members, self.above + (excess > 0) @ members, self.excess + excess @ members,
                    self.squares + excess**2 @ members)

    def limit(self, probability: Floats) -> Floats:
        """(..., measures): the score that a quiet night goes above with this probability (..., 1), 0 < it < 0.1."""
        prior = ABOVE_SHARE * PRIOR_SCORES
        above = self.above + prior
        mean = (self.excess + prior * PRIOR_EXCESS) / above
        variance = (self.squares + prior * 2 * PRIOR_EXCESS**2) / above - mean**2
        shape = np.minimum(0.5 * (1 - mean**2 / variance), 0.45)
        shape = np.where(np.abs(shape) < 1e-6, 1e-6, shape)
        times = np.log(above / (self.seen + PRIOR_SCORES) / probability)
        heavy = ABOVE + mean * (1 - shape) * np.expm1(shape * np.maximum(times, 0)) / shape
        limit: Floats = np.maximum(heavy, -ndtri(probability))
        return limit
