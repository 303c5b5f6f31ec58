"""The state of a study as a fold over the events of its log, and a snapshot of it for boards that open fast."""

from __future__ import annotations

import itertools
import json
import zlib
from array import array
from base64 import b64decode, b64encode
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vsetune.errors import DataError, StorageError, UsageError, one_line
from vsetune.home.whole_files import write_whole
from vsetune.records.events import (
    FORMAT,
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


@dataclass
class Attempt:
    """One attempt of a trial, as far as its study's log tells; it changes when the log is read on.

    attempt_id: its name, STUDY/TRIAL/NUMBER. curve: (epoch, m_recall) of every validation, in order. summary: numbers
    known at its end (`best_m_recall`, `epochs_to_best`, `train_seconds`, `device_seconds`, `wasted_epochs`,
    `test_m_recall`, ...), before that the seconds at its last validation. error: one line. files: stored with it, paths
    below the study's folder. step: of its last validation, -1 before the first. began, seen: times of its first and its
    last event, in seconds since 1970.
    """

    attempt_id: str
    start: AttemptStart
    status: AttemptStatus
    curve: tuple[tuple[float, float], ...]
    summary: dict[str, float]
    error: str | None = None
    files: tuple[str, ...] = ()
    step: int = -1
    began: float = field(default=0.0, compare=False)
    seen: float = field(default=0.0, compare=False)

    def validated(self, fields: Iterable[Sequence[Any]], at: float) -> None:
        """Adds validations; steps that are already there are ignored. fields: (step, epoch, M-Recall, train_seconds,
        device_seconds or None) of each."""
        self.seen = at
        for step, epoch, m_recall, train_seconds, device_seconds in fields:
            if step > self.step:
                self.step, self.curve = step, (*self.curve, (epoch, m_recall))
                self.summary = {**self.summary, "train_seconds": train_seconds}
                if device_seconds is not None:
                    self.summary["device_seconds"] = device_seconds

    def ended(self, event: Ended) -> None:
        seconds = {name: value for name, value in self.summary.items() if name in ("train_seconds", "device_seconds")}
        self.status, self.error, self.seen, self.files = event.status, event.error, event.at, event.files
        self.summary = {**seconds, **event.summary}


class Trial(tuple[Attempt, ...]):
    """All attempts of one trial, by number; the last one counts."""

    __slots__ = ()

    @property
    def number(self) -> int:
        """Number of the last attempt; 0 before the first."""
        return self[-1].start.number if self else 0

    @property
    def furthest(self) -> float:
        """The highest epoch at which any attempt has validated; 0 before the first validation."""
        return max((attempt.curve[-1][0] for attempt in self if attempt.curve), default=0.0)

    @property
    def longest_curve(self) -> Sequence[tuple[float, float]]:
        """Curve of the attempt that reached the highest epoch, the latest of several. An attempt that continues from
        its checkpoint may be behind earlier attempts."""
        curves = [attempt.curve for attempt in reversed(self) if attempt.curve]
        return max(curves, key=lambda curve: curve[-1][0], default=())


def trials_of(attempts: Iterable[Attempt]) -> list[Trial]:
    """Attempts grouped into trials, in the order in which these began."""
    grouped: defaultdict[str, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        grouped[attempt.start.trial].append(attempt)
    return [_trial(trial) for trial in grouped.values()]


def _trial(attempts: Iterable[Attempt]) -> Trial:
    return Trial(sorted(attempts, key=lambda attempt: attempt.start.number))


class NotBegun(UsageError):
    """An attempt that the log has not seen begin."""


class StudyState:
    """A study as its log tells it: a fold over the events, by `read` (a line of the log) or `add` (an event with all
    numbers)."""

    def __init__(self) -> None:
        self.record: StudyRecord | None = None
        self.status: StudyStatus | None = None
        """Status that the last driver recorded when it left; None while a driver has the study, or if the last died."""
        self.began = self.seen = 0.0
        self.files: tuple[str, ...] = ()
        self.draws: list[Drawn] = []
        """Draws of all cells."""
        self.attempts: dict[str, Attempt] = {}
        """By name, in the order in which they began."""
        self.trials: dict[str, Trial] = {}
        """By name, in the order in which they began."""

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
                self.attempt(event.attempt).ended(event)
            case Closed():
                self.status, self.files = event.status, event.files

    def attempt(self, name: str) -> Attempt:
        """The attempt of this name. NotBegun if it has not begun."""
        if name not in self.attempts:
            raise NotBegun("VSE-R009", "attempt {attempt}: has not begun", attempt=name)
        return self.attempts[name]

    def know(self, attempt: Attempt) -> None:
        """Add an attempt that has begun."""
        self.attempts[attempt.attempt_id] = attempt
        name = attempt.start.trial
        self.trials[name] = _trial((*self.trials.get(name, ()), attempt))

    def _opened(self, event: Opened) -> None:
        if event.format > FORMAT:
            raise StorageError(
                "VSE-R002", "the log has format {got}, this vsetune reads {known}; install the version that wrote it, "
                "or a later one", got=event.format, known=FORMAT,
            )
        self.began = self.began or event.at
        self.record, self.status = event.record, None
        for attempt in self.attempts.values():
            if attempt.status == "running":
                attempt.status = "killed"

    def _begun(self, event: Begun) -> None:
        name = attempt_id(event.start)
        if name not in self.attempts:
            self.know(Attempt(name, event.start, "running", (), {}, began=event.at))
        attempt = self.attempts[name]
        attempt.seen = event.at
        if attempt.status == "killed":
            attempt.status = "running"

    def _validated(self, name: str, at: float, fields: list[list[Any]]) -> None:
        self.attempt(name).validated(fields, at)
        self.seen = at


SNAPSHOT_FILE = ".study.snapshot.json"
_FORMAT = 4


@dataclass
class KnownLog:
    """A log read up to `end`. log: which log, see `name_of_log`."""

    state: StudyState
    end: int
    log: str


def write_snapshot(folder: Path, known: KnownLog) -> None:
    """Write the snapshot; does nothing if the folder cannot be written. Values shared by several attempts are stored
    once."""
    state, parts = known.state, _Parts()
    attempts = [
        {
            **vars(each), "curve": _text(each.curve),
            "start": {key: parts.put(value) for key, value in vars(each.start).items() if key != "resolved"},
            "resolved": {key: parts.put(value) for key, value in each.start.resolved.items()},
        }
        for each in state.attempts.values()
    ]
    plain = {
        "format": _FORMAT, "end": known.end, "log": known.log, "status": state.status, "began": state.began,
        "seen": state.seen, "files": state.files, "draws": [vars(each) for each in state.draws],
        "record": None if state.record is None else asdict(state.record),
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
        state = StudyState()
        state.record = None if plain["record"] is None else StudyRecord(**plain["record"])
        state.status, state.began, state.seen = plain["status"], plain["began"], plain["seen"]
        state.files, state.draws = tuple(plain["files"]), [Drawn(**each) for each in plain["draws"]]
        parts = plain["parts"]
        for each in plain["attempts"]:
            start, resolved = ({
                key: parts[value[0]] if isinstance(value, list) else value for key, value in each.pop(kind).items()
            } for kind in ("start", "resolved"))
            state.know(Attempt(**{
                **each, "start": AttemptStart(**{**start, "resolved": resolved}), "files": tuple(each["files"]),
                "curve": _curve(each["curve"]),
            }))
        return KnownLog(state, plain["end"], plain["log"])
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


def _text(curve: Iterable[tuple[float, float]]) -> str:
    """The numbers, 8 bytes each, as Base64: half as long as decimal digits, and read in a tenth of the time."""
    return b64encode(array("d", itertools.chain.from_iterable(curve)).tobytes()).decode()


def _curve(text: str) -> tuple[tuple[float, float], ...]:
    """The inverse of `_text`. ValueError for any other text."""
    numbers = array("d", b64decode(text))
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))
