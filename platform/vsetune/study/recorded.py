"""Recorded attempts: found by name, and their best network loaded again. Does not use Ray."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from vsetune.config.spec.base import known_name
from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.training import TrialSpec
from vsetune.errors import ConfigError, DamagedCheckpoint, StaleCheckpoint, UsageError
from vsetune.records.events import AttemptRecord
from vsetune.records.studies import Studies, folder_of_study
from vsetune.storage.home_files import bring_mirrored
from vsetune.storage.whole_files import safetensors_flaw
from vsetune.study.kept_plugins import load_kept, study_folder_of
from vsetune.training.checkpoint import BEST_FILE
from vsetune.training.trained import TrainedTrial, load_trained


@dataclass(frozen=True)
class RecordedAttempt:
    """An attempt, and its trial's folder, which has the checkpoint (it may be gone, or on another machine)."""

    record: AttemptRecord
    folder: Path

    @property
    def where(self) -> str:
        """The attempt's name, the beginning of messages."""
        return f"attempt {self.record.attempt_id}"

    def trial(self) -> TrialSpec:
        """The trial that was trained. Its plugins are loaded in the version that was trained.

        UsageError if it was recorded by a version of vsetune with other settings. StorageError if the code of a plugin
        is gone, ConfigError if it cannot be loaded.
        """
        load_kept(self.record.start.resolved.get("plugins", {}), study_folder_of(self.folder), where=self.where)
        try:
            return parse_spec(dict(self.record.start.resolved), TrialSpec, where=self.where)
        except ConfigError as error:
            raise UsageError(
                f"{error.problems[0]}; recorded by another version of vsetune, read it with that one or train again"
            ) from error


def find_attempt(studies: Studies, run: str, *, finished: bool) -> RecordedAttempt:
    """The attempt with a name. run: STUDY/TRIAL for the trial's latest attempt, or STUDY/TRIAL/NUMBER.

    finished: with STUDY/TRIAL, the latest attempt that has finished. UsageError if there is none.
    """
    study, _, rest = run.partition("/")
    trial, _, number = rest.partition("/")
    if not study or not trial or (number and not number.isdigit()):
        raise UsageError(
            f"{run}: need STUDY/TRIAL, such as quickstart/vsepp.lmh-c000-s0, or STUDY/TRIAL/NUMBER for one of its "
            "attempts; `vsetune study show STUDY --all` lists trials"
        )
    record = studies.attempt(run) if number else _latest(studies.attempts(study), run, trial, finished)
    return RecordedAttempt(record, folder_of_study(study) / "trials" / trial)


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


def best_weights(studies: Studies, attempt: RecordedAttempt, into: Path) -> Path | None:
    """The file of the best weights, from the trial's folder on this machine or under the remote home; None if gone.

    DamagedCheckpoint if the file is damaged. into: a folder that must exist as long as the file is needed.
    """
    bring_mirrored(attempt.folder, lambda name: name == BEST_FILE, into=into)
    kept = next((place / BEST_FILE for place in (into, attempt.folder) if (place / BEST_FILE).is_file()), None)
    if kept is None:
        return None
    with kept.open("rb") as stream:
        flaw = safetensors_flaw(stream, kept.stat().st_size)
    if flaw is not None:
        raise DamagedCheckpoint(
            f"{attempt.where}: {kept} is damaged ({flaw}); put back a copy, such as the run's artifact in MLflow, or "
            "train the trial again"
        )
    return kept


def require_best_weights(store: Studies, attempt: RecordedAttempt, into: Path) -> Path:
    """The same as `best_weights`, but a StaleCheckpoint of one line if the file is gone."""
    weights = best_weights(store, attempt, into)
    if weights is None:
        raise StaleCheckpoint(
            f"{attempt.where}: no checkpoint left, {BEST_FILE} is not in {attempt.folder}; "
            "put it back, or train the trial again."
        )
    return weights


def load_recorded(store: Studies, attempt: RecordedAttempt, *, device: torch.device, into: Path) -> TrainedTrial:
    """The best network of an attempt, and its data. into: a folder that must exist during this call.

    UsageError, DataError or StaleCheckpoint of one line if no weights are left, or the data are gone or have changed.
    """
    trial = attempt.trial()
    weights = require_best_weights(store, attempt, into)
    fingerprint = attempt.record.start.protocol.get("data_fingerprint")
    return load_trained(trial, weights, device=device, data_fingerprint=fingerprint, where=attempt.where)
