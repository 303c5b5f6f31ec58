"""What the ledger knows of one trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from vsetune.config.study.cells import Configuration
from vsetune.config.study.training import TrialSpec
from vsetune.metrics.curves import SAME_EPOCH, best_of_curve
from vsetune.records.attempts import AttemptRecord, AttemptStart, AttemptStatus, ValidationPoint

Phase = Literal["search", "confirm"]
TERMINAL: tuple[AttemptStatus, ...] = ("finished", "pruned", "failed")


@dataclass(frozen=True)
class Assignment:
    """A trial to run. number: the configuration's number in its cell. drawn_by: what chose it, in one line. roles: of a
    confirming run, why it is one; empty where the study's own seeds confirm the winner."""

    trial: TrialSpec
    number: int
    phase: Phase
    configuration: Configuration
    drawn_by: str = ""
    roles: tuple[str, ...] = ()


@dataclass
class TrialProgress:
    """One trial: its attempts so far, the last of them perhaps running.

    status: of the last attempt; `waiting` before the first and after an interruption. furthest: epoch of the last
    validation that any attempt has come to. interruptions: in a row, without a validation beyond it between them.
    not_before: when it may go on, on the ledger's clock. is_left_open: interrupted too often, for the next run of the
    study. summary: totals that the running attempt last reported. error: what ended or interrupted it last, one line.
    """

    assignment: Assignment
    status: AttemptStatus | Literal["waiting"] = "waiting"
    curve: list[tuple[float, float]] = field(default_factory=list)
    summary: dict[str, float] = field(default_factory=dict)
    error: str | None = None
    furthest: float = 0.0
    interruptions: int = 0
    not_before: float = float("-inf")
    is_left_open: bool = False
    _ended: list[AttemptRecord] = field(default_factory=list)
    _running: AttemptRecord | None = None

    @classmethod
    def recorded(cls, assignment: Assignment, records: Sequence[AttemptRecord]) -> TrialProgress:
        """As a store has it. records: its attempts by number."""
        progress = cls(assignment, _ended=list(records))
        if records:
            last = records[-1]
            progress.status, progress.error, progress.curve = last.status, last.error, list(last.curve)
        progress.furthest = max((epoch for record in records for epoch, _ in record.curve), default=0.0)
        return progress

    @property
    def is_closed(self) -> bool:
        """Nothing more is to be done for it."""
        return self.status in TERMINAL

    @property
    def number(self) -> int:
        """Of the last attempt; 0 before the first."""
        last = self._running or (self._ended[-1] if self._ended else None)
        return last.start.number if last else 0

    @property
    def attempt_id(self) -> str:
        """Of the running attempt, in the store."""
        assert self._running is not None, f"{self.assignment.trial.trial}: no attempt is running"
        return self._running.attempt_id

    @property
    def epoch(self) -> float:
        """Of the last validation."""
        return self.curve[-1][0] if self.curve else 0.0

    @property
    def best_m_recall(self) -> float | None:
        """Per cent; None before the first validation."""
        return best_of_curve(self.curve).m_recall if self.curve else None

    @property
    def longest_curve(self) -> Sequence[tuple[float, float]]:
        """Of the attempt that has come furthest, the last of equals: one that goes on from its checkpoint may be behind
        those before it."""
        curves = [attempt.curve for attempt in reversed(self.attempts()) if attempt.curve]
        return max(curves, key=lambda curve: curve[-1][0], default=())

    def attempts(self) -> tuple[AttemptRecord, ...]:
        """Every attempt as the board reads it, by number."""
        if self._running is None:
            return tuple(self._ended)
        return (*self._ended, replace(self._running, curve=tuple(self.curve), summary=dict(self.summary)))

    def begin(self, attempt_id: str, start: AttemptStart) -> None:
        """An attempt runs. One that the store knew already goes on as that attempt."""
        known = next((record for record in self._ended if record.start.number == start.number), None)
        self._ended = [record for record in self._ended if record is not known]
        self.curve = list(known.curve) if known else []
        self._running = AttemptRecord(attempt_id, start, "running", (), {})
        self.status, self.summary, self.error = "running", {}, None

    def note(self, points: Sequence[ValidationPoint]) -> None:
        """Validations of the running attempt; epochs that the curve has are not repeated.

        One that no attempt has come to before ends the row of interruptions; an attempt that goes on from its
        checkpoint may repeat some."""
        for point in points:
            if not self.curve or point.epoch > self.curve[-1][0]:
                self.curve.append((point.epoch, point.m_recall))
        if self.epoch > self.furthest + SAME_EPOCH:
            self.furthest, self.interruptions = self.epoch, 0

    def end(self, status: AttemptStatus, summary: Mapping[str, float], error: str | None) -> None:
        """The running attempt is over."""
        assert self._running is not None, f"{self.assignment.trial.trial}: no attempt is running"
        ended = replace(
            self._running, status=status, curve=tuple(self.curve), summary=dict(summary), error=error
        )
        self._ended.append(ended)
        self._running, self.status, self.error = None, status, error
