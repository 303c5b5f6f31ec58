"""What `CellTrials` keeps, counted anew from the trials at every question: slow and plain, to compare with."""

from __future__ import annotations

from typing import Any, Self

from vsetune.config.study.cells import Cell
from vsetune.jobs.cell_budget import CellBudget
from vsetune.jobs.cell_trials import CellTrials, State
from vsetune.jobs.trial_progress import TrialProgress
from vsetune.leaderboard.selection import cost_of
from vsetune.tracking.records import was_cut_short


class RecountedTrials(CellTrials):
    """Reads nothing that is kept but the trials of each cell, and what a stopped one has trained."""

    _trained: dict[str, float]

    @classmethod
    def over(cls, kept: CellTrials) -> Self:
        """Of the same trials; both may be asked at any time."""
        found: Any = cls.__new__(cls)
        found.__dict__ = kept.__dict__ | {"_trained": {}}
        return found

    def asked(self, cell: Cell) -> int:
        return len(self.of(cell, "search"))

    def count(self, state: State, cell: Cell | None = None) -> int:
        trials = [
            trial for name in self._by_cell if cell is None or name == cell.name
            for trial in self._by_cell[name].trials if cell is None or trial.assignment.phase == "search"
        ]
        if state == "disturbed":
            return sum(trial.status == "waiting" and trial.error is not None for trial in trials)
        if state == "running":
            return sum(trial.status == "running" for trial in trials)
        return sum(not trial.is_closed and not (state == "due" and trial.is_left_open) for trial in trials)

    def budget(self, cell: Cell) -> CellBudget:
        whole, committed = float(cell.training["epochs"]), 0.0
        for trial in self.of(cell, "search"):
            name = trial.assignment.trial.trial
            if name not in self._trained and _is_short(trial):
                self._trained[name] = cost_of([trial.attempts()]).budget_epochs
            committed += self._trained.get(name, whole)
        return CellBudget.of(self._study, cell, committed)

    def device_seconds(self, cell: Cell) -> float:
        return cost_of([trial.attempts() for trial in self.of(cell) if trial.attempts()]).device_seconds

    def is_searching(self, cell: Cell) -> bool:
        searched = self.of(cell, "search")
        return not searched or not self.is_exhausted(cell) or not all(trial.is_closed for trial in searched)

    def searched(self, cell: Cell) -> list[TrialProgress] | None:
        return None if self.is_searching(cell) else self.of(cell, "search")


def _is_short(trial: TrialProgress) -> bool:
    return trial.status == "pruned" or was_cut_short(trial.status, trial.error)
