"""The events of a study's log, and how each is written.

    opened    a driver begins or resumes the study      drawn      a configuration was sampled, refused, or taught
    restarted the search of a cell begins anew          begun      an attempt of a trial starts
    validated validations of an attempt                 ended      an attempt ends, and why
    closed    a driver ends, and how far the study has come

Times (`at`) are seconds since 1970. An attempt is named STUDY/TRIAL/NUMBER everywhere (`attempt_id`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from vsetune.records.attempts import AttemptStart, AttemptStatus, StudyRecord, ValidationPoint

FORMAT = 1
StudyStatus = Literal["finished", "failed", "killed"]
"""finished: nothing is left to do. failed: nothing is left to do, and every trial has failed. killed: work is left."""
_ENCODE = json.JSONEncoder(separators=(",", ":"), default=str, ensure_ascii=False).encode
_DECODE = json.JSONDecoder().raw_decode


def attempt_id(start: AttemptStart) -> str:
    """The name of attempt (trial, number) of a study."""
    return f"{start.study}/{start.trial}/{start.number}"


@dataclass(frozen=True)
class Opened:
    """A driver takes the study: attempts of an earlier driver that were still running were killed."""

    record: StudyRecord
    at: float
    format: int = FORMAT


@dataclass(frozen=True)
class Drawn:
    """A configuration of a cell's search. number: counts from 0 in its cell, refused and taught ones included.

    distributions: of its settings, as Optuna writes them. attributes: which sampler chose it, why it was refused, which
    trial of another study taught it. value: of a taught one.
    """

    cell: str
    number: int
    state: Literal["running", "refused", "taught"]
    configuration: Mapping[str, Any]
    distributions: Mapping[str, str]
    attributes: Mapping[str, Any]
    at: float
    value: float | None = None


@dataclass(frozen=True)
class Restarted:
    """The search of a cell begins anew: configurations sampled before no longer count. Numbering continues."""

    cell: str
    at: float


@dataclass(frozen=True)
class Begun:
    """An attempt runs. A killed attempt that begins again with the same number continues as the same attempt."""

    start: AttemptStart
    at: float


@dataclass(frozen=True)
class Validated:
    """Validations of a running attempt, in order, without those already in the log."""

    attempt: str
    points: tuple[ValidationPoint, ...]
    at: float


@dataclass(frozen=True)
class Ended:
    """An attempt is over. files: stored with it, paths below the study's folder. error: one line, or None."""

    attempt: str
    status: AttemptStatus
    summary: Mapping[str, float]
    files: tuple[str, ...]
    error: str | None
    at: float


@dataclass(frozen=True)
class Closed:
    """A driver has left. files: of the study as a whole, below its folder."""

    status: StudyStatus
    files: tuple[str, ...]
    at: float


Event = Opened | Drawn | Restarted | Begun | Validated | Ended | Closed


def to_texts(event: Event) -> tuple[str, str, str]:
    """(kind, head, rest) without line breaks. rest: numbers of validations that curves do not need, else empty; readers
    of curves skip it."""
    if isinstance(event, Validated):
        head = [[p.step, p.epoch, p.m_recall, p.train_seconds, p.metrics.get(_DEVICE_SECONDS)] for p in event.points]
        rest = [[p.pairs_seen, dict(p.metrics)] for p in event.points]
        return "validated", _ENCODE([event.attempt, event.at, head]), _ENCODE(rest)
    return type(event).__name__.lower(), _ENCODE(asdict(event)), ""


def from_texts(kind: str, head: str | bytes, rest: str | bytes) -> Event:
    """The inverse of `to_texts`, with all numbers. KeyError for a kind that this version does not know."""
    plain = json.loads(head)
    if kind == "validated":
        attempt, at, fields = plain
        points = tuple(
            ValidationPoint(step, epoch, pairs_seen, m_recall, train_seconds, metrics)
            for (step, epoch, m_recall, train_seconds, _), (pairs_seen, metrics)
            in zip(fields, json.loads(rest), strict=True)
        )
        return Validated(attempt, points, at)
    return _READ[kind](plain)


def curve_of(head: bytes) -> tuple[str, float, list[list[Any]]]:
    """Curve of a `validated` event, read without its rest: attempt, time, and for each point (step, epoch, M-Recall,
    train_seconds, device_seconds or None)."""
    attempt, at, fields = _DECODE(head.decode())[0]
    return attempt, at, fields


_DEVICE_SECONDS = "device_seconds"
_READ: dict[str, Callable[[dict[str, Any]], Event]] = {
    "opened": lambda plain: Opened(**{**plain, "record": StudyRecord(**plain["record"])}),
    "drawn": lambda plain: Drawn(**plain),
    "restarted": lambda plain: Restarted(**plain),
    "begun": lambda plain: Begun(AttemptStart(**plain["start"]), plain["at"]),
    "ended": lambda plain: Ended(**{**plain, "files": tuple(plain["files"])}),
    "closed": lambda plain: Closed(**{**plain, "files": tuple(plain["files"])}),
}
