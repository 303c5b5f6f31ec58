"""Examination of the files that a study has left."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from vsetune.errors import DamagedCheckpoint, DataError, StorageError
from vsetune.records.log import lines_of, refreshed
from vsetune.records.studies import EXPORT_FILE, Studies, folder_of_study
from vsetune.records.study_lock import LOCK_FILE
from vsetune.storage.paths import remote_place
from vsetune.storage.whole_files import read_json
from vsetune.study.recorded import RecordedAttempt, best_weights


@dataclass(frozen=True)
class Finding:
    """A problem. where: study or attempt. what: the problem. how: its repair."""

    where: str
    what: str
    how: str


def examine(studies: Studies, study: str) -> list[Finding]:
    """The problems of one study. StorageError when the home cannot be read."""
    folder = folder_of_study(study)
    found = []
    try:
        last = -1
        for line in lines_of(refreshed(folder, remote_place(folder), folder / LOCK_FILE), number=0, strict=True):
            last = line.number
    except DataError as error:
        return [Finding(f"study {study}", str(error).partition("; ")[0], str(error).partition("; ")[2])]
    for attempt in studies.attempts(study) if last >= 0 else ():
        if attempt.status not in ("finished", "pruned") or not attempt.curve:
            continue
        recorded = RecordedAttempt(attempt, folder / "trials" / attempt.start.trial)
        found += _of_weights(studies, recorded)
    note = read_json(folder / EXPORT_FILE, most_bytes=1 << 28)
    waiting = last - int(note["number"]) if isinstance(note, dict) else 0
    if waiting > 0 and studies.state(study).status != "running":
        what = f"{waiting} events are not in MLflow"
        found.append(Finding(f"study {study}", what, f"vsetune tracking flush {study}"))
    return found


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
