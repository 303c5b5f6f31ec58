"""What to try next in a cell: a pure function of what was tried, how it went, and the seed.

The draw is made on a copy of the history in memory. Optuna's own `ask` writes a trial, then its parameters one by one;
a process that dies in between leaves half a trial, and a resumed study would go another way than an undisturbed one.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Container, Mapping, Sequence

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from vsetune.config.spec.base import Choices, Domain
from vsetune.config.study.cells import Cell
from vsetune.config.study.study_spec import SearchSpec
from vsetune.files.hashes import sha256_hex
from vsetune.search.even_points import even_point

GP_AT_MOST = 500
"""Trials of a cell, beyond which a Gaussian process takes seconds to ask: then `gp` draws as `tpe` does."""
REFUSED = "refused"
"""Attribute of a trial whose configuration no spec accepts: why."""
TAUGHT = "taught by"
"""Attribute of a trial of another study: STUDY/TRIAL. It counts as drawn, so that less of a start is needed."""

Value = bool | int | float | str


def distributions_of(cell: Cell) -> dict[str, BaseDistribution]:
    """Optuna's form of the domains of a cell."""
    return {name: distribution_of(domain) for name, domain in cell.domains.items()}


def draw(spec: SearchSpec, cell: Cell, history: Sequence[FrozenTrial]) -> dict[str, Value]:
    """The next configuration of a cell after this history (whole trials, refused ones included, in order).

    The same history, spec and cell give the same configuration: a point of the Sobol sequence at the start, then that
    of `optuna.Study.ask` with a sampler seeded by study, cell and number.
    """
    if not cell.domains:
        return {}
    if spec.include_defaults and all(TAUGHT in trial.user_attrs for trial in history):
        return cell.defaults()
    distributions, number = distributions_of(cell), len(history)
    starting = number < startup_of(spec) + sum(REFUSED in trial.user_attrs for trial in history)
    if spec.sampler == "sobol" or (starting and spec.sampler != "random" and spec.start == "sobol"):
        return even_point(distributions, number, seed=_seed(f"{spec.seed}/{cell.name}"))
    seed = _seed(f"{spec.seed}/{cell.name}/{number}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        by_gp = spec.sampler == "gp" and number < GP_AT_MOST
        study = optuna.create_study(
            storage=_LentHistory(_finished_for_good(history) if by_gp else history), direction="maximize",
            sampler=optuna.samplers.RandomSampler(seed=seed) if starting else _sampler(spec, seed, by_gp=by_gp),
        )
        return dict(study.ask(fixed_distributions=distributions).params)


def _finished_for_good(history: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """For a sampler that learns from finished trials alone. A stopped trial counts with its best: the rules that stop
    one have seen it level off. One that failed counts as the worst that is known; refused draws are left out."""
    bests = {trial.number: max(trial.intermediate_values.values(), default=math.nan) for trial in history}
    known = [best for best in bests.values() if math.isfinite(best)]
    told: list[FrozenTrial] = []
    for trial in history:
        if REFUSED in trial.user_attrs:
            continue
        counted = copy.copy(trial)
        if trial.state == TrialState.PRUNED and known:
            best = bests[trial.number]
            counted.state, counted.value = TrialState.COMPLETE, best if math.isfinite(best) else min(known)
        told.append(counted)
    return told


def startup_of(spec: SearchSpec) -> int:
    """How many configurations are drawn before anything is learnt from them. Refused draws say nothing of what is
    good, so they end no start."""
    return max(2, min(10, spec.configurations // 3))


def _seed(name: str) -> int:
    return int(sha256_hex(name.encode())[:8], 16)


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


def _sampler(spec: SearchSpec, seed: int, *, by_gp: bool) -> optuna.samplers.BaseSampler:
    """What learns from the history; how it starts is not its own affair."""
    if spec.sampler == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    if by_gp:
        return optuna.samplers.GPSampler(seed=seed, n_startup_trials=0, deterministic_objective=False)
    return optuna.samplers.TPESampler(seed=seed, n_startup_trials=0, constant_liar=True)


def is_whole(trial: FrozenTrial, domains: Mapping[str, Domain]) -> bool:
    """Whether all its parameters were drawn. Versions before 0.2 could die in the middle of asking."""
    return set(trial.params) == set(domains)


def distribution_of(domain: Domain) -> BaseDistribution:
    """Optuna's form of a domain."""
    if isinstance(domain, Choices):
        return CategoricalDistribution(domain.choices)
    if domain.integer:
        return IntDistribution(int(domain.low), int(domain.high), log=domain.log)
    return FloatDistribution(domain.low, domain.high, log=domain.log)
