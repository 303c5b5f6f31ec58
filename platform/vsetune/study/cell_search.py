"""One cell of a running study: its trials, what its search may still ask for, and what confirms its winner.

Everything follows from the trials whenever it is asked for. Only what a trial that has ended came to is computed once,
since such a trial stays as it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from vsetune.board.search_budgets import recorded_budget
from vsetune.config.study.cells import Cell
from vsetune.config.study.study_spec import StudySpec
from vsetune.records.state import StudyState
from vsetune.search.objectives import Objective
from vsetune.study.cell_budget import CellBudget, at_once
from vsetune.study.cell_objectives import objective_of
from vsetune.study.confirmations import Confirming, confirmations_of
from vsetune.study.trials import PlannedTrial


class CellSearch:
    """searched: trials of the search, in the order in which they were asked for. confirming: confirming trials that
    were handed out. has_no_more: no further configuration was found, although the budget allows more. baseline: the
    cell whose best M-Recall is the target of this one; None without such a target.
    """

    def __init__(self, study: StudySpec, cell: Cell, state: StudyState, confirming: Confirming) -> None:
        self.cell, self.name = cell, cell.name
        self.searched: list[PlannedTrial] = []
        self.confirming: list[PlannedTrial] = []
        self.has_no_more = False
        self.baseline: CellSearch | None = None
        self._study, self._state, self._confirming = study, state, confirming
        self._empty_budget = CellBudget.of(study, cell)
        self._is_over = False
        self._objective: Objective | None = None
        self._confirmations: list[PlannedTrial] | None = None

    def add(self, trial: PlannedTrial) -> None:
        (self.searched if trial.phase == "search" else self.confirming).append(trial)

    @property
    def trials(self) -> Sequence[PlannedTrial]:
        return [*self.searched, *self.confirming]

    @property
    def open(self) -> list[PlannedTrial]:
        """Trials of the search that have not ended."""
        return [trial for trial in self.searched if not trial.is_closed]

    @property
    def committed(self) -> float:
        """Epochs of the budget that the trials use. A trial that the search ended early counts the epochs that it
        trained, every other trial a whole training."""
        whole, committed = self._empty_budget.whole, 0.0
        for trial in self.searched:
            short = trial.shortened_to if trial.is_closed else None
            committed += whole if short is None else short
        return committed

    @property
    def room(self) -> int:
        """How many more whole trials the search may ask for."""
        if self.has_no_more:
            return 0
        return replace(self._empty_budget, committed=self.committed).room(len(self.searched))

    @property
    def is_exhausted(self) -> bool:
        """Whether the search may ask for no further configuration. Lost epochs are not charged, since they are not a
        choice of the search."""
        most_s = self._study.budget.device_seconds_per_cell
        return not self.room or (
            most_s is not None and sum(trial.cost.device_seconds for trial in self.trials) >= most_s
        )

    @property
    def is_over(self) -> bool:
        """Whether the search is over, so that its best configuration does not change any more."""
        if not self._is_over:
            is_open = any(not trial.is_closed for trial in reversed(self.searched))
            self._is_over = bool(self.searched) and not is_open and self.is_exhausted
        return self._is_over

    def may_ask(self, places: int) -> bool:
        """Whether the search may ask for a configuration now. places: trials that the cluster has room for at a time,
        divided by the cells that are searched.

        Not while its target is unknown, and not while a trial of it is interrupted: the search would know less than in
        an uninterrupted run.
        """
        running = self.open
        return (
            len(running) < at_once(self._study.search, len(self.searched), places)
            and not any(trial.is_interrupted for trial in running)
            and not self.is_exhausted and self.objective is not None
        )

    @property
    def objective(self) -> Objective | None:
        """None while the target is unknown: the search of the baseline is not over."""
        if self._objective is None and (self.baseline is None or self.baseline.is_over):
            known = None if self.baseline is None else [each.attempts for each in self.baseline.searched]
            self._objective = objective_of(self._study, self.cell, known)
        return self._objective

    @property
    def unconfirmed(self) -> list[PlannedTrial]:
        """The confirming trials that have not been handed out. None before the search is over, or if none of its trials
        has finished."""
        return [trial for trial in self._all_confirming() if trial not in self.confirming]

    def _all_confirming(self) -> list[PlannedTrial]:
        if self._confirmations is None:
            if not self.is_over:
                return []
            self._confirmations = confirmations_of(
                self._study, self.cell, self.searched, self._confirming, self._state
            )
        return self._confirmations

    @property
    def has_more(self) -> bool:
        """Whether a trial of the cell is still to be asked for, once none of it runs."""
        return self.may_ask(places=0) or bool(self.unconfirmed)

    @property
    def is_running_or_pausing(self) -> bool:
        """Whether a trial has not ended and is not left for the next run of the study."""
        latest_first = itertools.chain(reversed(self.confirming), reversed(self.searched))
        return any(not (trial.is_closed or trial.is_left_open) for trial in latest_first)

    @property
    def promised(self) -> int:
        """Estimated number of its trials. Pruned ones make room for others, and a budget in seconds may end it
        early."""
        confirming = len(self._all_confirming()) or len(self._confirming.seeds_of(self._study, self.cell))
        return len(self.searched) + self.room + confirming

    def recorded_budget(self) -> dict[str, str]:
        """The budget in the form in which the attempts of the search record it, for the board."""
        limit, whole = self._study.budget.device_seconds_per_cell, self._empty_budget.whole
        return recorded_budget(self._empty_budget.most, epochs_of_a_trial=whole, device_seconds=limit)
