"""Checks of a log from another home before any of it is stored: only lines that this version could have written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, StringConstraints, TypeAdapter
from pydantic import ValidationError as NotAsWritten

from vsetune.config.spec.base import Name, Seed
from vsetune.errors import DataError, VsetuneError, one_line
from vsetune.records.events import PLUGIN_TAG, AttemptStatus, Opened, StudyStatus, Validated
from vsetune.records.log import LOG_FILE, Line, lines_of
from vsetune.records.study_history import StudyHistory

_LONGEST_LINE, _LONGEST_NAME = 1 << 26, 4000


def is_inside(name: Any) -> bool:
    """Whether a name, as exports and logs write it, is that of a file below a folder and cannot lead out of it."""
    if not isinstance(name, str) or not name.isprintable() or "\\" in name or not 0 < len(name) <= _LONGEST_NAME:
        return False
    path = PurePosixPath(name)
    is_short = all(len(part.encode()) < 250 for part in path.parts)
    return is_short and not path.is_absolute() and ".." not in path.parts and str(path) == name != "."


def require_sound_log(log: Path, study: str, *, where: str) -> None:
    """Read all of a log. DataError, with the line, for content that this version could not have written for this study.
    """
    history, number = StudyHistory(), -1
    place = f"{one_line(where, most=400)}: {LOG_FILE}"
    _require_lines(log, where=place)
    try:
        for line in lines_of(log, number=0, strict=True):
            number = line.number
            _require_sound(line, study, history)
    except DataError as error:
        raise _wrong(place, f"line {number + 1} is damaged") from error
    except NotAsWritten as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"] if part != "[key]")
        got = one_line(repr(first["input"]), most=60)
        raise _wrong(f"{place}: line {number}", f"{key}: {first['msg']} (got {got})") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, VsetuneError) as error:
        raise _wrong(f"{place}: line {number}" if number >= 0 else place, error) from error
    if number < 0:
        raise _wrong(place, "is empty")


def _require_lines(log: Path, *, where: str) -> None:
    """DataError for a line that is too long to be read at once."""
    with log.open("rb") as stream:
        while part := stream.readline(_LONGEST_LINE):
            if len(part) == _LONGEST_LINE:
                raise _wrong(where, f"has a line of more than {_LONGEST_LINE:,} bytes")


def _require_sound(line: Line, study: str, history: StudyHistory) -> None:
    if line.kind == "validated":
        event = line.event()
        assert isinstance(event, Validated)
        _POINTS.validate_python([vars(point) for point in event.points])
        _AT.validate_python(event.at)
    elif line.kind in _LINES:
        _LINES[line.kind].model_validate_json(line.head)
        event = line.event()
    else:
        raise ValueError(f"{line.kind!r} is no event of this version")
    known = history.record
    if isinstance(event, Opened):
        if event.record.name != study:
            raise ValueError(f"record.name: got {event.record.name}, need {study}")
        if known is not None and known.fingerprint != event.record.fingerprint:
            raise ValueError(f"record.fingerprint: got {event.record.fingerprint}, need {known.fingerprint}")
    elif known is None:
        raise ValueError("comes before the study was opened")
    history.add(event)


def _wrong(where: str, what: object) -> DataError:
    return DataError(f"{where}: {one_line(what)}; export the study again")


def _inside(name: str) -> str:
    if not is_inside(name):
        raise ValueError("leads out of the study, or is no file's name")
    return name


def _json(value: JsonValue) -> JsonValue:
    """The value, unchanged. ValueError for an integer of more than 63 bits."""
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _json(inner)
    if isinstance(value, int) and abs(value) >= 2**63:
        raise ValueError("a number of more than 63 bits")
    return value


def _tags(tags: dict[str, str]) -> dict[str, str]:
    for name, value in tags.items():
        if name.startswith(PLUGIN_TAG):
            _HASH.validate_python(value)
    return tags


def _environment(environment: dict[str, str]) -> dict[str, str]:
    float(environment.get("usd_per_hour", 0))
    return environment


Text = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]
PathName = Annotated[str, StringConstraints(max_length=250, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
"""Name of a trial, a cell or a component, which becomes part of file names."""
Hash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{1,64}$")]
Long = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Count = Annotated[int, Field(ge=0, lt=2**31)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Moment = Annotated[float, Field(ge=0, lt=10**11)]
"""Seconds since 1970."""
Json = Annotated[JsonValue, AfterValidator(_json)]
JsonObject = dict[str, Json]
FileNames = tuple[Annotated[str, AfterValidator(_inside)], ...]
_HASH: TypeAdapter[str] = TypeAdapter(Hash)


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class _Open(_Part):
    """Part of which only some keys are checked, since the rest belongs to other specs."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Json] = Field(init=False)


class _Tracking(_Open):
    uri: Text | None = None


class _Config(_Open):
    description: Text | None = None
    baseline: Text | None = None
    networks: list[str | JsonObject] = []
    losses: list[str | JsonObject] = []
    search: JsonObject | None = None
    scheduler: JsonObject | None = None
    tracking: _Tracking | None = None


class _Study(_Part):
    name: Name
    fingerprint: Hash
    config: _Config
    tags: Annotated[dict[str, Text], AfterValidator(_tags)]


class _Resolved(_Open):
    network: JsonObject = {}
    loss: JsonObject = {}
    training: JsonObject = {}
    data: JsonObject = {}
    plugins: dict[str, Hash] = {}


class _Start(_Part):
    study: Name
    trial: PathName
    cell: PathName
    network: PathName
    loss: PathName
    number: Annotated[int, Field(ge=1, lt=2**31)]
    seed: Seed
    phase: Literal["search", "confirm"]
    configuration: JsonObject
    resolved: _Resolved
    environment: Annotated[dict[str, Text], AfterValidator(_environment)]
    protocol: JsonObject


class _Opened(_Part):
    record: _Study
    at: Moment
    format: Count


class _Drawn(_Part):
    cell: PathName
    number: Count
    state: Literal["running", "refused", "taught"]
    configuration: JsonObject
    distributions: dict[str, Text]
    attributes: JsonObject
    at: Moment
    value: Finite | None


class _Restarted(_Part):
    cell: PathName
    at: Moment


class _Begun(_Part):
    start: _Start
    at: Moment


class _Ended(_Part):
    attempt: str
    status: AttemptStatus
    summary: dict[str, float]
    files: FileNames
    error: Text | None
    at: Moment


class _Closed(_Part):
    status: StudyStatus
    files: FileNames
    at: Moment


class _Point(_Part):
    step: Long
    epoch: Annotated[Finite, Field(ge=0)]
    pairs_seen: Long
    m_recall: Finite
    train_seconds: Finite
    metrics: dict[str, float]


_LINES: Mapping[str, type[_Part]] = {
    "opened": _Opened, "drawn": _Drawn, "restarted": _Restarted, "begun": _Begun, "ended": _Ended, "closed": _Closed,
}
_POINTS: TypeAdapter[list[_Point]] = TypeAdapter(list[_Point])
_AT: TypeAdapter[float] = TypeAdapter(Moment, config=ConfigDict(strict=True))
