"""What `StudyTally` keeps, found by looking through all trials at every question: slow and plain, to compare with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from vsetune.report.selection import cost_of
from vsetune.study.study_tally import CellTally
from vsetune.study.trials import TrialProgress


class RecountedTally:
    """Of these trials by name, in the order in which they were handed out; they may change and grow."""

    def __init__(self, trials: Mapping[str, TrialProgress]) -> None:
        self._trials = trials

    @property
    def ended(self) -> int:
        return sum(trial.is_closed for trial in self._trials.values())

    @property
    def statuses(self) -> Counter[str]:
        return Counter(trial.status for trial in self._trials.values())

    @property
    def states(self) -> Counter[str]:
        return Counter(_state_of(trial) for trial in self._trials.values())

    def cell(self, name: str) -> CellTally:
        trials = [trial for trial in self._trials.values() if trial.assignment.trial.cell == name]
        cost = cost_of([trial.attempts() for trial in trials if trial.attempts()])
        return CellTally(
            ended=sum(trial.is_closed for trial in trials),
            running=tuple(trial for trial in trials if trial.status == "running"),
            best=max((trial.best_m_recall or 0.0 for trial in trials), default=0.0),
            charged_epochs=cost.budget_epochs, wasted_epochs=cost.wasted_epochs, device_seconds=cost.device_seconds,
            attempts=Counter(attempt.status for trial in trials for attempt in trial.attempts()),
        )


def _state_of(trial: TrialProgress) -> str:
    if trial.is_left_open and not trial.is_closed:
        return "left_open"
    return "waiting" if trial.status == "killed" else trial.status
