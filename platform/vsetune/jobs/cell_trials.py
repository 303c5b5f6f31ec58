"""The trials of a study by cell: the epochs committed by their searches, and which searches are over.

States are counted as trials change, since the driver needs them at every report and whenever a worker is free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from vsetune.config.study.cells import Cell
from vsetune.config.study.study_spec import StudySpec
from vsetune.jobs.cell_budget import CellBudget
from vsetune.jobs.trial_progress import TrialProgress
from vsetune.leaderboard.search_budgets import recorded_budget
from vsetune.leaderboard.selection import cost_of
from vsetune.records.attempts import was_cut_short

State = Literal["open", "running", "due", "disturbed"]
"""States of a trial, which may have several at a time. open: not closed. due: open, and not left for the next run of
the study. disturbed: interrupted, and not continued yet."""


@dataclass
class _CellCounts:
    """Counts of one cell. empty: its budget before it has trained anything.

    searched: trials of its search, in order. states: how many of them are in each state. committed: epochs of each.
    seconds: device-seconds of each trial of the cell. stale: trials whose device-seconds have changed.
    """

    empty: CellBudget
    searched: list[TrialProgress] = field(default_factory=list)
    states: Counter[State] = field(default_factory=Counter)
    committed: list[float] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    stale: dict[str, TrialProgress] = field(default_factory=dict)


@dataclass
class _Counted:
    """A trial as it is counted. place: in the search of its cell; None for a confirming trial. is_short: its committed
    epochs are those that it trained."""

    place: int | None
    states: frozenset[State] = frozenset()
    is_short: bool = False


class CellTrials:
    """Counts of the trials of a study. `add` adds a trial; `changed` must be called after every change of one."""

    def __init__(self, study: StudySpec, cells: Iterable[Cell]) -> None:
        self._study = study
        self._by_cell = {cell.name: _CellCounts(CellBudget.of(study, cell)) for cell in cells}
        self._states: Counter[State] = Counter()
        self._counted: dict[str, _Counted] = {}

    def add(self, progress: TrialProgress) -> None:
        counts, assignment = self._by_cell[progress.assignment.trial.cell], progress.assignment
        is_search = assignment.phase == "search"
        self._counted[assignment.trial.trial] = _Counted(len(counts.searched) if is_search else None)
        if is_search:
            counts.searched.append(progress)
            counts.committed.append(counts.empty.whole)
        self.changed(progress)

    def changed(self, progress: TrialProgress) -> None:
        """Updates the counts after a change of a trial. An unnecessary call does no harm."""
        trial = progress.assignment.trial
        counts, counted = self._by_cell[trial.cell], self._counted[trial.trial]
        states = _states_of(progress)
        if states != counted.states:
            for kept in (self._states, counts.states) if counted.place is not None else (self._states,):
                kept.subtract(counted.states)
                kept.update(states)
            counted.states = states
        if counted.place is not None and not counted.is_short and _is_short(progress):
            counted.is_short = True
            counts.committed[counted.place] = cost_of([progress.attempts()]).budget_epochs
        if self._study.budget.device_seconds_per_cell is not None:
            counts.stale[trial.trial] = progress

    def exhaust(self, cell: Cell) -> None:
        """Notes that the cell's search has no further configuration, although its budget allows more."""
        counts = self._by_cell[cell.name]
        counts.empty = replace(counts.empty, trials=len(counts.searched))

    def asked(self, cell: Cell) -> int:
        """Number of trials of the cell's search."""
        return len(self._by_cell[cell.name].searched)

    def count(self, state: State, cell: Cell | None = None) -> int:
        """Number of trials in a state: of the search of a cell, or of the whole study, confirming trials included."""
        return (self._states if cell is None else self._by_cell[cell.name].states)[state]

    def budget(self, cell: Cell) -> CellBudget:
        """The budget of a cell's search, with the epochs committed so far."""
        counts = self._by_cell[cell.name]
        return counts.empty.with_committed(sum(counts.committed))

    def recorded_budget(self, cell: Cell) -> dict[str, str]:
        """The budget in the form in which the attempts of the cell's search record it, for the board."""
        empty = self._by_cell[cell.name].empty
        limit = self._study.budget.device_seconds_per_cell
        return recorded_budget(empty.most, epochs_of_a_trial=empty.whole, device_seconds=limit)

    def device_seconds(self, cell: Cell) -> float:
        """Device-seconds that all trials of a cell have used; counted only if the study has a budget of them."""
        counts = self._by_cell[cell.name]
        for name, progress in counts.stale.items():
            counts.seconds[name] = cost_of([progress.attempts()]).device_seconds
        counts.stale.clear()
        return sum(counts.seconds.values())

    def is_exhausted(self, cell: Cell) -> bool:
        """Whether the budget is used up. Lost epochs are not charged, since they are not a choice of the search."""
        if not self.budget(cell).room(self.asked(cell)):
            return True
        most_s = self._study.budget.device_seconds_per_cell
        return most_s is not None and self.device_seconds(cell) >= most_s

    def is_searching(self, cell: Cell) -> bool:
        """Whether the search of a cell is not over, so that its best configuration may still change."""
        return not self.asked(cell) or not self.is_exhausted(cell) or self.count("open", cell) > 0

    def searched(self, cell: Cell) -> list[TrialProgress] | None:
        """The trials of a cell's search, None while it is not over."""
        return None if self.is_searching(cell) else list(self._by_cell[cell.name].searched)


_CLOSED: frozenset[State] = frozenset()


def _states_of(progress: TrialProgress) -> frozenset[State]:
    if progress.is_closed:
        return _CLOSED
    due: tuple[State, ...] = () if progress.is_left_open else ("due",)
    if progress.status == "running":
        return frozenset(("open", "running", *due))
    is_disturbed = progress.status == "waiting" and progress.error is not None
    return frozenset(("open", "disturbed", *due) if is_disturbed else ("open", *due))


def _is_short(progress: TrialProgress) -> bool:
    """Whether the trial has ended with fewer epochs than planned, by a decision of the search."""
    return progress.status == "pruned" or was_cut_short(progress.status, progress.error)
