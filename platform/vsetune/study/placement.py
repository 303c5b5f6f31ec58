"""Placement of the trials that the ledger hands out: Ray Tune runs them, the driver decides and records."""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.execution import class_cache
from rich.console import Console, RenderableType

from vsetune.config.study.resources import Needs
from vsetune.home.addresses import is_secret_variable
from vsetune.home.paths import remote_home
from vsetune.study.capacity import Capacity
from vsetune.study.cluster import capacity_of
from vsetune.study.ledger import StudyLedger
from vsetune.study.node_types import refused, unused_gpus
from vsetune.study.preparation import PreparedStudy
from vsetune.study.signals import Signals, SignsOfLife
from vsetune.study.stopping import StopRequest
from vsetune.study.study_metrics import StudyMetrics
from vsetune.study.study_progress import StudyProgress
from vsetune.study.trainable import AttemptTrainable
from vsetune.study.trials import PlannedTrial
from vsetune.study.tune_adapter import CellScheduler, LedgerSearcher, RecordingCallback, StudyStopper

# Tune stores nothing itself: results go to the log, checkpoints to the trial's folder. Signals are handled by
# StopRequest, not by Tune.
_TUNE_SETTINGS = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000000",  # else it keeps the text of every trial in memory, again each hour
    "TUNE_MAX_PENDING_TRIALS_PG": "1000000",  # `Capacity` decides how many wait for a place
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "RAY_AIR_NEW_OUTPUT": "0",
}


def place_trials(
    prepared: PreparedStudy, ledger: StudyLedger, stop: StopRequest, console: Console, *,
    forget: Callable[[Path], None], metrics: StudyMetrics, first_board: Callable[[], RenderableType | None],
) -> None:
    """Runs Tune until the ledger is done or `stop` is requested. Ray must be connected and `stop` must listen.

    forget: receives the folder of each trial whose checkpoint is no longer needed. first_board: as in `StudyProgress`.
    """
    spec = prepared.spec
    needs_of = _needs_of_cells(prepared)
    capacity = capacity_of(spec.resources, needs_of.values())
    lengths = {cell.name: float(cell.training["epochs"]) for cell in prepared.cells}
    scheduler = CellScheduler(
        spec.scheduler, epochs=lengths, target_of=ledger.target_of, constraints=spec.search.constraints
    )
    scheduler.replay(ledger)
    quiet_tune()
    # Tune writes its own notes about each trial. They are not used, and must not take space on the disk of the results.
    with (
        StudyProgress(ledger, console, first_board=first_board) as progress, closing(Signals()) as signals,
        tempfile.TemporaryDirectory(prefix="vsetune-tune-") as scratch,
    ):
        signs = SignsOfLife(spec.resources.silence_timeout_s, signals.pulses)
        shortage = Shortage(capacity, needs_of, ledger.unfinished, progress.say)

        def tick() -> None:
            shortage.look()
            progress.tick()

        searcher = LedgerSearcher(
            ledger,
            lambda each: _worker_config(
                prepared, each, needs_of[each.cell], signals=signals.name, recorded=each.attempts.number,
            ),
            needs_of=needs_of, capacity=capacity, stop=stop, on_wait=tick,
        )
        recording = RecordingCallback(
            ledger, signs=signs, stop=stop, on_change=progress.changed, on_tick=tick, on_pause=progress.paused,
            on_warnings=progress.warned, forget=forget, metrics=metrics, reasons=scheduler.reasons,
        )
        tuner = tune.Tuner(
            AttemptTrainable,
            tune_config=tune.TuneConfig(
                search_alg=searcher, scheduler=scheduler, num_samples=-1, reuse_actors=True,
                trial_name_creator=_trial_name, trial_dirname_creator=_folder_name,
            ),
            run_config=tune.RunConfig(
                name=spec.study, storage_path=scratch, verbose=0, stop=StudyStopper(stop, signals, signs),
                callbacks=[recording], failure_config=tune.FailureConfig(max_failures=0),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            ),
        )
        tuner.fit()
        progress.changed()


def require_places(prepared: PreparedStudy) -> list[str]:
    """ConfigError if the connected cluster has no room for some trial and cannot get it. Returns lines on resources
    that the trials do not use."""
    needs = _needs_of_cells(prepared).values()
    return unused_gpus(needs, capacity_of(prepared.spec.resources, needs).nodes())


def quiet_tune() -> None:
    """Makes Tune store and print nothing itself, in this process."""
    os.environ.update(_TUNE_SETTINGS)
    for name in ("ray.tune", "ray.train", "ray._private", "ray.air"):  # else a page for every worker that dies
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _needs_of_cells(prepared: PreparedStudy) -> dict[str, Needs]:
    resources = prepared.spec.resources
    return {cell.name: resources.needs_of(cell.network_name, cell.loss_name) for cell in prepared.cells}


def _worker_config(
    prepared: PreparedStudy, planned: PlannedTrial, needs: Needs, *, signals: str, recorded: int
) -> dict[str, Any]:
    """The configuration of a worker, as plain data. signals: name of the `Signals`. recorded: attempts so far."""
    return {
        "trial": planned.spec.to_plain(),
        "phase": planned.phase,
        "folder": prepared.worker_folder(planned.name),
        "home": remote_home(),
        "needs": asdict(needs),
        "reading": asdict(prepared.spec.resources.reading_of(needs)),
        "checkpoint_share": prepared.spec.resources.checkpoint_share,
        "calibrates": prepared.calibrates,
        "signals": signals,
        "system_metrics": prepared.spec.tracking.system_metrics,
        "recorded": recorded,
    }


def _trial_name(trial: Any) -> str:
    return str(trial.config["trial"]["trial"])


def _folder_name(trial: Any) -> str:
    """Tune's folder of a trial. A trial that is placed again after an interruption gets another one."""
    return f"{_trial_name(trial)}-{trial.trial_id}"


REPORTED_AFTER_S = 30.0
"""Delay before a missing node is reported: a node that dies is often replaced, and Ray adds nodes only on demand."""
_LOOK_EVERY_S = 5.0


class Shortage:
    """Reports trials for which no node has room. needs_of: resources of a cell's trials. unfinished: the cells that
    have trials to run. say: prints a line."""

    def __init__(
        self, capacity: Capacity, needs_of: Mapping[str, Needs], unfinished: Callable[[], list[str]],
        say: Callable[[str], None], *, clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._capacity, self._needs_of, self._unfinished = capacity, needs_of, unfinished
        self._say, self._clock = say, clock
        self._since: dict[Needs, float] = {}
        self._reported: set[Needs] = set()
        self._next_look = float("-inf")

    def look(self) -> None:
        """Checks, at most every _LOOK_EVERY_S, whether a node has room for every kind of trial still to run."""
        now = self._clock()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_EVERY_S
        nodes = self._capacity.nodes()
        lacking = {needs: why for needs in set(self._needs_of.values()) if (why := refused(needs, (), nodes))}
        for needs in [needs for needs in self._since if needs not in lacking]:
            del self._since[needs]
            if needs in self._reported:
                self._reported.remove(needs)
                self._say(f"a node has room again for trials with {needs}")
        for needs, why in sorted(lacking.items()):
            if now - self._since.setdefault(needs, now) >= REPORTED_AFTER_S and needs not in self._reported:
                self._report(needs, why)

    def _report(self, needs: Needs, why: str) -> None:
        cells = [cell for cell in self._unfinished() if self._needs_of[cell] == needs]
        if cells:
            self._reported.add(needs)
            more = f" and {len(cells) - 1} more cells" if len(cells) > 1 else ""
            self._say(f"waiting for a node: a trial of {cells[0]}{more} asks for {why}; {self._hope(needs)}")

    def _hope(self, needs: Needs) -> str:
        types = [str(kind) for kind in self._capacity.types if kind.most and refused(needs, [kind], ()) is None]
        if types:
            return f"the cluster may add {' or '.join(types)}"
        return "it goes on when one comes; to go on without, stop the study, lower `resources` and resume it"


@contextmanager
def credentials_not_forwarded() -> Iterator[None]:
    """Inside the context, Tune forwards only those variables of the driver that contain no secret."""
    before = class_cache.ENV_VARS_TO_PROPAGATE
    class_cache.ENV_VARS_TO_PROPAGATE = {name for name in before if not is_secret_variable(name)}
    try:
        yield
    finally:
        class_cache.ENV_VARS_TO_PROPAGATE = before
