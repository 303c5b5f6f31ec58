"""The loop of a driver is Ray Tune's. It calls these hooks, each a thin layer over the ledger, in this order.

ask: `LedgerSearcher.suggest` gives the next trial, for which Tune starts a worker. decide: `CellScheduler` says at
every report of a worker whether its trial stops. record: `RecordingCallback` gives reports and deaths of workers to the
ledger. end: `StudyStopper` ends the loop once the study is asked to stop; else it ends when nothing is left to ask.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ray import cloudpickle, tune
from ray.exceptions import RayActorError, RayTaskError
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from vsetune.config.study.resources import Needs
from vsetune.config.study.study_spec import ConstraintSpec, SchedulerSpec
from vsetune.errors import one_line
from vsetune.home.paths import home
from vsetune.records.events import TARGET_REACHED, AttemptStatus, ValidationPoint
from vsetune.search.objectives import broken_for_good
from vsetune.search.stopping.rule import StoppingRule
from vsetune.search.stopping.rules import stopping_rule
from vsetune.study.capacity import Capacity
from vsetune.study.ledger import INTERRUPTED, StudyLedger
from vsetune.study.signals import Signals, SignsOfLife
from vsetune.study.stopping import StopRequest
from vsetune.study.study_metrics import StudyMetrics
from vsetune.study.trainable import SpoiltProcess, report_of
from vsetune.study.trials import PlannedTrial


class StaysHere:
    """An object that pickles as empty. Tune pickles its callbacks to restore them in another process; vsetune rebuilds
    them from the store instead."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


Listener = Callable[[], None]
TRIALS_LEAVE_WITHIN_S = 20.0
"""How long trials have after the request to stop, for the current step and a checkpoint."""
DIED = "its process died (killed, out of memory, its node gone?)"
_UNKNOWN = ("Worker unexpectedly exits with a connection error", "The actor died unexpectedly")
"""How Ray opens a reason when it only knows that the connection to the process ended."""


class LedgerSearcher(StaysHere, Searcher):
    """Gives Tune the trials of a ledger until the ledger is done or a stop is requested.

    needs_of: resources of a cell's trials. A trial of any cell is handed out when there is room for the study's
    smallest trial; a larger one waits in Tune until nodes are free. Cells whose trials fit no node any more are left
    out until such a node is added.
    """

    def __init__(
        self, ledger: StudyLedger, to_config: Callable[[PlannedTrial], dict[str, Any]], *,
        needs_of: Mapping[str, Needs], capacity: Capacity, stop: StopRequest, on_wait: Listener,
    ) -> None:
        super().__init__()
        self._ledger, self._to_config, self._stop, self._on_wait = ledger, to_config, stop, on_wait
        self._needs_of, self._capacity = needs_of, capacity
        self._in_flight: dict[str, Needs] = {}

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if self._stop.is_requested:
            return str(Searcher.FINISHED)
        fitting = {cell: needs for cell, needs in self._needs_of.items() if self._capacity.has_place(needs)}
        if not fitting or not self._capacity.allows(list(self._in_flight.values()), min(fitting.values())):
            self._on_wait()
            return None
        self._ledger.places = self._capacity.room(min(fitting.values()))
        planned = self._ledger.next(fitting)
        if planned == "done":
            return str(Searcher.FINISHED)
        if planned == "wait":
            self._on_wait()  # while nothing runs, Tune asks once a second and shows nothing
            return None
        self._in_flight[trial_id] = self._needs_of[planned.cell]
        return self._to_config(planned)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Frees the trial's place. The result is recorded by the callback, which knows the trial."""
        self._in_flight.pop(trial_id, None)

    def save(self, checkpoint_path: str) -> None:
        """Does nothing: the ledger is rebuilt from the log."""

    def restore(self, checkpoint_path: str) -> None:
        """Does nothing: the ledger is rebuilt from the log."""


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
        rules = {cell: stopping_rule(spec, epochs=length) for cell, length in epochs.items() if length}
        self.rules: dict[str, StoppingRule] = {cell: rule for cell, rule in rules.items() if rule is not None}

    def replay(self, ledger: StudyLedger) -> None:
        """Gives the rules all points that the search saw before this process started, including those of unfinished
        trials. Of a trial that was repeating lost epochs when the earlier process ended, the longest curve counts."""
        for name, planned in ledger.trials.items():
            if planned.phase == "search" and planned.cell in self.rules:
                self.rules[planned.cell].replay(name, planned.attempts.longest_curve)

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


class RecordingCallback(StaysHere, tune.Callback):
    """Records every report of a worker in the ledger, then notifies the listeners.

    on_pause: receives the name of an interrupted trial, the reason, and the seconds until it continues (None: left
    open); not called once the study is asked to stop. on_warnings: receives warnings of a worker's log. forget:
    receives the folder of a trial whose checkpoint is no longer needed. reasons: by trial, why the scheduler stopped
    it; the scheduler adds to it.
    """

    def __init__(
        self, ledger: StudyLedger, *, signs: SignsOfLife, stop: StopRequest, on_change: Listener, on_tick: Listener,
        on_pause: Callable[[str, str, float | None], None], on_warnings: Callable[[Sequence[str]], None],
        forget: Callable[[Path], None], metrics: StudyMetrics, reasons: Mapping[str, str],
    ) -> None:
        self._reasons, self._stop = reasons, stop
        self._ledger, self._signs, self._metrics = ledger, signs, metrics
        self._on_change, self._on_tick, self._on_pause, self._forget = on_change, on_tick, on_pause, forget
        self._on_warnings = on_warnings

    def on_trial_start(self, iteration: int, trials: Sequence[Any], trial: Any, **info: Any) -> None:
        self._signs.started(trial)
        self._metrics.placed(trial.config["trial"]["trial"])

    def on_trial_result(
        self, iteration: int, trials: Sequence[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        name, report = trial.config["trial"]["trial"], report_of(result)
        self._signs.reported(trial)
        self._on_warnings(report.get("warnings", ()))
        if report["event"] == "interrupted":
            self._pause(name, report["error"])
        else:
            record_report(self._ledger, name, report, stopped_by=self._reasons.get(name, ""))
        if self._ledger.trials[name].status in ("finished", "pruned"):  # recorded, so it will not be continued
            self._forget(home() / trial.config["folder"])
        if report["done"]:
            self._signs.ended(trial)
        self._metrics.reported(name, report)
        self._on_change()

    def on_trial_error(self, iteration: int, trials: Sequence[Any], trial: Any, **info: Any) -> None:
        error = _error_of(trial)
        reason = self._signs.ended(trial) or reason_of(error)
        was_asked = isinstance(error, SpoiltProcess) and error.kind == "preempted"
        self._pause(trial.config["trial"]["trial"], reason, was_asked=was_asked)
        self._metrics.died(trial.config["trial"]["trial"])
        self._on_change()

    def on_step_end(self, iteration: int, trials: Sequence[Any], **info: Any) -> None:
        self._signs.look()
        self._metrics.tick()
        self._on_tick()

    def _pause(self, name: str, reason: str, *, was_asked: bool = False) -> None:
        if self._ledger.trials[name].is_closed:
            return
        if self._stop.is_requested and reason.startswith("preempted:"):
            reason = INTERRUPTED
        goes_on_in = self._ledger.interrupted(name, reason, was_asked=was_asked)
        is_failed = self._ledger.trials[name].is_closed  # by the same error at the same place as before
        if not is_failed and not self._stop.is_requested:
            self._on_pause(name, reason, goes_on_in)


def record_report(ledger: StudyLedger, trial: str, report: Mapping[str, Any], *, stopped_by: str = "") -> None:
    """Records one report of AttemptTrainable in the ledger. `done` without `is_finished` means that the scheduler
    stopped the trial; stopped_by: its reason. A trial that has reached its target counts as finished."""
    event, summary = report.get("event"), report.get("summary", {})
    if event == "opened":
        ledger.open_attempt(
            trial, number=report["number"], environment=report["environment"], protocol=report["protocol"],
            inherited=[ValidationPoint(**point) for point in report["inherited"]],
        )
    elif event == "failed":
        ledger.close(trial, "failed", summary=summary, error=report["error"])
        return
    elif event == "point" and report.get("point") is not None:
        ledger.record_point(trial, ValidationPoint(**report["point"]), summary=summary)
    if report.get("done"):
        is_whole, is_hit = bool(report.get("is_finished")), stopped_by.startswith(TARGET_REACHED)
        status: AttemptStatus = "finished" if is_whole or is_hit else "pruned"
        artifacts = [home() / path for path in report.get("artifacts", [])]
        why = stopped_by or None if not is_whole else None
        ledger.close(trial, status, summary=summary, artifacts=artifacts, error=why)


def _error_of(trial: Any) -> BaseException | None:
    """The error raised by an actor that Tune gave up, or Ray's error if it died; None if there is none. Tune stores it
    in the trial's folder."""
    file = trial.pickled_error_file
    error = cloudpickle.loads(Path(file).read_bytes()) if file and Path(file).exists() else None
    return error.cause if isinstance(error, RayTaskError) else error


def reason_of(error: BaseException | None) -> str:
    """Why Tune gave up a trial's actor, in one line."""
    if isinstance(error, SpoiltProcess):
        return str(error)
    if error is None:
        return f"process: {DIED}"
    lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith("\t")]
    if not isinstance(error, RayActorError) or not lines:
        return f"process: {one_line(error, most=300)}"
    if error.actor_init_failed:
        return f"process: it could not start ({one_line(lines[-1], most=300)})"
    detail = " ".join(lines[1:] or lines).rpartition("exit detail: ")[2]
    return f"process: {DIED if detail.startswith(_UNKNOWN) else f'its process died ({one_line(detail, most=300)})'}"


class StudyStopper(StaysHere, tune.Stopper):
    """Ends Tune's loop once the study is asked to stop and its trials have written a checkpoint, or have taken longer
    than TRIALS_LEAVE_WITHIN_S."""

    def __init__(self, stop: StopRequest, signals: Signals, signs: SignsOfLife) -> None:
        self._stop, self._signals, self._signs = stop, signals, signs

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        """Whether the loop ends; Tune asks after every step of it."""
        if not self._stop.is_requested:
            return False
        if not self._stop.leaves_time or not self._signs.are_awaited:
            return True
        self._signals.ask_to_stop()
        return time.monotonic() - self._stop.since > TRIALS_LEAVE_WITHIN_S
