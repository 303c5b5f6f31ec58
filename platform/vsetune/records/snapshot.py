"""State read from a long log, stored beside it so that its boards open fast. Only a cache: it can be deleted."""

from __future__ import annotations

import json
from array import array
from base64 import b64decode, b64encode
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
_FORMAT = 2


@dataclass
class KnownLog:
    """A log read up to `end`. log: which log, see `name_of_log`."""

    history: StudyHistory
    end: int
    log: str


def write_snapshot(folder: Path, known: KnownLog) -> None:
    """Write the snapshot; does nothing if the folder cannot be written. Values shared by several attempts are stored
    once."""
    history, parts = known.history, _Parts()
    attempts = {
        name: {
            **vars(each), "epochs": _text(each.epochs), "m_recalls": _text(each.m_recalls),
            "start": {key: parts.put(value) for key, value in vars(each.start).items() if key != "resolved"},
            "resolved": {key: parts.put(value) for key, value in each.start.resolved.items()},
        }
        for name, each in history.read_attempts.items()
    }
    plain = {
        "format": _FORMAT, "end": known.end, "log": known.log, "status": history.status, "began": history.began,
        "seen": history.seen, "files": history.files, "draws": [vars(each) for each in history.draws],
        "record": None if history.record is None else asdict(history.record),
        "parts": parts.all, "attempts": attempts,
    }
    with suppress(StorageError):
        write_whole(folder / SNAPSHOT_FILE, json.dumps(plain, separators=(",", ":")).encode(), durable=False)


def read_snapshot(folder: Path) -> KnownLog | None:
    """The snapshot; None if there is none of this version."""
    try:
        plain: Any = json.loads((folder / SNAPSHOT_FILE).read_bytes())
        if plain["format"] != _FORMAT:
            return None
        history = StudyHistory()
        history.record = None if plain["record"] is None else StudyRecord(**plain["record"])
        history.status, history.began, history.seen = plain["status"], plain["began"], plain["seen"]
        history.files, history.draws = tuple(plain["files"]), [Drawn(**each) for each in plain["draws"]]
        parts = plain["parts"]
        for name, each in plain["attempts"].items():
            start, resolved = ({
                key: parts[value[0]] if isinstance(value, list) else value for key, value in each.pop(kind).items()
            } for kind in ("start", "resolved"))
            history.read_attempts[name] = ReadAttempt(**{
                **each, "start": AttemptStart(**{**start, "resolved": resolved}), "files": tuple(each["files"]),
                "epochs": _numbers(each["epochs"]), "m_recalls": _numbers(each["m_recalls"]),
            })
        return KnownLog(history, plain["end"], plain["log"])
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


class _Parts:
    """Mappings and lists, with equal ones stored once."""

    def __init__(self) -> None:
        self.all: list[Any] = []
        self._places: dict[str, int] = {}

    def put(self, value: Any) -> Any:
        """A reference to the value: [its index] for a mapping or a list, any other value unchanged."""
        if not isinstance(value, (dict, list)):
            return value
        place = self._places.setdefault(json.dumps(value), len(self.all))
        if place == len(self.all):
            self.all.append(value)
        return [place]


def _text(numbers: array[float]) -> str:
    """The numbers, 8 bytes each, as Base64: half as long as decimal digits, and read in a tenth of the time."""
    return b64encode(numbers.tobytes()).decode()


def _numbers(text: str) -> array[float]:
    """The inverse of `_text`. ValueError for any other text."""
    return array("d", b64decode(text))
