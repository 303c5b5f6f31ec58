"""The draw of an Optuna sampler after a history that it reads in place, in memory."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Container, Mapping, Sequence

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from vsetune.config.study.domains import Value


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
        """The new trial follows the whole history: a sampler excludes the trial it draws for, by number, from what it
        reads."""
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
