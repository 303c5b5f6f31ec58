"""Samplers that ignore earlier trials: random values, and points that cover the space evenly."""

from __future__ import annotations

import optuna

from vsetune.search.sampling.optuna_asking import asked
from vsetune.search.sampling.sampler import Draw, Sampler, SearchedSpace, even_point
from vsetune.search.trial_history import TrialHistory


class RandomDraws(Sampler):
    name = "random"
    learns = False

    def draw(self, space: SearchedSpace, history: TrialHistory) -> Draw:
        sampler = optuna.samplers.RandomSampler(seed=space.seed_at(len(history)))
        return Draw(asked(sampler, space.distributions, ()), "random: at random")


class EvenPoints(Sampler):
    name = "sobol"
    learns = False

    def draw(self, space: SearchedSpace, history: TrialHistory) -> Draw:
        """Draw number n of a cell is point n of the sequence, independent of earlier draws."""
        number = len(history)
        return Draw(even_point(space.distributions, number, seed=space.seed), f"sobol: even point {number}")
