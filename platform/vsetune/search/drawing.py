"""What to try next in a cell: a pure function of what was tried, how it went, and the seed.

The draw is made on a copy of the history in memory. Optuna's own `ask` writes a trial, then its parameters one by one;
a process that dies in between leaves half a trial, and a resumed study would go another way than an undisturbed one.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Container, Mapping, Sequence

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from vsetune.config.spec.base import Choices, Domain
from vsetune.config.study.cells import Cell
from vsetune.config.study.study_spec import SearchSpec
from vsetune.files.hashes import sha256_hex

REFUSED = "refused"
"""Attribute of a trial whose configuration no spec accepts: why."""

Value = bool | int | float | str


def distributions_of(cell: Cell) -> dict[str, BaseDistribution]:
    """Optuna's form of the domains of a cell."""
    return {name: _distribution(domain) for name, domain in cell.domains.items()}


def draw(spec: SearchSpec, cell: Cell, history: Sequence[FrozenTrial]) -> dict[str, Value]:
    """The next configuration of a cell after this history (whole trials, refused ones included, in order).

    The same history, spec and cell give the same configuration, that of `optuna.Study.ask` with the sampler's seed.
    """
    if not cell.domains:
        return {}
    if not history and spec.include_defaults:
        return cell.defaults()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study = optuna.create_study(
            storage=_LentHistory(history), direction="maximize", sampler=_sampler(spec, cell.name, history),
        )
        return dict(study.ask(fixed_distributions=distributions_of(cell)).params)


class _LentHistory(optuna.storages.InMemoryStorage):
    """A study in memory whose earlier trials are those of `history`, read where they are. One study, one new trial.

    `Study.add_trials` copies every trial whole, at every draw; nothing else took as long once there were hundreds.
    """

    def __init__(self, history: Sequence[FrozenTrial]) -> None:
        super().__init__()
        self._lent = history

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """It comes after the whole history: a sampler leaves out of what it reads the trial it draws for, by number."""
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


def _sampler(spec: SearchSpec, cell: str, history: Sequence[FrozenTrial]) -> optuna.samplers.BaseSampler:
    """Seeded by study, cell and number. Refused draws say nothing of what is good, so they end no random start."""
    seed = int(sha256_hex(f"{spec.seed}/{cell}/{len(history)}".encode())[:8], 16)
    if spec.sampler == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    startup = max(2, min(10, spec.configurations // 3)) + sum(REFUSED in trial.user_attrs for trial in history)
    return optuna.samplers.TPESampler(seed=seed, n_startup_trials=startup, constant_liar=True)


def is_whole(trial: FrozenTrial, domains: Mapping[str, Domain]) -> bool:
    """Whether all its parameters were drawn. Versions before 0.2 could die in the middle of asking."""
    return set(trial.params) == set(domains)


def _distribution(domain: Domain) -> BaseDistribution:
    if isinstance(domain, Choices):
        return CategoricalDistribution(domain.choices)
    if domain.integer:
        return IntDistribution(int(domain.low), int(domain.high), log=domain.log)
    return FloatDistribution(domain.low, domain.high, log=domain.log)
