"""Recorded attempts: found by name, their best network loaded again, their files examined. Does not use Ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from vsetune.config.spec.base import known_name
from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.study_spec import TrackingSpec
from vsetune.config.study.training import TrialSpec
from vsetune.errors import ConfigError, DamagedCheckpoint, DataError, StaleCheckpoint, StorageError, UsageError
from vsetune.home.addresses import shown_url
from vsetune.home.home_files import find_in_home
from vsetune.home.paths import remote_place
from vsetune.home.whole_files import safetensors_flaw
from vsetune.records.log import lines_of, refreshed
from vsetune.records.state import Attempt
from vsetune.records.studies import BEST_FILE, Studies, export_note, folder_of_study
from vsetune.records.study_lock import LOCK_FILE
from vsetune.study.kept_plugins import load_kept, study_folder_of
from vsetune.study.places import tracking_uri

if TYPE_CHECKING:
    import torch

    from vsetune.training.trained import TrainedTrial


@dataclass(frozen=True)
class RecordedAttempt:
    """An attempt, and its trial's folder, which has the checkpoint (it may be gone, or on another machine)."""

    record: Attempt
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
                "VSE-S063", "{problem}; recorded by another version of vsetune, read it with that one or train again",
                problem=error.problem,
            ) from error


def find_attempt(studies: Studies, run: str, *, finished: bool) -> RecordedAttempt:
    """The attempt with a name. run: STUDY/TRIAL for the trial's latest attempt, STUDY/TRIAL/NUMBER, or STUDY/CELL for
    the pick of the cell on the board.

    finished: without a number, the latest attempt that has finished. UsageError if there is none.
    """
    study, _, rest = run.partition("/")
    trial, _, number = rest.partition("/")
    if not study or not trial or (number and not number.isdigit()):
        raise UsageError(
            "VSE-S061", "{got}: need STUDY/TRIAL, such as quickstart/vsepp.lmh-c000-s0, STUDY/TRIAL/NUMBER for one of "
            "its attempts, or STUDY/CELL for the pick of a cell; `vsetune study show STUDY --all` lists trials",
            got=run,
        )
    record = studies.attempt(run) if number else _latest(studies.attempts(study), run, trial, finished)
    return RecordedAttempt(record, folder_of_study(study) / "trials" / record.start.trial)


def _latest(attempts: list[Attempt], run: str, trial: str, finished: bool) -> Attempt:
    names = {attempt.start.trial for attempt in attempts}
    cells = {name for attempt in attempts for name in _names_of_cell(attempt)}
    try:
        known_name(trial, names | cells, "trial or cell")
    except ValueError as error:
        raise UsageError(UsageError(*error.args).problem.at(run)) from error
    if trial not in names:
        trial = _pick([attempt for attempt in attempts if trial in _names_of_cell(attempt)], run)
    own = [attempt for attempt in attempts if attempt.start.trial == trial]
    ended = [attempt for attempt in own if attempt.status == "finished"] if finished else own
    if not ended:
        there = ", ".join(f"{attempt.attempt_id} {attempt.status}" for attempt in own)
        raise UsageError(
            "VSE-S062", "{trial}: no attempt has finished; name one of its runs instead: {attempts}", trial=run,
            attempts=there,
        )
    return max(ended, key=lambda attempt: attempt.start.number)


def _names_of_cell(attempt: Attempt) -> tuple[str, str]:
    """One of its searches, and all searches of the network and the loss together."""
    start = attempt.start
    return start.cell, f"{start.network}.{start.loss}"


def _pick(attempts: list[Attempt], run: str) -> str:
    """The trial that chose the configuration that the board shows, else its first seed. attempts: of one row."""
    from vsetune.board.building import group_rows
    from vsetune.records.state import trials_of

    (row,) = group_rows("", {"": trials_of(attempts)}, baseline="none")
    if not row.seeds:
        raise UsageError("VSE-S541", "{run}: no trial of this cell has a result; `vsetune study show {study} --all` "
                         "lists trials", run=run, study=attempts[0].start.study)
    seeds = row.seeds_of(row.pick)
    return min(seeds, key=lambda seed: (seed.status != "finished", not seed.chose, seed.seed)).trial


def best_weights(studies: Studies, attempt: RecordedAttempt, into: Path) -> Path | None:
    """The file of the best weights, from the trial's folder on this machine or under the remote home; None if gone.

    DamagedCheckpoint if the file is damaged. into: a folder that must exist as long as the file is needed.
    """
    find_in_home(attempt.folder / BEST_FILE, into=into)
    kept = next((place / BEST_FILE for place in (into, attempt.folder) if (place / BEST_FILE).is_file()), None)
    if kept is None:
        return None
    with kept.open("rb") as stream:
        flaw = safetensors_flaw(stream, kept.stat().st_size)
    if flaw is not None:
        raise DamagedCheckpoint(
            "VSE-S064", "{where}: {file} is damaged ({reason}); put back a copy, such as the run's artifact in MLflow, "
            "or train the trial again", where=attempt.where, file=kept, reason=flaw,
        )
    return kept


def require_best_weights(store: Studies, attempt: RecordedAttempt, into: Path) -> Path:
    """The same as `best_weights`, but a StaleCheckpoint of one line if the file is gone."""
    weights = best_weights(store, attempt, into)
    if weights is None:
        raise StaleCheckpoint(
            "VSE-S065", "{where}: no checkpoint left, {file} is not in {folder}; put it back, or train the trial again",
            where=attempt.where, file=BEST_FILE, folder=attempt.folder,
        )
    return weights


def load_recorded(store: Studies, attempt: RecordedAttempt, *, device: torch.device, into: Path) -> TrainedTrial:
    """The best network of an attempt, and its data. into: a folder that must exist during this call.

    UsageError, DataError or StaleCheckpoint of one line if no weights are left, or the data are gone or have changed.
    """
    from vsetune.training.trained import load_trained

    trial = attempt.trial()
    weights = require_best_weights(store, attempt, into)
    fingerprint = attempt.record.start.protocol.get("data_fingerprint")
    return load_trained(trial, weights, device=device, data_fingerprint=fingerprint, where=attempt.where)


@dataclass(frozen=True)
class Finding:
    """A problem. where: study or attempt. what: the problem. how: its repair."""

    where: str
    what: str
    how: str


def examine(studies: Studies, study: str) -> list[Finding]:
    """The problems of one study. One that cannot be read is a finding too."""
    try:
        return _examined(studies, study)
    except (DataError, StorageError) as error:
        what, _, how = str(error).removeprefix(f"study {study}: ").partition("; ")
        return [Finding(f"study {study}", what, how or "look at its folder and the home's server")]


def _examined(studies: Studies, study: str) -> list[Finding]:
    folder = folder_of_study(study)
    found, last = [], -1
    for line in lines_of(refreshed(folder, remote_place(folder), folder / LOCK_FILE), number=0, strict=True):
        last = line.number
    for attempt in studies.attempts(study) if last >= 0 else ():
        if attempt.status not in ("finished", "pruned") or not attempt.curve:
            continue
        recorded = RecordedAttempt(attempt, folder / "trials" / attempt.start.trial)
        found += _of_weights(studies, recorded)
    note = export_note(folder)
    if note and last >= 0 and studies.status(study) != "running":
        found += _of_mlflow(studies, study, note, last)
    return found


def _of_mlflow(studies: Studies, study: str, note: Mapping[str, Any], last: int) -> list[Finding]:
    """How MLflow's runs of an exported study differ from its log; by the note of the last export where the address that
    this went to is not known."""
    where, flush = f"study {study}", f"vsetune tracking flush {study}"
    tracking = dict(studies.record(study).config.get("tracking") or {})
    try:
        uri = tracking_uri(parse_spec(tracking, TrackingSpec, where=f"{where}: tracking"))
        if uri is not None and shown_url(uri) == note.get("uri"):
            from vsetune.records.mlflow_export import differences

            bring = f"vsetune tracking import --tracking-uri URI {study}"
            here = f"{bring} brings home what the log has lost; {flush} goes on from the log"
            return [
                Finding(where, what, flush if what.endswith("not in MLflow") else here)
                for what in differences(uri, folder_of_study(study))
            ]
    except StorageError as error:
        return [Finding(where, f"cannot be compared with MLflow ({error})", "repeat when it answers")]
    except UsageError:  # a masked password in the address
        pass
    waiting = last - int(note["number"]) + len(note.get("refused", ()))
    return [Finding(where, f"{waiting} events are not in MLflow", flush)] if waiting else []


def _of_weights(studies: Studies, attempt: RecordedAttempt) -> list[Finding]:
    try:
        with TemporaryDirectory() as into:
            if best_weights(studies, attempt, Path(into)) is not None:
                return []
        what = "its best weights are gone"
    except (DamagedCheckpoint, StorageError) as error:
        what = str(error).partition("; ")[0].removeprefix(f"{attempt.where}: ")
    how = "put back a copy, such as the run's artifact in MLflow, or train the trial again"
    return [Finding(attempt.where, what, how)]
