"""Early stopping in Ray Tune: a stopping rule for each cell; confirming runs are never stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from vsetune.config.study.study_spec import ConstraintSpec, SchedulerSpec
from vsetune.jobs.ledger import StudyLedger
from vsetune.jobs.stays_here import StaysHere
from vsetune.jobs.trainable import report_of
from vsetune.records.attempts import TARGET_REACHED
from vsetune.search.objectives import broken_for_good
from vsetune.search.stopping.choosing import stopping_rule
from vsetune.search.stopping.rule import StoppingRule


class CellScheduler(StaysHere, FIFOScheduler):
    """A thin layer over the stopping rules. They decide on the points of the curve, including inherited ones.

    With any rule, a trial stops when it breaks a constraint of the study or reaches the target of its search.
    """

    def __init__(
        self, spec: SchedulerSpec, *, epochs: Mapping[str, float],
        target_of: Callable[[str], float | None] = lambda cell: None, constraints: ConstraintSpec | None = None,
    ) -> None:
        """epochs: of a full attempt, by cell; cells of a study may differ. target_of: the M-Recall at which trials of a
        cell's search stop, None without a target."""
        super().__init__()
        self._target_of, self._constraints = target_of, constraints or ConstraintSpec()
        self.reasons: dict[str, str] = {}
        """By trial, why it was stopped."""
        self.kind = spec.kind
        rules = {cell: stopping_rule(spec, epochs=length) for cell, length in epochs.items()}
        self.rules: dict[str, StoppingRule] = {cell: rule for cell, rule in rules.items() if rule is not None}

    def replay(self, ledger: StudyLedger) -> None:
        """Gives the rules all points that the search saw before this process started, including those of unfinished
        trials. Of a trial that was repeating lost epochs when the earlier process ended, the longest curve counts."""
        for name, progress in ledger.trials.items():
            assignment = progress.assignment
            if assignment.phase == "search" and assignment.trial.cell in self.rules:
                self.rules[assignment.trial.cell].replay(name, progress.longest_curve)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: Mapping[str, Any]) -> str:
        cell, name = trial.config["trial"]["cell"], trial.config["trial"]["trial"]
        if trial.config["phase"] != "search":
            return str(TrialScheduler.CONTINUE)
        rule, report = self.rules.get(cell), report_of(result)
        points = _points(report)
        reasons = [rule.note(name, epoch, m_recall) for epoch, m_recall in points] if rule is not None else []
        why = f"{self.kind}: {reasons[-1]}" if reasons and reasons[-1] else ""
        broken = broken_for_good(self._constraints, report.get("summary", {})) if points else ""
        why = broken or _hit(points, self._target_of(cell)) or why
        if not why:
            return str(TrialScheduler.CONTINUE)
        self.reasons[name] = why
        return str(TrialScheduler.STOP)

    def debug_string(self) -> str:
        return f"{self.kind} in {len(self.rules)} cells"


def _hit(points: Sequence[tuple[float, float]], target: float | None) -> str:
    """A line if one of the validations is at or above the target; else empty."""
    if target is None:
        return ""
    hit = next(((epoch, m_recall) for epoch, m_recall in points if m_recall >= target), None)
    return f"{TARGET_REACHED}: {hit[1]:.2f} at epoch {hit[0]:g}, target {target:.2f}" if hit is not None else ""


def _points(report: Mapping[str, Any]) -> list[tuple[float, float]]:
    """The validations in a report, as (epoch, M-Recall).

    An attempt that continues reports the validations that it inherits. The driver may not have received the last of
    them, if the attempt's process or the driver's died between the validation and the report.
    """
    points = report["inherited"] if report["event"] == "opened" else [report.get("point")]
    return [(point["epoch"], point["m_recall"]) for point in points if point is not None]
