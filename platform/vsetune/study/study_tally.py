"""Counts of a study's trials, updated as trials change: for the ledger's decisions, and for display.

Costs are computed when they are read, only for trials that have changed.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, get_args

from vsetune.config.study.cells import Cell
from vsetune.config.study.study_spec import StudySpec
from vsetune.records.events import AttemptStatus, was_cut_short
from vsetune.records.state import Attempt
from vsetune.report.rows import Cost
from vsetune.report.search_budgets import recorded_budget
from vsetune.report.selection import cost_of, sum_of
from vsetune.study.cell_budget import CellBudget
from vsetune.study.trials import TERMINAL, PlannedTrial
from vsetune.training.failures import Kind

TrialState = Literal["waiting", "left_open", "running", "finished", "pruned", "failed"]
"""States on dashboards, one for each trial. waiting: also after an interruption."""
State = TrialState | Literal["open", "due", "disturbed", "ended"]
"""open: not closed. due: open, and not left for the next run of the study. disturbed: interrupted, and not continued
yet. ended: closed."""
_PARTS: Mapping[str, tuple[str, ...]] = {
    "waiting": ("waiting", "interrupted"), "open": ("waiting", "interrupted", "left_open", "running"),
    "due": ("waiting", "interrupted", "running"), "disturbed": ("interrupted", "left_open"), "ended": TERMINAL,
}


@dataclass(frozen=True)
class CellTally:
    """Tally of all trials of a cell, including confirming ones.

    ended: number of closed trials. running: in the order in which they were handed out. best: M-Recall in per cent, 0
    without one. charged_epochs: without lost epochs. wasted_epochs: lost epochs. usd: None where no price is known.
    validations: those repeated after a crash count once. attempts: by (status, kind of failure), the kind `none`
    without a failure.
    """

    ended: int
    running: tuple[PlannedTrial, ...]
    best: float
    charged_epochs: float
    wasted_epochs: float
    device_seconds: float
    usd: float | None
    validations: int
    attempts: Counter[tuple[AttemptStatus, str]]

    @property
    def prices(self) -> list[float | None]:
        """USD per hour of the share of a node that each running trial holds; None on a node without a price."""
        found = [trial.attempts[-1].start.environment.get("usd_per_hour") for trial in self.running]
        return [None if price is None else float(price) for price in found]


@dataclass
class _CellCounts:
    """Counts of one cell. empty: its budget before it has trained anything.

    trials: all trials, in the order in which they were handed out. states: how many trials of its search are in each
    state. committed: epochs of each trial of its search. stale: trials that have changed since they were measured.
    measured: cost, attempts and best M-Recall of a trial.
    """

    empty: CellBudget
    trials: dict[str, PlannedTrial] = field(default_factory=dict)
    states: Counter[str] = field(default_factory=Counter)
    committed: list[float] = field(default_factory=list)
    stale: dict[str, PlannedTrial] = field(default_factory=dict)
    measured: dict[str, _Measured] = field(default_factory=dict)

    def measure(self) -> Collection[_Measured]:
        for name, planned in self.stale.items():
            attempts = planned.attempts
            cost = cost_of([attempts]) if attempts else Cost(0.0, 0.0, 0.0)
            self.measured[name] = _Measured(
                cost, planned.best_m_recall or 0.0, len(attempts.longest_curve),
                [(attempt.status, kind_of(attempt)) for attempt in attempts],
            )
        self.stale.clear()
        return self.measured.values()


class _Measured(NamedTuple):
    cost: Cost
    best: float
    validations: int
    attempts: list[tuple[AttemptStatus, str]]


@dataclass
class _Counted:
    """A trial as it is counted. place: in the search of its cell; None for a confirming trial. is_short: its committed
    epochs are those that it trained."""

    place: int | None
    state: str | None = None
    is_short: bool = False


class StudyTally:
    """Counts of the trials of a study. `changed` must be called with every new trial and after every change of one.

    closed: names of trials in the order in which they ended; a reopened trial may be listed twice.
    """

    def __init__(self, study: StudySpec, cells: Iterable[Cell]) -> None:
        self._study = study
        self.closed: list[str] = []
        self._states: Counter[str] = Counter()
        self._cells = {cell.name: _CellCounts(CellBudget.of(study, cell)) for cell in cells}
        self._counted: dict[str, _Counted] = {}

    def changed(self, planned: PlannedTrial) -> None:
        """Updates the counts with a new or changed trial. An unnecessary call does no harm."""
        name, counts = planned.name, self._cells[planned.cell]
        counts.trials[name] = counts.stale[name] = planned
        if name not in self._counted:
            is_search = planned.phase == "search"
            self._counted[name] = _Counted(len(counts.committed) if is_search else None)
            counts.committed += [counts.empty.whole] if is_search else []
        counted, state = self._counted[name], _state_of(planned)
        if state != counted.state:
            for states in (self._states, counts.states) if counted.place is not None else (self._states,):
                states[state] += 1
                if counted.state is not None:
                    states[counted.state] -= 1
            if state in TERMINAL and counted.state not in TERMINAL:
                self.closed.append(name)
            counted.state = state
        if counted.place is not None and not counted.is_short and _is_short(planned):
            counted.is_short = True
            counts.committed[counted.place] = cost_of([planned.attempts]).budget_epochs

    def exhaust(self, cell: Cell) -> None:
        """Notes that the cell's search has no further configuration, although its budget allows more."""
        counts = self._cells[cell.name]
        counts.empty = replace(counts.empty, trials=len(counts.committed))

    def count(self, state: State, cell: Cell | None = None) -> int:
        """Number of trials in a state: of the search of a cell, or of the whole study, confirming trials included."""
        states = self._states if cell is None else self._cells[cell.name].states
        return sum(states[part] for part in _PARTS.get(state, (state,)))

    def asked(self, cell: Cell) -> int:
        """Number of trials of the cell's search."""
        return len(self._cells[cell.name].committed)

    def budget(self, cell: Cell) -> CellBudget:
        """The budget of a cell's search, with the epochs committed so far."""
        counts = self._cells[cell.name]
        return replace(counts.empty, committed=sum(counts.committed))

    def recorded_budget(self, cell: Cell) -> dict[str, str]:
        """The budget in the form in which the attempts of the cell's search record it, for the board."""
        empty = self._cells[cell.name].empty
        limit = self._study.budget.device_seconds_per_cell
        return recorded_budget(empty.most, epochs_of_a_trial=empty.whole, device_seconds=limit)

    def device_seconds(self, cell: Cell) -> float:
        """Device-seconds that all trials of a cell have used."""
        return sum(each.cost.device_seconds for each in self._cells[cell.name].measure())

    def is_exhausted(self, cell: Cell) -> bool:
        """Whether the budget is used up. Lost epochs are not charged, since they are not a choice of the search."""
        if not self.budget(cell).room(self.asked(cell)):
            return True
        most_s = self._study.budget.device_seconds_per_cell
        return most_s is not None and self.device_seconds(cell) >= most_s

    def is_searching(self, cell: Cell) -> bool:
        """Whether the search of a cell is not over, so that its best configuration may still change."""
        return not self.asked(cell) or not self.is_exhausted(cell) or self.count("open", cell) > 0

    def searched(self, cell: Cell) -> list[PlannedTrial] | None:
        """The trials of a cell's search, None while it is not over."""
        if self.is_searching(cell):
            return None
        return [trial for trial in self._cells[cell.name].trials.values() if trial.phase == "search"]

    def cell(self, name: str) -> CellTally:
        counts = self._cells[name]
        measured = counts.measure()
        cost = sum_of([each.cost for each in measured])
        states = {trial: self._counted[trial].state for trial in counts.trials}
        return CellTally(
            ended=sum(state in TERMINAL for state in states.values()),
            running=tuple(counts.trials[trial] for trial, state in states.items() if state == "running"),
            best=max((each.best for each in measured), default=0.0),
            charged_epochs=cost.budget_epochs, wasted_epochs=cost.wasted_epochs, device_seconds=cost.device_seconds,
            usd=cost.usd, validations=sum(each.validations for each in measured),
            attempts=Counter(itertools.chain.from_iterable(each.attempts for each in measured)),
        )


def _state_of(planned: PlannedTrial) -> str:
    """The state of a trial, with `interrupted` for one that waits after an interruption."""
    if planned.is_closed or planned.status == "running":
        return planned.status
    if planned.is_left_open:
        return "left_open"
    return "interrupted" if planned.status == "waiting" and planned.error is not None else "waiting"


def kind_of(attempt: Attempt) -> str:
    """The kind of failure of an attempt, `other` for one without a kind, such as Ctrl-C; `none` without a failure."""
    if attempt.status not in ("failed", "killed"):
        return "none"
    kind = (attempt.error or "").partition(":")[0]
    return kind if kind in get_args(Kind) else "other"


def _is_short(planned: PlannedTrial) -> bool:
    """Whether the trial has ended with fewer epochs than planned, by a decision of the search."""
    return planned.status == "pruned" or was_cut_short(planned.status, planned.error)
