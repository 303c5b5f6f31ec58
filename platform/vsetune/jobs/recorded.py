"""Attempts that a store has recorded: found by name, and their best network loaded again. Knows nothing of Ray."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vsetune.config.spec.base import known_name
from vsetune.config.spec.loading import parse_spec
from vsetune.config.spec.paths import on_this_node
from vsetune.config.study.training import TrialSpec
from vsetune.errors import ConfigError, DamagedCheckpoint, StaleCheckpoint, UsageError
from vsetune.files.weights_header import safetensors_flaw
from vsetune.jobs.kept_plugins import load_kept, study_folder_of
from vsetune.object_storage.home_files import bring_mirrored
from vsetune.records.attempts import AttemptRecord
from vsetune.tracking.store import TrackingStore
from vsetune.training.checkpoint import BEST_FILE
from vsetune.training.trained import TrainedTrial, load_trained


@dataclass(frozen=True)
class RecordedAttempt:
    """An attempt, and where its trial kept its checkpoint (the folder may be gone, or on another machine)."""

    record: AttemptRecord
    folder: Path

    @property
    def where(self) -> str:
        """For messages."""
        return f"run {self.record.attempt_id} ({self.record.start.study}/{self.record.start.trial})"

    def trial(self) -> TrialSpec:
        """What was trained, of the very code that was trained where that is somebody's own.

        UsageError when it was recorded by a version whose settings this one does not know, or that code is gone.
        """
        load_kept(self.record.start.resolved.get("plugins", {}), study_folder_of(self.folder), where=self.where)
        try:
            return parse_spec(dict(self.record.start.resolved), TrialSpec, where=self.where)
        except ConfigError as error:
            raise UsageError(
                f"{error.problems[0]}; recorded by another version of vsetune, read it with that one or train again"
            ) from error


def find_attempt(store: TrackingStore, run: str, *, finished: bool) -> RecordedAttempt:
    """run: an id of the store, or STUDY/TRIAL for the trial's latest attempt (finished: latest one that finished).

    UsageError for one that is not there.
    """
    study, slash, trial = run.partition("/")
    if slash and not (study and trial):
        raise UsageError(f"{run}: need STUDY/TRIAL or a run id, both as `vsetune trial show` and MLflow print them")
    record = _latest(store.attempts(study), run, trial, finished) if slash else _by_id(store, run)
    return RecordedAttempt(record, _folder(store, record))


def _by_id(store: TrackingStore, run: str) -> AttemptRecord:
    try:
        return store.attempt(run)
    except UsageError as error:
        raise UsageError(
            f"{run}: not in this store; need STUDY/TRIAL, such as quickstart/vsepp.lmh-c000-s0, or the id of a run; "
            "`vsetune study show STUDY --all` lists trials; check the tracking URI, too"
        ) from error


def _latest(attempts: list[AttemptRecord], run: str, trial: str, finished: bool) -> AttemptRecord:
    try:
        known_name(trial, {attempt.start.trial for attempt in attempts}, "trial")
    except ValueError as error:
        raise UsageError(f"{run}: {error}") from error
    own = [attempt for attempt in attempts if attempt.start.trial == trial]
    ended = [attempt for attempt in own if attempt.status == "finished"] if finished else own
    if not ended:
        there = ", ".join(f"{attempt.attempt_id} {attempt.status}" for attempt in own)
        raise UsageError(f"{run}: no attempt has finished; name one of its runs instead: {there}")
    return max(ended, key=lambda attempt: attempt.start.number)


def _folder(store: TrackingStore, record: AttemptRecord) -> Path:
    """As `PreparedStudy.trial_folder` had it."""
    study = next((each for each in store.studies() if each.name == record.start.study), None)
    tracking: dict[str, Any] = dict((study.config.get("tracking") if study is not None else None) or {})
    folder = Path(on_this_node(str(tracking.get("folder") or "runs"))) / record.start.study
    return folder / "trials" / record.start.trial


def best_weights(store: TrackingStore, attempt: RecordedAttempt, into: Path) -> Path | None:
    """The file kept with the run, copied to `into` where need be; or what lies in the trial's folder, on this machine
    or under the remote home; or None. DamagedCheckpoint when what is kept with the run is not whole."""
    kept = store.fetch_artifact(attempt.record.attempt_id, BEST_FILE, into)
    if kept is not None:
        with kept.open("rb") as stream:
            flaw = safetensors_flaw(stream, kept.stat().st_size)
        if flaw is None:
            return kept
        raise DamagedCheckpoint(
            f"{attempt.where}: {BEST_FILE} among its artifacts is damaged ({flaw}); vsetune tracking doctor "
            f"{attempt.record.start.study} --mend copies the one in its trial's folder, if that is left"
        )
    bring_mirrored(attempt.folder, lambda name: name == BEST_FILE, into=into)
    return next((place / BEST_FILE for place in (into, attempt.folder) if (place / BEST_FILE).is_file()), None)


def require_best_weights(store: TrackingStore, attempt: RecordedAttempt, into: Path) -> Path:
    """As `best_weights`; StaleCheckpoint in one line where none are left."""
    weights = best_weights(store, attempt, into)
    if weights is None:
        raise StaleCheckpoint(
            f"{attempt.where}: no checkpoint left, {BEST_FILE} is neither among the run's artifacts nor in "
            f"{attempt.folder}; bring it back, or train the trial again."
        )
    return weights


def load_recorded(store: TrackingStore, attempt: RecordedAttempt, *, device: torch.device, into: Path) -> TrainedTrial:
    """The best network of an attempt, and its data. into: a folder that lasts for this call.

    UsageError, DataError or StaleCheckpoint in one line: no weights are left, the data are gone or have changed.
    """
    trial = attempt.trial()
    weights = require_best_weights(store, attempt, into)
    fingerprint = attempt.record.start.protocol.get("data_fingerprint")
    return load_trained(trial, weights, device=device, data_fingerprint=fingerprint, where=attempt.where)
