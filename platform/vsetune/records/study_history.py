"""The state of a study as a fold over the events of its log, and a snapshot of it for boards that open fast."""

from __future__ import annotations

import json
import zlib
from array import array
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vsetune.errors import DataError, StorageError, UsageError, one_line
from vsetune.records.events import (
    FORMAT,
    AttemptRecord,
    AttemptStart,
    AttemptStatus,
    Begun,
    Closed,
    Drawn,
    Ended,
    Event,
    Opened,
    StudyRecord,
    StudyStatus,
    Validated,
    attempt_id,
    curve_of,
)
from vsetune.records.log import Line
from vsetune.storage.whole_files import write_whole


@dataclass
class ReadAttempt:
    """State of an attempt. epochs, m_recalls: of every validation. step, train_seconds, device_seconds: of the last
    one. seen: time of its last event."""

    start: AttemptStart
    began: float
    seen: float
    status: AttemptStatus = "running"
    epochs: array[float] = field(default_factory=lambda: array("d"))
    m_recalls: array[float] = field(default_factory=lambda: array("d"))
    step: int = -1
    train_seconds: float | None = None
    device_seconds: float | None = None
    summary: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None
    files: tuple[str, ...] = ()

    def add(self, fields: list[list[Any]]) -> None:
        """Add the curve part of validations; steps that are already there are ignored."""
        for step, epoch, m_recall, train_seconds, device_seconds in fields:
            if step > self.step:
                self.step, self.train_seconds, self.device_seconds = step, train_seconds, device_seconds
                self.epochs.append(epoch)
                self.m_recalls.append(m_recall)

    def record(self, name: str) -> AttemptRecord:
        """The attempt in the form for readers."""
        measured = {"train_seconds": self.train_seconds, "device_seconds": self.device_seconds}
        known = {key: seconds for key, seconds in measured.items() if seconds is not None}
        curve = tuple(zip(self.epochs, self.m_recalls, strict=True))
        return AttemptRecord(name, self.start, self.status, curve, {**known, **self.summary}, self.error)


class NotBegun(UsageError):
    """An attempt that the log has not seen begin."""


class StudyHistory:
    """The state of a study in its log. Grows by `read` (a line of the log) or `add` (an event with all numbers)."""

    def __init__(self) -> None:
        self.record: StudyRecord | None = None
        self.status: StudyStatus | None = None
        """Status that the last driver recorded when it left; None while a driver has the study, or if the last died."""
        self.began = self.seen = 0.0
        self.files: tuple[str, ...] = ()
        self.draws: list[Drawn] = []
        """Draws of all cells."""
        self.read_attempts: dict[str, ReadAttempt] = {}

    def read(self, line: Line) -> None:
        """Add a line of the log. Numbers that curves do not need are not decoded. StorageError for a newer format,
        DataError for a line that no version wrote, NotBegun for one about an attempt that has not begun."""
        try:
            if line.kind == "validated":
                self._validated(*curve_of(line.head))
            else:
                self.add(line.event())
        except (KeyError, TypeError) as error:
            raise StorageError(
                "VSE-R003", "the log's line {line} ({kind}) is of a newer vsetune; install that version or a later one",
                line=line.number, kind=line.kind,
            ) from error
        except (ValueError, AttributeError, RecursionError) as error:
            raise DataError(
                "VSE-R480", "the log's line {line} is not as vsetune wrote it ({reason}); put back a copy of the "
                "study's folder, or bring the lines from its MLflow (vsetune tracking import --tracking-uri URI STUDY)",
                line=line.number, reason=one_line(error),
            ) from error

    def add(self, event: Event) -> None:
        """Add an event. StorageError for the log of a newer version, NotBegun for an attempt that has not begun."""
        self.seen = event.at
        match event:
            case Opened():
                self._opened(event)
            case Drawn():
                self.draws.append(event)
            case Begun():
                self._begun(event)
            case Validated():
                fields = [
                    [each.step, each.epoch, each.m_recall, each.train_seconds, each.metrics.get("device_seconds")]
                    for each in event.points
                ]
                self._validated(event.attempt, event.at, fields)
            case Ended():
                attempt = self._attempt(event.attempt)
                attempt.status, attempt.error, attempt.seen = event.status, event.error, event.at
                attempt.summary, attempt.files = event.summary, event.files
            case Closed():
                self.status, self.files = event.status, event.files

    def attempts(self) -> list[AttemptRecord]:
        """All attempts in the order in which they began."""
        return [attempt.record(name) for name, attempt in self.read_attempts.items()]

    def attempt(self, name: str) -> AttemptRecord:
        """The attempt of this name. UsageError if it has not begun."""
        return self._attempt(name).record(name)

    def last_step(self, name: str) -> int:
        """Step of the last validation of an attempt; -1 before the first."""
        return self._attempt(name).step

    def attempts_seen(self) -> dict[str, float]:
        """Time of the last event of each attempt."""
        return {name: attempt.seen for name, attempt in self.read_attempts.items()}

    def drawn(self, cell: str) -> Iterator[Drawn]:
        """The draws of a cell, in order."""
        return (each for each in self.draws if each.cell == cell)

    def _opened(self, event: Opened) -> None:
        if event.format > FORMAT:
            raise StorageError(
                "VSE-R002", "the log has format {got}, this vsetune reads {known}; install the version that wrote it, "
                "or a later one", got=event.format, known=FORMAT,
            )
        self.began = self.began or event.at
        self.record, self.status = event.record, None
        for attempt in self.read_attempts.values():
            if attempt.status == "running":
                attempt.status = "killed"

    def _begun(self, event: Begun) -> None:
        name = attempt_id(event.start)
        attempt = self.read_attempts.setdefault(name, ReadAttempt(event.start, event.at, event.at))
        attempt.seen = event.at
        if attempt.status == "killed":
            attempt.status = "running"

    def _validated(self, name: str, at: float, fields: list[list[Any]]) -> None:
        attempt = self._attempt(name)
        attempt.seen = self.seen = at
        attempt.add(fields)

    def _attempt(self, name: str) -> ReadAttempt:
        if name not in self.read_attempts:
            raise NotBegun("VSE-R009", "attempt {attempt}: has not begun", attempt=name)
        return self.read_attempts[name]


SNAPSHOT_FILE = ".study.snapshot.json"
_FORMAT = 3


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
    content = json.dumps(plain, separators=(",", ":")).encode()
    with suppress(StorageError):
        write_whole(folder / SNAPSHOT_FILE, b"%08x " % zlib.crc32(content) + content, durable=False)


def read_snapshot(folder: Path) -> KnownLog | None:
    """The snapshot; None if there is none of this version that is whole."""
    try:
        content = (folder / SNAPSHOT_FILE).read_bytes()
        if content[:9] != b"%08x " % zlib.crc32(content[9:]):
            return None
        plain: Any = json.loads(content[9:])
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
