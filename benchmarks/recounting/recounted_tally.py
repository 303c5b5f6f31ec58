"""The numbers of `StudyTally`, counted anew from the trials at every question: slow and plain, to compare with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

from vsetune.config.study.cells import Cell
from vsetune.records.events import was_cut_short
from vsetune.report.selection import cost_of
from vsetune.study.cell_budget import CellBudget
from vsetune.study.study_tally import CellTally, State, StudyTally, kind_of
from vsetune.study.trials import Phase, PlannedTrial


class RecountedTally(StudyTally):
    """Reads no stored count, except the epochs that a stopped trial has trained."""

    _trained: dict[str, float]
    _trials: Mapping[str, PlannedTrial]

    @classmethod
    def over(cls, tally: StudyTally, trials: Mapping[str, PlannedTrial]) -> Self:
        """Of the same trials, in the order in which they were handed out; both may be asked at any time."""
        found: Any = cls.__new__(cls)
        found.__dict__ = tally.__dict__ | {"_trained": {}, "_trials": trials}
        return found

    def of(self, cell: Cell, phase: Phase | None = None) -> list[PlannedTrial]:
        return [
            trial for trial in self._trials.values()
            if trial.cell == cell.name and phase in (None, trial.phase)
        ]

    def asked(self, cell: Cell) -> int:
        return len(self.of(cell, "search"))

    def count(self, state: State, cell: Cell | None = None) -> int:
        trials = list(self._trials.values()) if cell is None else self.of(cell, "search")
        if state == "disturbed":
            return sum(trial.status == "waiting" and trial.error is not None for trial in trials)
        if state in ("open", "due"):
            return sum(not trial.is_closed and not (state == "due" and trial.is_left_open) for trial in trials)
        return sum(trial.is_closed if state == "ended" else _shown(trial) == state for trial in trials)

    def budget(self, cell: Cell) -> CellBudget:
        whole, committed = float(cell.training["epochs"]), 0.0
        for trial in self.of(cell, "search"):
            name = trial.name
            if name not in self._trained and _is_short(trial):
                self._trained[name] = cost_of([trial.attempts]).budget_epochs
            committed += self._trained.get(name, whole)
        return replace(CellBudget.of(self._study, cell), committed=committed)

    def device_seconds(self, cell: Cell) -> float:
        return cost_of([trial.attempts for trial in self.of(cell) if trial.attempts]).device_seconds

    def is_searching(self, cell: Cell) -> bool:
        searched = self.of(cell, "search")
        return not searched or not self.is_exhausted(cell) or not all(trial.is_closed for trial in searched)

    def searched(self, cell: Cell) -> list[PlannedTrial] | None:
        return None if self.is_searching(cell) else self.of(cell, "search")

    def cell(self, name: str) -> CellTally:
        trials = [trial for trial in self._trials.values() if trial.cell == name]
        cost = cost_of([trial.attempts for trial in trials if trial.attempts])
        return CellTally(
            ended=sum(trial.is_closed for trial in trials),
            running=tuple(trial for trial in trials if trial.status == "running"),
            best=max((trial.best_m_recall or 0.0 for trial in trials), default=0.0),
            charged_epochs=cost.budget_epochs, wasted_epochs=cost.wasted_epochs, device_seconds=cost.device_seconds,
            usd=cost.usd, validations=sum(len(trial.attempts.longest_curve) for trial in trials),
            attempts=Counter((each.status, kind_of(each)) for trial in trials for each in trial.attempts),
        )


def _shown(trial: PlannedTrial) -> str:
    if trial.is_left_open and not trial.is_closed:
        return "left_open"
    return "waiting" if trial.status == "killed" else trial.status


def _is_short(trial: PlannedTrial) -> bool:
    return trial.status == "pruned" or was_cut_short(trial.status, trial.error)
