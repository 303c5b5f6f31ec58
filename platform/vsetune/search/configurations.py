"""Which configurations of a cell to try: one Optuna study per cell, in one durable storage.

Cells are searched separately on purpose: each gets the same number of configurations and its own history, so no
loss is tried more often because another one started slowly (docs/decisions/0002).
"""

from __future__ import annotations

import hashlib
import logging
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from vsetune.config.base import Choices, Domain
from vsetune.config.cells import Cell
from vsetune.config.secrets import masked, shown_url
from vsetune.config.study import SearchSpec
from vsetune.errors import StorageError

Outcome = Literal["finished", "pruned", "failed"]
_STATES = {"finished": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}

logging.getLogger("optuna").setLevel(logging.WARNING)


@dataclass(frozen=True)
class Suggestion:
    """Configuration `number` (from 0) of a cell. is_open: its outcome has not been told yet."""

    cell: str
    number: int
    configuration: Mapping[str, bool | int | float | str]
    is_open: bool


class ConfigurationSearch:
    """Asks for configurations and is told how they went; survives `kill -9` because every call is stored at once.

    Not thread-safe; one process per study may write.
    """

    def __init__(self, study: str, cells: list[Cell], spec: SearchSpec, *, storage: str) -> None:
        """storage: an Optuna storage URL. StorageError if it cannot be opened."""
        self._spec = spec
        self._cells = {cell.name: cell for cell in cells}
        try:
            backend = optuna.storages.RDBStorage(storage)
            self._studies = {
                cell.name: optuna.create_study(
                    storage=backend, study_name=f"{study}/{cell.name}", direction="maximize", load_if_exists=True,
                )
                for cell in cells
            }
        except Exception as error:  # the driver of any SQL database may raise anything here
            cause = masked(" ".join(str(error).split()))
            raise StorageError(
                f"search.storage: cannot open {shown_url(storage)} ({cause}); need an Optuna storage URL"
            ) from error

    def suggestions(self, cell: str) -> list[Suggestion]:
        """Every configuration asked so far, in order.

        One whose parameters are not all drawn is left out: the process died while it was being asked for.
        """
        wanted = set(self._cells[cell].domains)
        trials = self._studies[cell].get_trials(deepcopy=False)
        return [self._suggestion(cell, trial) for trial in trials if set(trial.params) == wanted]

    def ask(self, cell: str) -> Suggestion:
        """The next configuration of a cell. The same history and seed give the same configuration."""
        study, space = self._studies[cell], self._cells[cell]
        number = len(study.get_trials(deepcopy=False))
        study.sampler = self._sampler(cell, number)
        if number == 0 and self._spec.include_defaults and space.domains:
            study.enqueue_trial(space.defaults())
        distributions = {name: _distribution(domain) for name, domain in space.domains.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            trial = study.ask(fixed_distributions=distributions)
        return self._suggestion(cell, study.get_trials(deepcopy=False)[trial.number])

    def report(self, cell: str, number: int, *, step: int, m_recall: float) -> None:
        """Keeps one point of the curve, so that a pruned configuration still informs the sampler."""
        trial = self._trial(cell, number)
        if not trial.state.is_finished() and step not in trial.intermediate_values:
            optuna.trial.Trial(self._studies[cell], trial._trial_id).report(m_recall, step)

    def tell(self, cell: str, number: int, outcome: Outcome, *, best_m_recall: float | None) -> None:
        """How a configuration went; best_m_recall is the maximum of its curve. Telling twice changes nothing."""
        if outcome == "finished" and best_m_recall is None:
            outcome = "failed"
        values = best_m_recall if outcome == "finished" else None
        self._studies[cell].tell(number, values, state=_STATES[outcome], skip_if_finished=True)

    def _sampler(self, cell: str, number: int) -> optuna.samplers.BaseSampler:
        digest = hashlib.sha256(f"{self._spec.seed}/{cell}/{number}".encode()).digest()
        seed = int.from_bytes(digest[:4], "big")
        if self._spec.sampler == "random":
            return optuna.samplers.RandomSampler(seed=seed)
        startup = max(2, min(10, self._spec.configurations // 3))
        return optuna.samplers.TPESampler(seed=seed, n_startup_trials=startup, constant_liar=True)

    def _trial(self, cell: str, number: int) -> FrozenTrial:
        return self._studies[cell].get_trials(deepcopy=False)[number]

    @staticmethod
    def _suggestion(cell: str, trial: FrozenTrial) -> Suggestion:
        return Suggestion(cell, trial.number, dict(trial.params), is_open=not trial.state.is_finished())


def _distribution(domain: Domain) -> BaseDistribution:
    if isinstance(domain, Choices):
        return CategoricalDistribution(domain.choices)
    if domain.integer:
        return IntDistribution(int(domain.low), int(domain.high), log=domain.log)
    return FloatDistribution(domain.low, domain.high, log=domain.log)
