"""Attempts, validations and the events of a study's log, as plain frozen data."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

AttemptStatus = Literal["running", "finished", "pruned", "failed", "killed"]
"""finished: trained to its budget. pruned: stopped by the scheduler. failed: an error. killed: its process died."""

PLUGIN_TAG = "vsetune.plugin."
"""Prefix of tags of a study and of an attempt: the hash of a plugin's code, `vsetune.plugin.loss.my_loss`."""

SYSTEM = "system/"
"""Prefix of a point's metrics about its machine; MLflow shows those in a group of their own, and plots them always."""

WARM_START = "warm_start"
"""In the environment of an attempt: which results of other studies its cell's search started from, in one line."""
TARGET_REACHED = "target reached"
"""Prefix of `error` of a finished attempt whose search minimises epochs to a target: it was trained until the target.
"""
SEARCH_VALUE, CONSTRAINT_EXCESS = "search_value", "constraint_excess"
"""In the summary of a trial of a search. SEARCH_VALUE: what the search maximises, if that is not the best M-Recall
(larger is better). CONSTRAINT_EXCESS: the share by which the trial exceeds a limit of the study, if there is one (above
0: it cannot win)."""
NO_CONFIGURATION = "no valid configuration"
"""Prefix of `error` of a failed trial that stands for a configuration which the search of its cell could not find."""
DRAWN_BY = "drawn_by"
"""Key in the environment of an attempt of a search: which sampler chose its configuration, and what it had learnt from.
"""


@dataclass(frozen=True)
class ValidationPoint:
    """One validation: a point of the M-Recall curve.

    step: training steps done. epoch: pairs seen / pairs in the train split. m_recall: per cent, validation split.
    train_seconds: time in training steps since the trial began (validation and loading apart).
    metrics: everything else worth plotting (recalls in per cent, loss, rates, seconds), by name.
    """

    step: int
    epoch: float
    pairs_seen: int
    m_recall: float
    train_seconds: float
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class StudyRecord:
    """A study as the store knows it. config: the resolved study file. fingerprint: its hash."""

    name: str
    fingerprint: str
    config: Mapping[str, Any]
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class AttemptStart:
    """What is known when an attempt starts. number counts from 1; a retry of a trial is number 2, ...

    configuration: flat hyperparameters that differ between trials, for people to compare (`loss.margin`: 0.2).
    resolved: the whole TrialSpec as plain data. environment: git revision, package versions, device, ...
    protocol: what was ranked and how often (`validate_every_steps`, images, captions, data fingerprint, tie rule);
    curves under different protocols must not be compared.
    phase: `search` (hyperparameters being searched) or `confirm` (the winner repeated with another seed).
    """

    study: str
    trial: str
    cell: str
    network: str
    loss: str
    number: int
    seed: int
    phase: Literal["search", "confirm"]
    configuration: Mapping[str, Any]
    resolved: Mapping[str, Any]
    environment: Mapping[str, str] = field(default_factory=dict)
    protocol: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class AttemptRecord:
    """One attempt with its summary and its curve, as read back from the store.

    curve: (epoch, m_recall) of every validation, in order. summary: numbers known at the end
    (`best_m_recall`, `epochs_to_best`, `train_seconds`, `device_seconds`, `wasted_epochs`, `test_m_recall`, ...).
    """

    attempt_id: str
    start: AttemptStart
    status: AttemptStatus
    curve: tuple[tuple[float, float], ...]
    summary: Mapping[str, float]
    error: str | None = None


def was_cut_short(status: str, error: str | None) -> bool:
    """Whether an attempt finished before its last epoch because it reached the target of its search."""
    return status == "finished" and (error or "").startswith(TARGET_REACHED)


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
