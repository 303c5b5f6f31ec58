"""Attempts, validations and the events of a study's log, as plain frozen data.

Their annotations bound what a log from another home may contain (`moved_study.py`); making an object checks nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetPydanticSchema,
    JsonValue,
    StringConstraints,
)

from vsetune.config.spec.base import Name, Seed
from vsetune.errors import Problem
from vsetune.home.addresses import has_controls

AttemptStatus = Literal["running", "finished", "pruned", "failed", "killed"]
"""finished: trained to its budget. pruned: stopped by the scheduler. failed: an error. killed: its process died."""

PLUGIN_TAG = "vsetune.plugin."
"""Prefix of tags of a study and of an attempt: the hash of a plugin's code, `vsetune.plugin.loss.my_loss`."""

SYSTEM = "system/"
"""Prefix of a point's metrics about its machine; MLflow shows those in a group of their own, and plots them always."""

TARGET_REACHED = "target reached"
"""Prefix of `error` of a finished attempt whose search minimises epochs to a target: it was trained until the target.
"""
SEARCH_VALUE, CONSTRAINT_EXCESS = "search_value", "constraint_excess"
"""In the summary of a trial of a search. SEARCH_VALUE: what the search maximises, if that is not the best M-Recall
(larger is better). CONSTRAINT_EXCESS: the share by which the trial exceeds a limit of the study, if there is one (above
0: it cannot win)."""
DIVERGED = "numeric:"
"""Prefix of `error` of a failed trial whose loss, gradient or scores were no longer finite numbers."""
FIRST_REPEATS = "first_repeats"
"""Tag of a study that was resumed with more searches of each loss: how many it began with, as in its fingerprint."""
NO_CONFIGURATION = "no valid configuration"
"""Prefix of `error` of a failed trial that stands for a configuration which the search of its cell could not find."""
DRAWN_BY = "drawn_by"
"""Key in the environment of an attempt of a search: which sampler chose its configuration, and what it had learnt from.
"""

_LONGEST_NAME = 4000
_HASH = "[0-9a-f]{1,64}"


def is_inside(name: Any) -> bool:
    """Whether a name, as exports and logs write it, is that of a file below a folder and cannot lead out of it."""
    if not isinstance(name, str) or has_controls(name) or "\\" in name or not 0 < len(name) <= _LONGEST_NAME:
        return False
    path = PurePosixPath(name)
    is_short = all(len(part.encode()) < 250 for part in path.parts)
    return is_short and not path.is_absolute() and ".." not in path.parts and str(path) == name != "."


def _inside(name: str) -> str:
    if not is_inside(name):
        raise ValueError(Problem.of("VSE-R023", "need the name of a file below the study's folder"))
    return name


def _json(value: Any) -> Any:
    """The value, unchanged. ValueError for an integer of more than 63 bits."""
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _json(inner)
    if isinstance(value, int) and abs(value) >= 2**63:
        raise ValueError(Problem.of("VSE-R025", "need an integer of at most 63 bits"))
    return value


def _tags(tags: Mapping[str, str]) -> Mapping[str, str]:
    for name, value in tags.items():
        if name.startswith(PLUGIN_TAG) and not re.fullmatch(_HASH, value):
            raise ValueError(Problem.of("VSE-R026", "{tag}: need a hash in hexadecimal digits", tag=name))
    return tags


def _environment(environment: Mapping[str, str]) -> Mapping[str, str]:
    float(environment.get("usd_per_hour", 0))
    return environment


def _as(kind: Any) -> GetPydanticSchema:
    """Checks a value as one of another type."""
    return GetPydanticSchema(lambda _, handler: handler(kind))


_Text = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]
_PathName = Annotated[str, StringConstraints(max_length=250, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
"""Name of a trial, a cell or a component, which becomes part of file names."""
_Hash = Annotated[str, StringConstraints(pattern=f"^{_HASH}$")]
_Integer = Annotated[int, Field(ge=-(2**63), lt=2**63)]
_Count = Annotated[int, Field(ge=0, lt=2**31)]
_Finite = Annotated[float, Field(allow_inf_nan=False)]
_Time = Annotated[float, Field(ge=0, lt=10**11)]
"""Seconds since 1970."""
_Json = Annotated[Mapping[str, Any], _as(dict[str, JsonValue]), AfterValidator(_json)]
_Files = tuple[Annotated[str, AfterValidator(_inside)], ...]


class _Part(BaseModel):
    """Keys that are checked in a mapping with others, which belong to other specs."""

    model_config = ConfigDict(extra="allow", strict=True)


class _Tracking(_Part):
    uri: _Text | None = None


class _Config(_Part):
    """The keys of a study file that reports read."""

    description: _Text | None = None
    baseline: _Text | None = None
    networks: list[str | _Json] = []
    losses: list[str | _Json] = []
    search: _Json | None = None
    scheduler: _Json | None = None
    tracking: _Tracking | None = None


class _Resolved(_Part):
    network: _Json = {}
    loss: _Json = {}
    training: _Json = {}
    data: _Json = {}
    plugins: dict[str, _Hash] = {}


class _Checked:
    __pydantic_config__: ClassVar = ConfigDict(strict=True, extra="forbid", revalidate_instances="always")


@dataclass(frozen=True)
class ValidationPoint(_Checked):
    """One validation: a point of the M-Recall curve.

    step: training steps done. epoch: pairs seen / pairs in the train split. m_recall: per cent, validation split.
    train_seconds: time in training steps since the trial began (validation and loading apart).
    metrics: everything else worth plotting (recalls in per cent, loss, rates, seconds), by name.
    """

    step: _Integer
    epoch: Annotated[_Finite, Field(ge=0)]
    pairs_seen: _Integer
    m_recall: _Finite
    train_seconds: _Finite
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class StudyRecord(_Checked):
    """A study as the store knows it. config: the resolved study file. fingerprint: its hash."""

    name: Name
    fingerprint: _Hash
    config: Annotated[Mapping[str, Any], _as(_Config), BeforeValidator(_json)]
    tags: Annotated[Mapping[str, _Text], AfterValidator(_tags)] = field(default_factory=dict)


@dataclass(frozen=True)
class AttemptStart(_Checked):
    """What is known when an attempt starts. number counts from 1; a retry of a trial is number 2, ...

    configuration: flat hyperparameters that differ between trials, for people to compare (`loss.margin`: 0.2).
    resolved: the whole TrialSpec as plain data. environment: git revision, package versions, device, ...
    protocol: what was ranked and how often (`validate_every_steps`, images, captions, data fingerprint, tie rule);
    curves under different protocols must not be compared.
    phase: `search` (hyperparameters being searched) or `confirm` (the winner repeated with another seed).
    cell: `network.loss`, or `network.loss.r2`, `.r3`, ... for the repeated searches of a study.
    """

    study: Name
    trial: _PathName
    cell: _PathName
    network: _PathName
    loss: _PathName
    number: Annotated[int, Field(ge=1, lt=2**31)]
    seed: Seed
    phase: Literal["search", "confirm"]
    configuration: _Json
    resolved: Annotated[Mapping[str, Any], _as(_Resolved), BeforeValidator(_json)]
    environment: Annotated[Mapping[str, _Text], AfterValidator(_environment)] = field(default_factory=dict)
    protocol: _Json = field(default_factory=dict)

    @property
    def repeat(self) -> int:
        """Number of the search of this network and loss that the attempt belongs to, from 1."""
        suffix = self.cell.removeprefix(f"{self.network}.{self.loss}")
        return int(suffix[2:]) if suffix.startswith(".r") else 1


def was_cut_short(status: str, error: str | None) -> bool:
    """Whether an attempt finished before its last epoch because it reached the target of its search."""
    return status == "finished" and (error or "").startswith(TARGET_REACHED)


def has_diverged(status: str, error: str | None) -> bool:
    """Whether an attempt failed because its training diverged, and not because of its machine, data or code."""
    return status == "failed" and (error or "").startswith(DIVERGED)


FORMAT = 1
StudyStatus = Literal["finished", "failed", "killed"]
"""finished: nothing is left to do. failed: nothing is left to do, and every trial has failed. killed: work is left."""
_ENCODE = json.JSONEncoder(separators=(",", ":"), default=str, ensure_ascii=False).encode
_DECODE = json.JSONDecoder().raw_decode


def attempt_id(start: AttemptStart) -> str:
    """The name of attempt (trial, number) of a study."""
    return f"{start.study}/{start.trial}/{start.number}"


@dataclass(frozen=True)
class Opened(_Checked):
    """A driver takes the study: attempts of an earlier driver that were still running were killed."""

    record: StudyRecord
    at: _Time
    format: _Count = FORMAT


@dataclass(frozen=True)
class Drawn(_Checked):
    """A configuration of a cell's search. number: counts from 0 in its cell, refused ones included.

    distributions: of its settings, as Optuna writes them. attributes: which sampler chose it, why it was refused.
    Version 0.2 also wrote trials of other studies ("taught", with their value), which no search reads any more.
    """

    cell: _PathName
    number: _Count
    state: Literal["running", "refused", "taught"]
    configuration: _Json
    distributions: Mapping[str, _Text]
    attributes: _Json
    at: _Time
    value: _Finite | None = None


@dataclass(frozen=True)
class Begun(_Checked):
    """An attempt runs. A killed attempt that begins again with the same number continues as the same attempt."""

    start: AttemptStart
    at: _Time


@dataclass(frozen=True)
class Validated(_Checked):
    """Validations of a running attempt, in order, without those already in the log."""

    attempt: str
    points: tuple[ValidationPoint, ...]
    at: _Time


@dataclass(frozen=True)
class Ended(_Checked):
    """An attempt is over. files: stored with it, paths below the study's folder. error: one line, or None."""

    attempt: str
    status: AttemptStatus
    summary: Mapping[str, float]
    files: _Files
    error: _Text | None
    at: _Time


@dataclass(frozen=True)
class Closed(_Checked):
    """A driver has left. files: of the study as a whole, below its folder."""

    status: StudyStatus
    files: _Files
    at: _Time


Event = Opened | Drawn | Begun | Validated | Ended | Closed


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
    "begun": lambda plain: Begun(AttemptStart(**plain["start"]), plain["at"]),
    "ended": lambda plain: Ended(**{**plain, "files": tuple(plain["files"])}),
    "closed": lambda plain: Closed(**{**plain, "files": tuple(plain["files"])}),
}
