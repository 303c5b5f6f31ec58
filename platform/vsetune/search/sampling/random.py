"""Independent random values, uniform on the scale of each range."""

from __future__ import annotations

import optuna

from vsetune.search.sampling.optuna_asking import asked
from vsetune.search.sampling.sampler import Draw, Sampler, SearchedSpace
from vsetune.search.trial_history import TrialHistory


class RandomDraws(Sampler):
    name = "random"
    learns = False

    def draw(self, space: SearchedSpace, history: TrialHistory) -> Draw:
        sampler = optuna.samplers.RandomSampler(seed=space.seed_at(len(history)))
        return Draw(asked(sampler, space.distributions, ()), "random: at random")
