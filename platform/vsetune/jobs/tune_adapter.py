"""Ray Tune's three hooks, each a thin view of the ledger: what to run, when to stop, what came back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ray import tune
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from vsetune.config.study import SchedulerSpec
from vsetune.jobs.ledger import Assignment, StudyLedger
from vsetune.tracking.records import AttemptStatus, ValidationPoint
from vsetune.training.checkpoint import CHECKPOINT_FILE

Listener = Callable[[], None]


class _StaysHere:
    """Tune pickles all it is given, to restore it in another process. We rebuild from the store instead, so nothing."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


class LedgerSearcher(_StaysHere, Searcher):
    """Hands Tune the trials of a ledger."""

    def __init__(self, ledger: StudyLedger, to_config: Callable[[Assignment], dict[str, Any]]) -> None:
        super().__init__()
        self._ledger, self._to_config = ledger, to_config
        self._names: dict[str, str] = {}

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        assignment = self._ledger.next()
        if assignment == "done":
            return str(Searcher.FINISHED)
        if assignment == "wait":
            return None
        self._names[trial_id] = assignment.trial.trial
        return self._to_config(assignment)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        if error:
            self._ledger.close(
                self._names[trial_id], "failed", summary={},
                error="its process died and every retry too (killed, out of memory?); see the worker logs of Ray",
            )

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the ledger is rebuilt from the tracking store."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: the ledger is rebuilt from the tracking store."""


class CellScheduler(FIFOScheduler):
    """Asynchronous successive halving in epochs, one bracket per cell; confirmations always run to their end."""

    def __init__(self, spec: SchedulerSpec, *, epochs: float) -> None:
        super().__init__()
        self._spec, self._epochs = spec, epochs
        self._brackets: dict[str, ASHAScheduler] = {}

    def replay(self, ledger: StudyLedger) -> None:
        """Fills the rungs with the curves of trials that ended before this process started."""
        for name, progress in ledger.trials.items():
            bracket = self._bracket(progress.assignment.trial.cell, progress.assignment.phase)
            if bracket is None or not progress.is_closed:
                continue
            trial, best = SimpleNamespace(trial_id=name), 0.0
            bracket.on_trial_add(None, trial)
            for epoch, m_recall in progress.curve:
                best = max(best, m_recall)
                bracket.on_trial_result(None, trial, {"epoch": epoch, "best_m_recall": best})

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        bracket = self._bracket_of(trial)
        if bracket is not None:
            bracket.on_trial_add(tune_controller, trial)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: Mapping[str, Any]) -> str:
        bracket = self._bracket_of(trial)
        if bracket is None:
            return str(TrialScheduler.CONTINUE)
        return str(bracket.on_trial_result(tune_controller, trial, result))

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: Mapping[str, Any]) -> None:
        bracket = self._bracket_of(trial)
        if bracket is not None:
            bracket.on_trial_complete(tune_controller, trial, result)

    def on_trial_remove(self, tune_controller: Any, trial: Any) -> None:
        bracket = self._bracket_of(trial)
        if bracket is not None:
            bracket.on_trial_remove(tune_controller, trial)

    def debug_string(self) -> str:
        return f"successive halving in {len(self._brackets)} cells"

    def _bracket_of(self, trial: Any) -> ASHAScheduler | None:
        return self._bracket(trial.config["trial"]["cell"], trial.config["phase"])

    def _bracket(self, cell: str, phase: str) -> ASHAScheduler | None:
        if self._spec.kind == "none" or phase != "search":
            return None
        if cell not in self._brackets:
            self._brackets[cell] = ASHAScheduler(
                time_attr="epoch", metric="best_m_recall", mode="max", max_t=self._epochs,
                grace_period=self._spec.grace_epochs, reduction_factor=self._spec.reduction_factor,
            )
        return self._brackets[cell]


class RecordingCallback(_StaysHere, tune.Callback):
    """Writes every report of a worker through the ledger, then tells the listeners that something changed.

    on_retry: told the name of a trial whose process died and that Tune places again.
    """

    def __init__(
        self, ledger: StudyLedger, *, on_change: Listener, on_tick: Listener, on_retry: Callable[[str], None]
    ) -> None:
        self._ledger, self._on_change, self._on_tick, self._on_retry = ledger, on_change, on_tick, on_retry

    def on_trial_result(
        self, iteration: int, trials: Sequence[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        name = trial.config["trial"]["trial"]
        record_report(self._ledger, name, result)
        if self._ledger.trials[name].status in ("finished", "pruned"):  # recorded: nobody will continue it
            (Path(trial.config["folder"]) / CHECKPOINT_FILE).unlink(missing_ok=True)
        self._on_change()

    def on_trial_recover(self, iteration: int, trials: Sequence[Any], trial: Any, **info: Any) -> None:
        self._on_retry(trial.config["trial"]["trial"])

    def on_trial_error(self, iteration: int, trials: Sequence[Any], trial: Any, **info: Any) -> None:
        self._on_change()

    def on_step_end(self, iteration: int, trials: Sequence[Any], **info: Any) -> None:
        self._on_tick()


def record_report(ledger: StudyLedger, trial: str, report: Mapping[str, Any]) -> None:
    """One report of AttemptTrainable into the ledger. `done` without `is_finished` means the scheduler stopped it."""
    event = report.get("event")
    if event == "opened":
        ledger.open_attempt(
            trial, number=report["number"], environment=report["environment"], protocol=report["protocol"],
            inherited=[ValidationPoint(**point) for point in report["inherited"]],
        )
    elif event == "failed":
        ledger.close(trial, "failed", summary=report["summary"], error=report["error"])
        return
    elif event == "point" and report.get("point") is not None:
        ledger.record_point(trial, ValidationPoint(**report["point"]))
    if report.get("done"):
        status: AttemptStatus = "finished" if report.get("is_finished") else "pruned"
        artifacts = [Path(path) for path in report.get("artifacts", [])]
        ledger.close(trial, status, summary=report.get("summary", {}), artifacts=artifacts)
