"""The trials of a study by cell: what their searches have promised to train, and which searches are over."""

from __future__ import annotations

from collections.abc import Iterable

from vsetune.config.study.cells import Cell
from vsetune.config.study.study_spec import StudySpec
from vsetune.jobs.cell_budget import CellBudget
from vsetune.jobs.trial_progress import Phase, TrialProgress
from vsetune.leaderboard.selection import cost_of
from vsetune.tracking.records import was_cut_short


class CellTrials:
    """Grows by `add`; the trials in it go on."""

    def __init__(self, study: StudySpec, cells: Iterable[Cell]) -> None:
        self._study = study
        self._by_cell: dict[str, list[TrialProgress]] = {cell.name: [] for cell in cells}
        self._trained: dict[str, float] = {}

    def add(self, progress: TrialProgress) -> None:
        self._by_cell[progress.assignment.trial.cell].append(progress)

    def of(self, cell: Cell, phase: Phase | None = None) -> list[TrialProgress]:
        """In the order in which they were handed out."""
        found = self._by_cell[cell.name]
        return found if phase is None else [trial for trial in found if trial.assignment.phase == phase]

    def budget(self, cell: Cell) -> CellBudget:
        """What the search of a cell has promised to train, and may."""
        whole = float(cell.training["epochs"])
        committed = 0.0
        for trial in self.of(cell, "search"):
            name = trial.assignment.trial.trial
            is_short = trial.status == "pruned" or was_cut_short(trial.status, trial.error)
            if is_short and name not in self._trained:
                self._trained[name] = cost_of([trial.attempts()]).budget_epochs
            committed += self._trained.get(name, whole)
        return CellBudget.of(self._study, cell, committed)

    def is_exhausted(self, cell: Cell) -> bool:
        """Whether the budget is used up. Work that a crash lost is not charged: it is no choice of the search."""
        if not self.budget(cell).room(len(self.of(cell, "search"))):
            return True
        most_s = self._study.budget.device_seconds_per_cell
        if most_s is None:
            return False
        cost = cost_of([trial.attempts() for trial in self.of(cell) if trial.attempts()])
        return cost.device_seconds >= most_s

    def is_searching(self, cell: Cell) -> bool:
        """Whether the board might still show another configuration of it as the best."""
        searched = self.of(cell, "search")
        return not searched or not self.is_exhausted(cell) or not all(trial.is_closed for trial in searched)

    def searched(self, cell: Cell) -> list[TrialProgress] | None:
        """The trials of a cell's search, None while it is not over."""
        return None if self.is_searching(cell) else self.of(cell, "search")
