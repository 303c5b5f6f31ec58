"""The trials that a study runs, and the queue of interrupted ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from vsetune.config.study.cells import Configuration
from vsetune.config.study.training import TrialSpec
from vsetune.metrics.curves import SAME_EPOCH, best_of_curve
from vsetune.records.events import AttemptStatus
from vsetune.records.state import Attempt, StudyState, Trial

Phase = Literal["search", "confirm"]
TERMINAL: tuple[AttemptStatus, ...] = ("finished", "pruned", "failed")


_NOT_BEGUN = Trial()


@dataclass(eq=False)
class PlannedTrial:
    """A trial that its study runs, has run or will run.

    number: the configuration's number in its cell. drawn_by: how it was sampled, in one line. roles: of a confirming
    trial, why its configuration is confirmed; empty if the study's own seeds confirm the winner.

    What only this process knows: is_again: failed before, and to run again. interruptions: number in a row, without a
    validation beyond all earlier ones between them. not_before: when it may continue, on the ledger's clock.
    is_left_open: interrupted too often, left for the next run of the study. reason: of the interruption since which it
    has not begun. totals: of the running attempt, as last reported.
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
        last = self.last
        return "waiting" if last is None or last.status == "killed" or self.is_again else last.status

    @property
    def is_closed(self) -> bool:
        """Whether the trial has ended: finished, pruned or failed."""
        return self.status in TERMINAL

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
