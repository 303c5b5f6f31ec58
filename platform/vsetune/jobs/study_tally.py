"""What is shown of a running study: how its trials stand, what they cost and reached, by cell and in all.

Counted as trials change. A report notes which trial it was about; what that trial adds to its cell is reckoned when
somebody looks, a few times a minute, and only for trials that have changed since.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from vsetune.jobs.ordered_sum import OrderedSum
from vsetune.jobs.trial_progress import TrialProgress
from vsetune.leaderboard.rows import Cost
from vsetune.leaderboard.selection import cost_of
from vsetune.records.attempts import AttemptStatus

TrialState = Literal["waiting", "left_open", "running", "finished", "pruned", "failed"]


@dataclass(frozen=True)
class CellTally:
    """Of all trials of a cell, those that confirm included.

    ended: trials that need nothing more. running: in the order in which they were handed out. best: M-Recall in per
    cent, 0 without one. charged_epochs: without those that a crash lost. attempts: by status.
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
    """Of one cell. known, bests: by trial, as far as reckoned; stale: those that have changed since."""

    places: dict[str, int] = field(default_factory=dict)
    ended: int = 0
    running: dict[str, TrialProgress] = field(default_factory=dict)
    stale: dict[str, TrialProgress] = field(default_factory=dict)
    epochs: OrderedSum = field(default_factory=OrderedSum)
    wasted: OrderedSum = field(default_factory=OrderedSum)
    seconds: OrderedSum = field(default_factory=OrderedSum)
    attempts: Counter[AttemptStatus] = field(default_factory=Counter)
    known: dict[str, tuple[AttemptStatus, ...]] = field(default_factory=dict)
    bests: dict[str, float] = field(default_factory=dict)
    best: float = 0.0

    def reckon(self) -> None:
        for name, progress in self.stale.items():
            attempts = progress.attempts()
            cost = cost_of([attempts]) if attempts else Cost(0.0, 0.0, 0.0)
            place = self.places[name]
            self.epochs.put(place, cost.budget_epochs)
            self.wasted.put(place, cost.wasted_epochs)
            self.seconds.put(place, cost.device_seconds)
            self.attempts.subtract(self.known.get(name, ()))
            self.known[name] = tuple(attempt.status for attempt in attempts)
            self.attempts.update(self.known[name])
            self._note_best(name, progress.best_m_recall or 0.0)
        self.stale.clear()

    def _note_best(self, name: str, best: float) -> None:
        """A trial that begins anew may have reached less than before."""
        before, self.bests[name] = self.bests.get(name, 0.0), best
        if best >= self.best:
            self.best = best
        elif before == self.best:
            self.best = max(self.bests.values())


class StudyTally:
    """closed: names of trials in the order in which they ended; one that was reopened may stand there twice. ended: how
    many need nothing more now. statuses, states: how many trials have which, as the ledger and as dashboards call it.
    """

    def __init__(self, cells: Iterable[str]) -> None:
        self.closed: list[str] = []
        self.ended = 0
        self.statuses: Counter[str] = Counter()
        self.states: Counter[TrialState] = Counter()
        self._cells = {cell: _Kept() for cell in cells}
        self._counted: dict[str, tuple[str, TrialState, bool]] = {}

    def changed(self, progress: TrialProgress) -> None:
        """Call it for every new trial, and after whatever changes one; once too often does no harm."""
        trial = progress.assignment.trial
        kept, name = self._cells[trial.cell], trial.trial
        kept.stale[name] = progress
        now = (progress.status, _state_of(progress), progress.is_closed)
        before = self._counted.get(name)
        if before is None:
            kept.places[name] = len(kept.places)
            for numbers in (kept.epochs, kept.wasted, kept.seconds):
                numbers.append(0.0)
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
        kept = self._cells[name]
        kept.reckon()
        running = sorted(kept.running, key=lambda trial: kept.places[trial])
        return CellTally(
            kept.ended, tuple(kept.running[trial] for trial in running), kept.best, kept.epochs.total,
            kept.wasted.total, kept.seconds.total, +kept.attempts,
        )

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
