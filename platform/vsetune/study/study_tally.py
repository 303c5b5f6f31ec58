"""Counts of a running study for display: states, costs and results of its trials, by cell and in total.

States are counted as trials change. Costs are computed when a cell's tally is read, only for trials that have changed.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from vsetune.records.events import AttemptStatus
from vsetune.report.rows import Cost
from vsetune.report.selection import cost_of
from vsetune.study.trials import TrialProgress

TrialState = Literal["waiting", "left_open", "running", "finished", "pruned", "failed"]


@dataclass(frozen=True)
class CellTally:
    """Tally of all trials of a cell, including confirming ones.

    ended: number of closed trials. running: in the order in which they were handed out. best: M-Recall in per cent, 0
    without one. charged_epochs: without lost epochs. wasted_epochs: lost epochs. attempts: by status.
    """

    ended: int
    running: tuple[TrialProgress, ...]
    best: float
    charged_epochs: float
    wasted_epochs: float
    device_seconds: float
    attempts: Counter[AttemptStatus]


@dataclass
class _Kept:
    """Counts of one cell, by trial. stale: trials whose cost must be computed again."""

    places: dict[str, int] = field(default_factory=dict)
    ended: int = 0
    running: dict[str, TrialProgress] = field(default_factory=dict)
    stale: dict[str, TrialProgress] = field(default_factory=dict)
    costs: dict[str, Cost] = field(default_factory=dict)
    statuses: dict[str, list[AttemptStatus]] = field(default_factory=dict)
    bests: dict[str, float] = field(default_factory=dict)

    def tally(self) -> CellTally:
        for name, progress in self.stale.items():
            attempts = progress.attempts()
            self.costs[name] = cost_of([attempts]) if attempts else Cost(0.0, 0.0, 0.0)
            self.statuses[name] = [attempt.status for attempt in attempts]
            self.bests[name] = progress.best_m_recall or 0.0
        self.stale.clear()
        running = sorted(self.running, key=lambda trial: self.places[trial])
        return CellTally(
            ended=self.ended, running=tuple(self.running[trial] for trial in running),
            best=max(self.bests.values(), default=0.0),
            charged_epochs=sum(cost.budget_epochs for cost in self.costs.values()),
            wasted_epochs=sum(cost.wasted_epochs for cost in self.costs.values()),
            device_seconds=sum(cost.device_seconds for cost in self.costs.values()),
            attempts=Counter(itertools.chain.from_iterable(self.statuses.values())),
        )


class StudyTally:
    """Tally of a study. closed: names of trials in the order in which they ended; a reopened trial may be listed twice.
    ended: number of trials that are closed now. statuses, states: number of trials by their status in the ledger, and
    by their state on dashboards.
    """

    def __init__(self, cells: Iterable[str]) -> None:
        self.closed: list[str] = []
        self.ended = 0
        self.statuses: Counter[str] = Counter()
        self.states: Counter[TrialState] = Counter()
        self._cells = {cell: _Kept() for cell in cells}
        self._counted: dict[str, tuple[str, TrialState, bool]] = {}

    def changed(self, progress: TrialProgress) -> None:
        """Updates the tally with a new or changed trial. An unnecessary call does no harm."""
        trial = progress.assignment.trial
        kept, name = self._cells[trial.cell], trial.trial
        kept.stale[name] = progress
        now = (progress.status, _state_of(progress), progress.is_closed)
        before = self._counted.get(name)
        if before is None:
            kept.places[name] = len(kept.places)
        if now == before:
            return
        self._counted[name] = now
        if before is not None:
            self._count(kept, before, -1)
        self._count(kept, now, 1)
        if now[2] and (before is None or not before[2]):
            self.closed.append(name)
        if progress.status == "running":
            kept.running[name] = progress
        else:
            kept.running.pop(name, None)

    def cell(self, name: str) -> CellTally:
        return self._cells[name].tally()

    def _count(self, kept: _Kept, counted: tuple[str, TrialState, bool], change: int) -> None:
        status, state, is_closed = counted
        self.statuses[status] += change
        self.states[state] += change
        self.ended += change * is_closed
        kept.ended += change * is_closed


def _state_of(progress: TrialProgress) -> TrialState:
    if progress.is_closed or progress.status == "running":
        return progress.status  # type: ignore[return-value]
    return "left_open" if progress.is_left_open else "waiting"
