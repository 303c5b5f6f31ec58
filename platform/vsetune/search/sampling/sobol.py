"""Points that cover the space evenly, in the order of a scrambled Sobol sequence."""

from __future__ import annotations

from vsetune.search.even_points import even_point
from vsetune.search.sampling.sampler import Draw, Sampler, SearchedSpace
from vsetune.search.trial_history import TrialHistory


class EvenPoints(Sampler):
    name = "sobol"
    learns = False

    def draw(self, space: SearchedSpace, history: TrialHistory) -> Draw:
        """Draw number n of a cell is point n of the sequence, independent of earlier draws."""
        number = len(history)
        return Draw(even_point(space.distributions, number, seed=space.seed), f"sobol: even point {number}")
