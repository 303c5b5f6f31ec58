"""A Gaussian process over the trials so far, Optuna's: the point with the largest log expected improvement, with
imagined results for running trials. It needs the fewest trials.

It computes with one thread. Its matrices are small, and threads that share them wait for one another when trials train
on the other cores: a draw took 0.2 s while a free worker waited for it, and takes 0.03 s with one thread. One thread
also gives the same draw on machines with other numbers of cores.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Sequence

import optuna
from optuna.trial import FrozenTrial, TrialState
from threadpoolctl import threadpool_limits

from vsetune.search.sampling.optuna_asking import asked
from vsetune.search.sampling.sampler import Draw, Sampler, SearchedSpace, learnt_from
from vsetune.search.sampling.tpe import ParzenDraws
from vsetune.search.trial_history import REFUSED, TrialHistory, worth_of

GP_AT_MOST = 500
"""Most trials of a cell for the Gaussian process, which then takes seconds for a draw; beyond, `gp` draws as `tpe`
does."""


class GaussianProcessDraws(Sampler):
    name = "gp"
    insists = True

    def __init__(self) -> None:
        self._beyond = ParzenDraws()

    def draw(self, space: SearchedSpace, history: TrialHistory) -> Draw:
        number = len(history)
        if number >= GP_AT_MOST:
            drawn = self._beyond.draw(space, history)
            return Draw(drawn.configuration, f"gp: beyond {GP_AT_MOST} trials as {drawn.why}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.GPSampler(
                seed=space.seed_at(number), n_startup_trials=0, deterministic_objective=False,
            )
        told = _filled(_finished_for_good(history), space)
        with threadpool_limits(1):
            configuration = asked(sampler, space.distributions, told)
        return Draw(configuration, f"gp: model of {learnt_from(history)}")


def _finished_for_good(history: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """The history for a sampler that learns only from finished trials. A stopped trial counts with its best value,
    because stopping rules let it level off first. A failed one counts as the worst known; refused draws are left out.
    """
    known = [worth for trial in history if math.isfinite(worth := worth_of(trial))]
    told: list[FrozenTrial] = []
    for trial in history:
        if REFUSED in trial.user_attrs:
            continue
        counted = copy.copy(trial)
        if trial.state == TrialState.PRUNED and known:
            worth = worth_of(trial)
            counted.state, counted.value = TrialState.COMPLETE, worth if math.isfinite(worth) else min(known)
        told.append(counted)
    return told


def _filled(trials: Sequence[FrozenTrial], space: SearchedSpace) -> list[FrozenTrial]:
    """The process models all settings: a trial in which a setting had no effect counts with its default. Modifies
    copies."""
    for trial in trials:
        if len(trial.params) < len(space.distributions):
            trial.params, trial.distributions = space.filled(trial.params), dict(space.distributions)
    return list(trials)
