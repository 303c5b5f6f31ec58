"""The tree-structured Parzen estimator of Bergstra et al. (2011), Optuna's."""

from __future__ import annotations

from optuna.samplers import TPESampler

from vsetune.search.sampling.optuna_asking import asked
from vsetune.search.sampling.sampler import Draw, Sampler, SearchedSpace, learnt_from
from vsetune.search.trial_history import TrialHistory


class ParzenDraws(Sampler):
    name = "tpe"

    def draw(self, space: SearchedSpace, history: TrialHistory) -> Draw:
        sampler = TPESampler(seed=space.seed_at(len(history)), n_startup_trials=0, constant_liar=True)
        return Draw(asked(sampler, space.distributions, history), f"tpe: model of {learnt_from(history)}")
