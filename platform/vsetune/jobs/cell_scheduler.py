"""When Ray Tune stops a trial: a stopping rule for each cell; confirming runs always go on to their end."""

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
    """A thin view of the rules. The points they decide about are those of the curve, inherited ones included.

    Whatever the rule, a trial stops that breaks a constraint of the study, or has reached the target of its search.
    """

    def __init__(
        self, spec: SchedulerSpec, *, epochs: Mapping[str, float],
        target_of: Callable[[str], float | None] = lambda cell: None, constraints: ConstraintSpec | None = None,
    ) -> None:
        """epochs: of a full attempt, by cell; a cell may train longer than the study's others. target_of: the M-Recall
        at which trials of a cell's search have shown all, None where there is none."""
        super().__init__()
        self._target_of, self._constraints = target_of, constraints or ConstraintSpec()
        self.reasons: dict[str, str] = {}
        """Why a trial was stopped, by its name."""
        self.kind = spec.kind
        rules = {cell: stopping_rule(spec, epochs=length) for cell, length in epochs.items()}
        self.rules: dict[str, StoppingRule] = {cell: rule for cell, rule in rules.items() if rule is not None}

    def replay(self, ledger: StudyLedger) -> None:
        """Tells the rules all that the search has seen before this process started, unfinished trials included, and of
        a trial that was repeating what it had lost when that ended, how far it had come before."""
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
    """That one of the validations is at or above the target, in words; empty where none is."""
    if target is None:
        return ""
    hit = next(((epoch, m_recall) for epoch, m_recall in points if m_recall >= target), None)
    return f"{TARGET_REACHED}: {hit[1]:.2f} at epoch {hit[0]:g}, target {target:.2f}" if hit is not None else ""


def _points(report: Mapping[str, Any]) -> list[tuple[float, float]]:
    """The validations that a report tells of.

    An attempt that continues tells of those it inherits, of which the driver may not have heard the last: its process
    died, or the driver's did, between the validation and the report.
    """
    points = report["inherited"] if report["event"] == "opened" else [report.get("point")]
    return [(point["epoch"], point["m_recall"]) for point in points if point is not None]
