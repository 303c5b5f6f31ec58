"""Samplers of Optuna: random values, every combination, the tree-structured Parzen estimator, a Gaussian process; and
Sobol points."""

from __future__ import annotations

import copy
import math
import statistics
import warnings
from collections.abc import Container, Mapping, Sequence

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState
from threadpoolctl import threadpool_limits

from vsetune.config.study.domains import Value
from vsetune.search.sampling.sampler import Sample, Sampler, SearchedSpace, even_point, learnt_from
from vsetune.search.trial_history import REFUSED, TrialHistory, worth_of


def asked(
    sampler: BaseSampler, distributions: Mapping[str, BaseDistribution], history: Sequence[FrozenTrial]
) -> dict[str, Value]:
    """The configuration that `optuna.Study.ask` gives with this sampler after these trials, which are not modified."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study = optuna.create_study(storage=_LentHistory(history), direction="maximize", sampler=sampler)
        return dict(study.ask(fixed_distributions=dict(distributions)).params)


class _LentHistory(optuna.storages.InMemoryStorage):
    """A study in memory whose earlier trials are those of `history`, read in place. One study, one new trial.

    `Study.add_trials` copies every trial completely at every draw; with hundreds of trials this took most of the time.
    """

    def __init__(self, history: Sequence[FrozenTrial]) -> None:
        super().__init__()
        self._lent = history

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """The new trial gets the number after the last one. A sampler leaves out the trial with its own number, so this
        number must be free."""
        trial_id = super().create_new_trial(study_id, template_trial)
        if self._lent:
            self.get_trial(trial_id).number += self._lent[-1].number + 1
        return trial_id

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        trials = [trial for trial in self._lent if states is None or trial.state in states]
        own = super().get_all_trials(study_id, deepcopy=deepcopy, states=states)
        return [*(copy.deepcopy(trials) if deepcopy else trials), *own]


class RandomDraws(Sampler):
    name = "random"
    learns = False

    def draw(self, space: SearchedSpace, history: TrialHistory) -> Sample:
        sampler = optuna.samplers.RandomSampler(seed=space.seed_at(len(history)))
        return asked(sampler, space.distributions, ()), "random: at random"


class GridDraws(Sampler):
    """Every combination of choices and whole numbers, in random order."""

    name = "grid"
    learns = False

    def draw(self, space: SearchedSpace, history: TrialHistory) -> Sample:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.BruteForceSampler(seed=space.seed_at(len(history)))
        tried = [copy.copy(trial) for trial in history]
        for trial in tried:  # all with every setting, in one order
            trial.params, trial.distributions = space.filled(trial.params), dict(space.distributions)
        return asked(sampler, space.distributions, tried), "grid: a combination not tried before"


class EvenPoints(Sampler):
    name = "sobol"
    learns = False

    def draw(self, space: SearchedSpace, history: TrialHistory) -> Sample:
        """Draw number n of a cell is point n of the sequence, independent of earlier draws."""
        number = len(history)
        point = even_point(space.distributions, number, seed_name=space.shared_seed_name)
        return point, f"sobol: even point {number}"


class ParzenDraws(Sampler):
    """The tree-structured Parzen estimator of Bergstra et al. (2011)."""

    name = "tpe"

    def draw(self, space: SearchedSpace, history: TrialHistory) -> Sample:
        sampler = TPESampler(seed=space.seed_at(len(history)), n_startup_trials=0, constant_liar=True)
        return asked(sampler, space.distributions, history), f"tpe: model of {learnt_from(history)}"


GP_AT_MOST = 500
"""Most trials of a cell for the Gaussian process, which then takes seconds for a draw; beyond, `gp` draws as `tpe`
does."""


class GaussianProcessDraws(Sampler):
    """A Gaussian process over the trials so far: the point with the largest log expected improvement, with imagined
    results for running trials. It needs the fewest trials.

    It computes with one thread. Its matrices are small, and threads that share them wait for one another when trials
    train on the other cores: a draw took 0.2 s while a free worker waited for it, and takes 0.03 s with one thread. One
    thread also gives the same draw on machines with other numbers of cores.
    """

    name = "gp"
    insists = True

    def __init__(self) -> None:
        self._beyond = ParzenDraws()

    def draw(self, space: SearchedSpace, history: TrialHistory) -> Sample:
        number = len(history)
        if number >= GP_AT_MOST:
            configuration, why = self._beyond.draw(space, history)
            return configuration, f"gp: beyond {GP_AT_MOST} trials as {why}"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.GPSampler(
                seed=space.seed_at(number), n_startup_trials=0, deterministic_objective=False,
            )
        learnt = _filled(_finished_for_good(history), space)
        with threadpool_limits(1):
            configuration = asked(sampler, space.distributions, learnt)
        return configuration, f"gp: model of {learnt_from(history)}"


def _finished_for_good(history: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """The history for a sampler that learns only from finished trials. A stopped trial counts with its best value,
    because stopping rules let it level off first. A failed one counts as the median of the others. If it
    counted as the worst, one failure by chance would keep the sampler from a good region. Refused draws are left out.
    """
    known = [worth for trial in history if math.isfinite(worth := worth_of(trial))]
    median = statistics.median(known) if known else math.nan
    found: list[FrozenTrial] = []
    for trial in history:
        if REFUSED in trial.user_attrs:
            continue
        counted = copy.copy(trial)
        if trial.state == TrialState.PRUNED and known:
            worth = worth_of(trial)
            counted.state, counted.value = TrialState.COMPLETE, worth if math.isfinite(worth) else median
        found.append(counted)
    return found


def _filled(trials: Sequence[FrozenTrial], space: SearchedSpace) -> list[FrozenTrial]:
    """The process models all settings, each over one range: a trial in which a setting had no effect counts with its
    default. Modifies copies."""
    for trial in trials:
        if trial.distributions != space.distributions:
            trial.params, trial.distributions = space.filled(trial.params), dict(space.distributions)
    return list(trials)
