"""State of the trials in the ledger, and the queue of interrupted ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from vsetune.config.study.cells import Configuration
from vsetune.config.study.training import TrialSpec
from vsetune.metrics.curves import SAME_EPOCH, best_of_curve
from vsetune.records.events import AttemptRecord, AttemptStart, AttemptStatus, ValidationPoint

Phase = Literal["search", "confirm"]
TERMINAL: tuple[AttemptStatus, ...] = ("finished", "pruned", "failed")


@dataclass(frozen=True)
class Assignment:
    """A trial to run. number: the configuration's number in its cell. drawn_by: how it was sampled, in one line. roles:
    of a confirming trial, why its configuration is confirmed; empty if the study's own seeds confirm the winner."""

    trial: TrialSpec
    number: int
    phase: Phase
    configuration: Configuration
    drawn_by: str = ""
    roles: tuple[str, ...] = ()


@dataclass
class TrialProgress:
    """One trial with its attempts so far; the last one may be running.

    status: of the last attempt; `waiting` before the first and after an interruption. furthest: the highest epoch at
    which any attempt has validated. interruptions: number in a row, without a validation beyond `furthest` between
    them. not_before: when it may continue, on the ledger's clock. is_left_open: interrupted too often, left for the
    next run of the study. summary: totals that the running attempt last reported. error: the last cause of its end or
    interruption, one line.
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
        """The trial as recorded in the store. records: its attempts, sorted by number."""
        progress = cls(assignment, _ended=list(records))
        if records:
            last = records[-1]
            progress.status, progress.error, progress.curve = last.status, last.error, list(last.curve)
        progress.furthest = max((epoch for record in records for epoch, _ in record.curve), default=0.0)
        return progress

    @property
    def is_closed(self) -> bool:
        """Whether the trial has ended: finished, pruned or failed."""
        return self.status in TERMINAL

    @property
    def number(self) -> int:
        """Number of the last attempt; 0 before the first."""
        last = self._running or (self._ended[-1] if self._ended else None)
        return last.start.number if last else 0

    @property
    def attempt_id(self) -> str:
        """The running attempt's id in the store."""
        assert self._running is not None, f"{self.assignment.trial.trial}: no attempt is running"
        return self._running.attempt_id

    @property
    def epoch(self) -> float:
        """Epoch of the last validation; 0 before the first."""
        return self.curve[-1][0] if self.curve else 0.0

    @property
    def best_m_recall(self) -> float | None:
        """Best M-Recall in per cent; None before the first validation."""
        return best_of_curve(self.curve).m_recall if self.curve else None

    @property
    def longest_curve(self) -> Sequence[tuple[float, float]]:
        """Curve of the attempt that reached the highest epoch, the latest of several. An attempt that continues from
        its checkpoint may be behind earlier attempts."""
        curves = [attempt.curve for attempt in reversed(self.attempts()) if attempt.curve]
        return max(curves, key=lambda curve: curve[-1][0], default=())

    def attempts(self) -> tuple[AttemptRecord, ...]:
        """Every attempt in the form that the board reads, sorted by number."""
        if self._running is None:
            return tuple(self._ended)
        return (*self._ended, replace(self._running, curve=tuple(self.curve), summary=dict(self.summary)))

    def begin(self, attempt_id: str, start: AttemptStart) -> None:
        """Notes that an attempt runs. If the store has an attempt of this number, it continues that attempt."""
        known = next((record for record in self._ended if record.start.number == start.number), None)
        self._ended = [record for record in self._ended if record is not known]
        self.curve = list(known.curve) if known else []
        self._running = AttemptRecord(attempt_id, start, "running", (), {})
        self.status, self.summary, self.error = "running", {}, None

    def note(self, points: Sequence[ValidationPoint]) -> None:
        """Adds validations of the running attempt; epochs that the curve has already are left out.

        A validation beyond those of all attempts resets the count of interruptions. An attempt that continues from its
        checkpoint may repeat earlier ones."""
        for point in points:
            if not self.curve or point.epoch > self.curve[-1][0]:
                self.curve.append((point.epoch, point.m_recall))
        if self.epoch > self.furthest + SAME_EPOCH:
            self.furthest, self.interruptions = self.epoch, 0

    def end(self, status: AttemptStatus, summary: Mapping[str, float], error: str | None) -> None:
        """Ends the running attempt."""
        assert self._running is not None, f"{self.assignment.trial.trial}: no attempt is running"
        ended = replace(
            self._running, status=status, curve=tuple(self.curve), summary=dict(summary), error=error
        )
        self._ended.append(ended)
        self._running, self.status, self.error = None, status, error


FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 60.0
"""A trial pauses 2, 4, 8, ... seconds after its first, second, third interruption in a row, at most one minute."""


def pause_after(interruptions: int) -> float:
    """Seconds that a trial waits after this many interruptions in a row (1 is the first)."""
    return float(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (interruptions - 1)))


class Requeued:
    """Names of trials in the order of their interruptions. not_before: gives the time from which one may continue, on
    the clock of `now` in `next`; it may change while the trial is in the queue."""

    def __init__(self, *, not_before: Callable[[str], float]) -> None:
        self._not_before = not_before
        self._names: list[str] = []

    def add(self, trial: str) -> None:
        self._names.append(trial)

    def next(self, now: float, *, may: Callable[[str], bool] = lambda trial: True) -> str | None:
        """Takes the first trial that may continue; None if there is none. Trials that `may` excludes keep their place.
        """
        found = next((name for name in self._names if self._not_before(name) <= now and may(name)), None)
        if found is not None:
            self._names.remove(found)
        return found
