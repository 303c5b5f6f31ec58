"""One attempt inside a Ray worker. Reports are plain data; every failure except the death of the process is reported.

A failure that would only occur again (configuration, data, numbers) ends the trial with a reason. A failure from
outside (storage, network, device, memory) is reported as an interruption: the driver hands the trial out again later,
and the next attempt continues from the checkpoint in the trial's folder. The ledger detects an error that the trial's
code raises twice.
"""

from __future__ import annotations

import logging
import os
import socket
import traceback
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from ray.tune import PlacementGroupFactory, Trainable

from vsetune.config.sources.trial_inputs import Reading
from vsetune.config.study.resources import Needs
from vsetune.config.study.training import TrialSpec
from vsetune.errors import AttemptError, ConfigError, DamagedCheckpoint, StorageError
from vsetune.home.addresses import mask_output
from vsetune.home.home_folder import HomeFolder
from vsetune.home.paths import HOME_VARIABLE, home
from vsetune.study.first_stages import kept_stage
from vsetune.study.kept_plugins import load_kept, study_folder_of
from vsetune.study.metrics_export import MetricsBoard
from vsetune.study.signals import LeaveWatch, beat
from vsetune.study.study_home import BEGIN_WITHIN_S, CLOSE_WITHIN_S, TRIAL_END_WITHIN_S, fetch_trial, trial_files
from vsetune.study.trial_measures import (
    SystemMetrics,
    TrialMeter,
    TrialMetrics,
    place_of_this_worker,
)
from vsetune.study.trial_processes import TrialProcesses
from vsetune.training.attempt import TrainingAttempt
from vsetune.training.checkpoint import set_aside
from vsetune.training.device import choose_device, take_share
from vsetune.training.failures import Failure, Kind, failure_of
from vsetune.training.processes import ALONE

logger = logging.getLogger(__name__)


LEAVE_WITHIN_S = 60.0
"""How long an attempt on a leaving machine waits for its checkpoint to reach the home; spot gives two minutes."""


class SpoiltProcess(Exception):
    """Raised from a worker whose device has failed or whose machine will go, so that Tune replaces its process. A
    worker that only reported the failure would receive the next trial. The text is the reason. kind: of the failure.
    """

    def __init__(self, reason: str, kind: Kind) -> None:
        super().__init__(reason, kind)
        self.kind = kind

    def __str__(self) -> str:
        return str(self.args[0])


class AttemptTrainable(Trainable):
    """A warm actor that runs one attempt after another.

    config: trial (TrialSpec as plain data), phase (of the trial), folder (the trial's own: accessible to every node, or
    relative to the home folder of the worker's node), home (the remote home, which has the files too, or None),
    needs (`Needs` as plain data), reading (`Reading` as plain data), checkpoint_share (see `TrainingAttempt`),
    calibrates (whether times are also given in calibration products, see `TrialMeter`), system_metrics (whether points
    carry `SystemMetrics`), signals (the name of the study's `Signals`), recorded (attempts of the trial in the log).
    Reports, see `report_of`, each with an `event`: `opened` once, `point` per validation, and `failed` or `interrupted`
    at most once and last. `warnings`: warnings in this worker's log since the last report, absent if there are none.
    """

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> PlacementGroupFactory:
        """The needs of a trial as Ray's resources: a bundle for each process, on as few nodes as there is room."""
        whole = Needs(**config["needs"])
        needs = whole.of_process
        amounts = {"CPU": float(needs.cpus), "GPU": needs.gpus, "memory": needs.memory_gib * 2**30}
        if needs.accelerator:
            amounts[f"accelerator_type:{needs.accelerator}"] = 0.001  # any share of the resource that marks the node
        bundle = {name: amount for name, amount in amounts.items() if amount}
        return PlacementGroupFactory([bundle] * whole.workers, strategy="PACK")

    def setup(self, config: dict[str, Any]) -> None:
        mask_output()
        self._attempt: TrainingAttempt | None = None
        self._files: HomeFolder | None = None
        self._team: TrialProcesses | None = None
        self._metrics: TrialMetrics | None = None
        self._meter: TrialMeter | None = None
        self._system: SystemMetrics | None = None
        self._is_going_on = self._is_leaving = False
        self._wanted = config
        if config.get("home") is not None:
            os.environ[HOME_VARIABLE] = config["home"]
        if not hasattr(self, "_board"):  # the actor uses it for its next trials too
            self._board = MetricsBoard()
            self._board.start()
            self._warnings = RecentWarnings()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._close()
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        try:
            with LeaveWatch(self._leave, beat=self._beat).watching():
                report = self._open() if self._attempt is None else self._advance()
        except Exception as error:  # any error ends this attempt only
            report = self._failure(error)
        self._is_going_on = not report.get("done")
        if report.get("done"):
            self._leave_folder()  # the trial may continue in another process of this node
        if report.get("done") and self._metrics is not None:  # the actor may be kept for a while
            self._metrics.close()
        if report.get("done"):
            self._close_system()
        warnings = self._warnings.take()
        return as_result(report | {"warnings": warnings} if warnings else report)

    def cleanup(self) -> None:
        """Ends the actor. A trial that still runs, because the study is asked to stop, first writes a checkpoint."""
        if self._attempt is not None and self._is_going_on:
            try:
                self._attempt.keep()
                self._keep()
            except StorageError as error:  # for example: the trial has ended, and the driver has deleted its checkpoint
                logger.info("trial %s: its last checkpoint stands (%s)", self._wanted["trial"]["trial"], error)
        self._close()
        self._board.close()
        self._warnings.close()

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Does nothing: the attempt writes its own checkpoint to the trial's folder."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Does nothing: the attempt reads its own checkpoint from the trial's folder."""

    @property
    def _folder(self) -> Path:
        return home() / str(self._wanted["folder"])

    def _open(self) -> dict[str, Any]:
        plain, folder = self._wanted["trial"], self._folder
        needs = Needs(**self._wanted["needs"])
        device = "cuda" if needs.gpus else "cpu"
        chosen = _device_here(device)
        take_share(chosen, needs.gpus)
        self._meter = TrialMeter(chosen, calibrates=self._wanted.get("calibrates", False))
        load_kept(plain.get("plugins", {}), study_folder_of(folder), where=f"trial {plain['trial']}")
        self._files = trial_files(folder)
        if self._files is not None:
            fetch_trial(self._files)
        trial = TrialSpec.model_validate(plain)
        reading = Reading(**self._wanted["reading"])
        if needs.workers > 1:
            self._team = TrialProcesses(self._wanted, needs, reading)
        self._attempt = TrainingAttempt(
            trial, folder, device=device, threads=needs.threads, first_stage=kept_stage(trial, folder),
            reading=reading, checkpoint_share=self._wanted["checkpoint_share"],
            recorded=self._wanted.get("recorded", 0),
            processes=self._team.processes if self._team is not None else ALONE,
        )
        self._keep(within_s=BEGIN_WITHIN_S)  # another node must never count this execution again
        labels = {"study": trial.study, "cell": trial.cell, "trial": trial.trial, "phase": self._wanted["phase"]}
        self._metrics = TrialMetrics(self._board, labels, self._attempt.history)
        self._meter.opened()
        if self._wanted.get("system_metrics", False):
            self._system = SystemMetrics(chosen)
        return {
            "event": "opened",
            "number": self._attempt.number,
            "environment": dict(self._attempt.environment()) | place_of_this_worker(needs),
            "protocol": dict(self._attempt.protocol()),
            "inherited": [asdict(point) for point in self._attempt.history[: self._attempt.inherited]],
            "summary": self._summary(),
        }

    def _advance(self) -> dict[str, Any]:
        assert self._attempt is not None
        assert self._meter is not None
        if self._attempt.is_finished:  # the process died after the last validation, before the end was recorded
            return self._end({"event": "point", "point": None})
        attempt = self._attempt
        if self._is_leaving:
            attempt.leave()
        point = self._meter.around(attempt.advance, attempt.history, lambda: attempt.worked_seconds)
        if self._system is not None:
            point = replace(point, metrics={**point.metrics, **self._system.taken()})
        self._keep()
        if self._metrics is not None:
            self._metrics.validated(point)
        report = {"event": "point", "point": asdict(point)}
        return self._end(report) if self._attempt.is_finished else report | {"summary": self._summary()}

    def _summary(self) -> dict[str, float]:
        """Totals of the trial so far, and this worker's measurements of it; empty before the attempt is open."""
        if self._attempt is None or self._meter is None:
            return {}
        return self._attempt.summary() | self._meter.summary()

    def _beat(self) -> bool:
        pulse = self._attempt.pulse if self._attempt is not None else 0
        return beat(self._wanted["signals"], self._wanted["trial"]["trial"], pulse)

    def _leave(self) -> None:
        self._is_leaving = True
        if self._attempt is not None:
            self._attempt.leave()

    def _end(self, report: dict[str, Any]) -> dict[str, Any]:
        assert self._attempt is not None
        assert self._meter is not None
        measured = self._meter.summary()  # before the best checkpoint is scored
        summary = self._attempt.finish() | measured
        self._close_team()
        self._keep(within_s=TRIAL_END_WITHIN_S)
        return report | {"is_finished": True, "done": True, "summary": summary, "artifacts": self._artifacts()}

    def _artifacts(self) -> list[str]:
        assert self._attempt is not None
        best = self._attempt.best_path
        if not best.exists():
            return []
        return [str(Path(self._wanted["folder"]) / best.name)]

    def _keep(self, *, within_s: float | None = None) -> None:
        """Sends the trial's files to a remote home, in the background. within_s: waits so long for their arrival.

        StorageError: they have not arrived by then, or another process continues the trial.
        """
        if self._files is None:
            return
        self._files.check()
        self._files.send()
        if within_s is not None:
            self._files.settle(within_s)

    def _failure(self, error: Exception) -> dict[str, Any]:
        self._close_team()
        failure = failure_of(error, step=self._attempt.step if self._attempt is not None else 0)
        if failure.kind == "bug":
            logger.error("trial %s: %s", self._wanted["trial"]["trial"], traceback.format_exc())
        if self._attempt is not None:
            with suppress(StorageError):  # the reason for the end matters more than the last files
                self._keep(within_s=LEAVE_WITHIN_S if failure.kind == "preempted" else None)
        if isinstance(error, DamagedCheckpoint):
            self._set_aside(failure.text)
        if failure.spoils_the_process:
            raise SpoiltProcess(failure.text, failure.kind) from error
        return self._report_of(failure)

    def _report_of(self, failure: Failure) -> dict[str, Any]:
        return {
            "event": "failed" if failure.is_final else "interrupted", "kind": failure.kind, "error": failure.text,
            "summary": self._summary(), "done": True,
        }

    def _set_aside(self, reason: str) -> None:
        """Sets a damaged checkpoint aside. If it was damaged on this disk only, the next attempt fetches it again; if
        it was damaged when it was sent, it is set aside in the remote home too."""
        if self._files is not None and not self._files.was_brought:
            self._files.forget()
            return
        set_aside(self._folder, reason)
        with suppress(StorageError):
            self._keep(within_s=BEGIN_WITHIN_S)

    def _close(self) -> None:
        metrics, self._metrics = getattr(self, "_metrics", None), None
        if metrics is not None:
            metrics.close()
        attempt, self._attempt = getattr(self, "_attempt", None), None
        if attempt is not None:
            attempt.close()
        self._close_team()
        self._close_system()
        self._leave_folder()

    def _close_team(self) -> None:
        team, self._team = getattr(self, "_team", None), None
        if team is not None:
            team.close()

    def _close_system(self) -> None:
        system, self._system = getattr(self, "_system", None), None
        if system is not None:
            system.close()

    def _leave_folder(self) -> None:
        files, self._files = getattr(self, "_files", None), None
        if files is not None:
            files.close(CLOSE_WITHIN_S, clear=True)  # no files of a trial stay on a node


def as_result(report: Mapping[str, Any]) -> dict[str, Any]:
    """A report in the form that Tune receives. It is put in a list because Tune stores statistics of every number in a
    mapping, for each trial and without end."""
    return {"report": [report], "done": bool(report.get("done"))}


def report_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `as_result`. `done` is also true if the scheduler has stopped the trial."""
    return {**result["report"][0], "done": result["done"]}


def _device_here(name: str) -> torch.device:
    """The device of a trial. AttemptError of kind `device` for a GPU that Ray lists but PyTorch does not find: another
    node may have one."""
    try:
        return choose_device(name)
    except ConfigError as error:
        failure = AttemptError(
            "VSE-S033", "Ray gives the trial a GPU of node {node}, and PyTorch finds none there; look at its driver "
            "(nvidia-smi) and its PyTorch, or set resources.gpus to 0", node=socket.gethostname(),
        )
        failure.kind = "device"
        raise failure from error


_OF_DATA = ("vsetune.data", "vsetune.home.node_cache")
_MOST = 20


class RecentWarnings(logging.Handler):
    """Collects warnings of the data loggers, from its creation until it is closed; at most the last _MOST of them."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._recent: deque[str] = deque(maxlen=_MOST)
        for name in _OF_DATA:
            logging.getLogger(name).addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self._recent.append(record.getMessage())
        if logging.lastResort is not None and not logging.getLogger().handlers:  # as without this handler
            logging.lastResort.handle(record)

    def take(self) -> list[str]:
        """The warnings since the last call, oldest first."""
        return [self._recent.popleft() for _ in range(len(self._recent))]

    def close(self) -> None:
        for name in _OF_DATA:
            logging.getLogger(name).removeHandler(self)
        super().close()
