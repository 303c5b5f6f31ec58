"""A cluster in virtual time: workers report simulated validations; the driver's code is the real one.

The code between Ray and the store is the same as in a study: the ledger decides what runs next, the scheduler of the
cells decides at every validation, `record_report` records the report. Only training and waiting are simulated.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ray.tune.schedulers import TrialScheduler

from vsetune.jobs.cell_scheduler import CellScheduler
from vsetune.jobs.ledger import StudyLedger
from vsetune.jobs.trainable import as_result
from vsetune.jobs.trial_progress import Assignment, TrialProgress
from vsetune.jobs.tune_adapter import record_report

DIVERGED = "M-Recall is not finite"


class VirtualClock:
    """Seconds since the start of a simulation, advanced by the cluster. The ledger must use the same clock."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class Course:
    """A trial that is not stopped. points: (epoch, M-Recall) of every validation; NaN: it diverges there."""

    points: Sequence[tuple[float, float]]
    epoch_seconds: float


@dataclass
class _Running:
    """A trial on a worker. config: as in Tune's trial. reported: number of points reported so far."""

    name: str
    course: Course
    config: dict[str, Any]
    reported: int = 0

    @property
    def epochs_to_next(self) -> float:
        """Epochs from the last report, or the start, to the next report."""
        before = self.course.points[self.reported - 1][0] if self.reported else 0.0
        return self.course.points[self.reported][0] - before


class VirtualCluster:
    """A number of simulated workers, each with one trial of a ledger at a time.

    Reports come in the order of their virtual times; reports at equal times come in the order in which their training
    began. A free worker asks the ledger at once. epochs: trained so far, by all trials.
    """

    def __init__(
        self, ledger: StudyLedger, scheduler: CellScheduler, course_of: Callable[[Assignment], Course], *,
        workers: int, clock: VirtualClock, on_closed: Callable[[TrialProgress], None],
    ) -> None:
        """clock: that of the ledger. on_closed: called with every trial when it ends."""
        self._ledger, self._scheduler, self._course_of = ledger, scheduler, course_of
        self._free, self._clock, self._on_closed = workers, clock, on_closed
        self._due: list[tuple[float, int, _Running]] = []
        self._order = itertools.count()
        self.epochs = 0.0

    def run(self) -> None:
        """Runs until the ledger has nothing left to hand out and every trial has ended."""
        self._hand_out()
        while self._due:
            self._clock.now, _, running = heapq.heappop(self._due)
            self._report(running)
            if self._ledger.trials[running.name].is_closed:
                self._free += 1
                self._on_closed(self._ledger.trials[running.name])
                self._hand_out()
            else:
                self._await(running)

    def _hand_out(self) -> None:
        while self._free and isinstance(assignment := self._ledger.next(), Assignment):
            self._free -= 1
            config = {
                "trial": {"trial": assignment.trial.trial, "cell": assignment.trial.cell}, "phase": assignment.phase,
            }
            record_report(
                self._ledger, assignment.trial.trial,
                {"event": "opened", "number": 1, "environment": {}, "protocol": {}, "inherited": []},
            )
            self._await(_Running(assignment.trial.trial, self._course_of(assignment), config))

    def _await(self, running: _Running) -> None:
        seconds = running.epochs_to_next * running.course.epoch_seconds
        heapq.heappush(self._due, (self._clock.now + seconds, next(self._order), running))

    def _report(self, running: _Running) -> None:
        """Reports the next validation of a trial. As with Tune, the scheduler decides at every one but the last."""
        course = running.course
        epoch, m_recall = course.points[running.reported]
        self.epochs += running.epochs_to_next
        running.reported += 1
        seconds = epoch * course.epoch_seconds
        summary = {"epochs": epoch, "train_seconds": seconds, "device_seconds": seconds}
        if not math.isfinite(m_recall):
            failure = {"event": "failed", "error": f"epoch {epoch:g}: {DIVERGED}", "summary": summary, "done": True}
            record_report(self._ledger, running.name, failure)
            return
        point = {
            "step": running.reported, "epoch": epoch, "pairs_seen": running.reported, "m_recall": m_recall,
            "train_seconds": seconds,
        }
        report: dict[str, Any] = {"event": "point", "point": point, "summary": summary}
        if running.reported == len(course.points):
            report |= {"done": True, "is_finished": True}
        elif self._stops(running, epoch, m_recall):
            report |= {"done": True}
        record_report(self._ledger, running.name, report, stopped_by=self._scheduler.reasons.get(running.name, ""))

    def _stops(self, running: _Running, epoch: float, m_recall: float) -> bool:
        result = as_result({"event": "point", "point": {"epoch": epoch, "m_recall": m_recall}})
        return self._scheduler.on_trial_result(None, running, result) == str(TrialScheduler.STOP)
