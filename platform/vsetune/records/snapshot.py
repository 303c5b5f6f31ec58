"""What was read of a long log, kept beside it so that its boards open fast. Never the truth: it can be deleted."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vsetune.errors import StorageError
from vsetune.files.whole_files import write_whole
from vsetune.records.attempts import AttemptStart, StudyRecord
from vsetune.records.events import Drawn
from vsetune.records.study_history import ReadAttempt, StudyHistory

SNAPSHOT_FILE = ".study.snapshot.json"
_FORMAT = 1


@dataclass
class KnownLog:
    """A log read up to `end`. log: which one, see `name_of_log`."""

    history: StudyHistory
    end: int
    log: str


def write_snapshot(folder: Path, known: KnownLog) -> None:
    """Does nothing where the folder cannot be written."""
    history = known.history
    plain = {
        "format": _FORMAT, "end": known.end, "log": known.log, "status": history.status, "began": history.began,
        "seen": history.seen, "files": history.files, "draws": [vars(each) for each in history.draws],
        "record": None if history.record is None else asdict(history.record),
        "attempts": {name: {**vars(each), "start": vars(each.start)} for name, each in history.read_attempts.items()},
    }
    with suppress(StorageError):
        write_whole(folder / SNAPSHOT_FILE, json.dumps(plain, separators=(",", ":")).encode(), durable=False)


def read_snapshot(folder: Path) -> KnownLog | None:
    """None where there is none, or none of this version."""
    try:
        plain: Any = json.loads((folder / SNAPSHOT_FILE).read_bytes())
        if plain["format"] != _FORMAT:
            return None
        history = StudyHistory()
        history.record = None if plain["record"] is None else StudyRecord(**plain["record"])
        history.status, history.began, history.seen = plain["status"], plain["began"], plain["seen"]
        history.files, history.draws = tuple(plain["files"]), [Drawn(**each) for each in plain["draws"]]
        for name, each in plain["attempts"].items():
            curve = [(epoch, m_recall) for epoch, m_recall in each["curve"]]
            history.read_attempts[name] = ReadAttempt(
                **{**each, "start": AttemptStart(**each["start"]), "curve": curve, "files": tuple(each["files"])}
            )
        return KnownLog(history, plain["end"], plain["log"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
