"""A trial that its study runs: its attempts in the log, and what only the driver knows of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple, get_args

from vsetune.board.rows import Cost
from vsetune.board.selection import costs_of
from vsetune.config.study.cells import Configuration
from vsetune.config.study.training import TrialSpec
from vsetune.metrics.curves import SAME_EPOCH, best_of_curve
from vsetune.records.events import AttemptStatus, was_cut_short
from vsetune.records.state import Attempt, StudyState, Trial
from vsetune.training.failures import Kind

Phase = Literal["search", "confirm"]
TrialState = Literal["waiting", "left_open", "running", "finished", "pruned", "failed"]
"""States on dashboards, one for each trial. waiting: also after an interruption."""
TERMINAL: tuple[AttemptStatus, ...] = ("finished", "pruned", "failed")
_NOT_BEGUN = Trial()


class Measured(NamedTuple):
    """What a trial has come to. best: M-Recall in per cent, 0 without one. validations: those repeated after a crash
    count once. attempts: status and kind of failure of each, the kind `none` without a failure."""

    cost: Cost
    best: float
    validations: int
    attempts: list[tuple[AttemptStatus, str]]


@dataclass(eq=False)
class PlannedTrial:
    """A trial that its study runs, has run or will run.

    number: the configuration's number in its cell. drawn_by: how it was sampled, in one line. roles: of a confirming
    trial, why its configuration is confirmed; empty if the study's own seeds confirm the winner.

    What only this process knows: is_again: failed before, and to run again. interruptions: how many since the last
    validation beyond all earlier ones. not_before: when it may continue, on the ledger's clock. is_left_open:
    interrupted too often, left for the next run of the study. reason: of the last interruption, until an attempt begins
    again. totals: of the running attempt, as last reported.
    """

    study: StudyState
    spec: TrialSpec
    number: int
    phase: Phase
    configuration: Configuration
    drawn_by: str = ""
    roles: tuple[str, ...] = ()
    is_again: bool = False
    interruptions: int = 0
    not_before: float = float("-inf")
    is_left_open: bool = False
    reason: str | None = None
    totals: Mapping[str, float] = field(default_factory=dict)
    _ended_as: AttemptStatus | Literal["waiting"] | None = field(default=None, init=False)

    @property
    def name(self) -> str:
        return self.spec.trial

    @property
    def cell(self) -> str:
        return self.spec.cell

    @property
    def attempts(self) -> Trial:
        """Its attempts in the log; the last one may be running."""
        return self.study.trials.get(self.spec.trial, _NOT_BEGUN)

    @property
    def last(self) -> Attempt | None:
        """The last attempt; None before the first."""
        return self.attempts[-1] if self.attempts else None

    @property
    def status(self) -> AttemptStatus | Literal["waiting"]:
        """Of the last attempt; `waiting` before the first and after an interruption."""
        if self._ended_as is not None:
            return self._ended_as
        last = self.last
        return "waiting" if last is None or last.status == "killed" or self.is_again else last.status

    @property
    def is_closed(self) -> bool:
        """Whether the trial has ended: finished, pruned or failed. It then stays as it is."""
        if self._ended_as is None and (status := self.status) in TERMINAL:
            self._ended_as = status
        return self._ended_as is not None

    @property
    def state(self) -> TrialState:
        """As dashboards show it."""
        is_left = self.is_left_open and self.status == "waiting"
        return "left_open" if is_left else self.status  # type: ignore[return-value]  # it is never `killed`

    @property
    def is_interrupted(self) -> bool:
        """Whether it was interrupted and has not continued yet."""
        return self.status == "waiting" and (self.is_left_open or self.error is not None)

    @property
    def error(self) -> str | None:
        """The last cause of its end or interruption, one line."""
        last = self.last
        return self.reason if self.reason is not None or last is None else last.error

    @property
    def curve(self) -> Sequence[tuple[float, float]]:
        """Of the last attempt."""
        return self.last.curve if self.last is not None else ()

    @property
    def epoch(self) -> float:
        """Epoch of the last validation; 0 before the first."""
        return self.curve[-1][0] if self.curve else 0.0

    @property
    def best_m_recall(self) -> float | None:
        """Best M-Recall in per cent; None before the first validation."""
        return best_of_curve(self.curve).m_recall if self.curve else None

    @property
    def measured(self) -> Measured:
        return self._measured_at_end if self.is_closed else self._measure()

    @property
    def cost(self) -> Cost:
        """Of all attempts."""
        return self._measured_at_end.cost if self.is_closed else costs_of([self.attempts])[0]

    @cached_property
    def shortened_to(self) -> float | None:
        """Epochs that the trial trained if the search ended it early; None for any other trial that has ended."""
        is_short = self.status == "pruned" or was_cut_short(self.status, self.error)
        return self.cost.budget_epochs if is_short else None

    @cached_property
    def _measured_at_end(self) -> Measured:
        return self._measure()

    def _measure(self) -> Measured:
        attempts = self.attempts
        return Measured(
            costs_of([attempts])[0], self.best_m_recall or 0.0, len(attempts.longest_curve),
            [(attempt.status, kind_of(attempt)) for attempt in attempts],
        )

    def begun(self) -> None:
        """Notes that an attempt runs."""
        self.is_again, self.reason, self.totals = False, None, {}

    def validated(self, furthest: float) -> None:
        """Notes that an attempt has validated. furthest: the highest epoch at which any attempt had validated before. A
        validation beyond it resets the count of interruptions."""
        if self.epoch > furthest + SAME_EPOCH:
            self.interruptions = 0


FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 60.0
"""A trial pauses 2, 4, 8, ... seconds after its first, second, third interruption in a row, at most one minute."""


def pause_after(interruptions: int) -> float:
    """Seconds that a trial waits after this many interruptions in a row (1 is the first)."""
    return float(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (interruptions - 1)))


def kind_of(attempt: Attempt) -> str:
    """The kind of failure of an attempt, `other` for one without a kind, such as Ctrl-C; `none` without a failure."""
    if attempt.status not in ("failed", "killed"):
        return "none"
    kind = (attempt.error or "").partition(":")[0]
    return kind if kind in get_args(Kind) else "other"
