"""What an export says, checked: its header, its runs, and the records that stand in their tags.

An export may come from anybody. Whatever is read of one passes through these models first, so that a wrong value is one
line with its place in the file, and nothing is stored that no command could read.
"""

from __future__ import annotations

import json
import posixpath
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from vsetune.config.spec.base import Name, Seed
from vsetune.config.spec.foreign_text import one_line
from vsetune.errors import DataError, StorageError
from vsetune.tracking import encoding
from vsetune.tracking.pieces import from_pieces
from vsetune.tracking.point_blocks import POINTS
from vsetune.tracking.records import PLUGIN_TAG, AttemptStatus

FORMAT = 1
SEARCH_FILE = "search.db"
PARENT_TAG = "mlflow.parentRunId"


def run_file(run_id: str) -> str:
    """The name of a run in an export."""
    return f"runs/{run_id}.json"


def artifact_file(run_id: str, path: str) -> str:
    """The name of an artifact in an export. path: with its folder."""
    return f"artifacts/{run_id}/{path}"


def is_inside(name: str) -> bool:
    """Whether it is the plain relative name of a file, with no way out of the export's folder."""
    parts = PurePosixPath(name).parts
    is_plain = name == "/".join(parts) and name.isprintable() and not set(name) & set("\\:")
    return is_plain and bool(parts) and ".." not in parts and max(len(part.encode()) for part in parts) <= 255


def _inside(name: str) -> str:
    if not is_inside(name):
        raise ValueError("leads out of the export, or is no file's name")
    return name


def _key(name: str) -> str:
    if posixpath.normpath(name) != name or name.startswith(("/", "..")) or name == ".":
        raise ValueError("MLflow would take it for another name")
    return name


def _json(value: JsonValue) -> JsonValue:
    """As it is. ValueError for a number that no later arithmetic takes."""
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _json(inner)
    if isinstance(value, int) and abs(value) >= 2**63:
        raise ValueError("a number of more than 63 bits")
    return value


Text = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]
Key = Annotated[str, StringConstraints(max_length=250, pattern=r"^[\w/.:\- ]+$"), AfterValidator(_key)]
"""Of a param, a tag or a metric, as MLflow takes it."""
RunId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,255}$")]
FileName = Annotated[str, StringConstraints(max_length=4000), AfterValidator(_inside)]
PathName = Annotated[str, StringConstraints(max_length=250, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
"""Of a trial, a cell or a component: it becomes part of file names."""
Hash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{1,64}$")]
Moment = Annotated[int, Field(ge=0, lt=10**14)]
"""Milliseconds since 1970."""
Long = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Json = Annotated[JsonValue, AfterValidator(_json)]
JsonObject = dict[str, Json]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class FileFacts(_Part):
    """Of a file of the export: what it holds, and how many bytes."""

    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    size: Annotated[int, Field(ge=0, lt=2**50)]


class ExportHeader(_Part):
    """`study.json`. runs: their ids, in order. files: every other file of the export."""

    format: Literal[1]
    study: Name
    fingerprint: Hash
    origin: Text = Field(alias="from")
    experiment_tags: dict[Key, Annotated[Text, StringConstraints(max_length=20_000)]]
    runs: list[RunId]
    files: dict[FileName, FileFacts]

    @model_validator(mode="after")
    def _whole(self) -> ExportHeader:
        runs = set(self.runs)
        if len(runs) < len(self.runs):
            raise ValueError("runs: a run stands there twice")
        tags = self.experiment_tags
        if (tags.get(encoding.KIND), tags.get(encoding.FINGERPRINT)) != ("study", self.fingerprint):
            raise ValueError("experiment_tags: are not those of this study")
        missing = {run_file(run) for run in runs} - self.files.keys()
        if missing:
            raise ValueError(f"{min(missing)}: is not among the files")
        for name in self.files.keys() - {run_file(run) for run in runs} - {SEARCH_FILE}:
            top, _, rest = name.partition("/")
            if top != "artifacts" or rest.partition("/")[0] not in runs:
                raise ValueError(f"files: {one_line(name)} belongs to no run of the study")
        return self


class ExportedDataSet(_Part):
    """A data set of a run, as MLflow has it."""

    name: Annotated[Text, StringConstraints(max_length=500)]
    digest: Annotated[Text, StringConstraints(max_length=36)]
    source_type: Text
    source: Text
    schema_: Text | None = Field(alias="schema")
    profile: Text | None
    tags: dict[Annotated[Text, StringConstraints(max_length=255)], Annotated[Text, StringConstraints(max_length=500)]]


class ExportedArtifact(FileFacts):
    """A file of a run. path: with its folder."""

    path: FileName


class ExportedRun(_Part):
    """`runs/RUN.json`. metrics: by name [step, time stamp in milliseconds, value] of every number."""

    run: RunId
    name: Annotated[Text, StringConstraints(max_length=250)] | None
    started_ms: Moment
    ended_ms: Moment | None
    status: Literal["RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED"]
    params: dict[Key, Annotated[Text, StringConstraints(max_length=8000)]]
    tags: dict[Key, Annotated[Text, StringConstraints(max_length=8000)]]
    data_sets: list[ExportedDataSet]
    metrics: dict[Key, list[tuple[Long, Moment, Finite | Literal["nan", "inf", "-inf"]]]]
    artifacts: list[ExportedArtifact]


class _Resolved(_Part):
    """The parts of a trial that are read without its spec."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Json] = Field(init=False)
    network: JsonObject = {}
    loss: JsonObject = {}
    training: JsonObject = {}
    data: JsonObject = {}
    plugins: dict[Key, Hash] = {}


class _Attempt(_Part):
    """An `AttemptStart`."""

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
    environment: dict[str, Text] = {}
    protocol: JsonObject = {}


class _Tracking(_Part):
    model_config = ConfigDict(extra="allow")
    folder: Text | None = None
    uri: Text | None = None


class _Config(_Part):
    """The parts of a study file that are read without its spec."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Json] = Field(init=False)
    description: Text | None = None
    baseline: Text | None = None
    networks: list[str | JsonObject] = []
    losses: list[str | JsonObject] = []
    search: JsonObject | None = None
    scheduler: JsonObject | None = None
    tracking: _Tracking | None = None


class _Study(_Part):
    """A `StudyRecord`."""

    name: Name
    fingerprint: Hash
    config: _Config
    tags: dict[Key, Text] = {}


class _Point(_Part):
    step: Long
    epoch: Annotated[Finite, Field(ge=0)]
    pairs_seen: Long
    m_recall: Finite
    train_seconds: Finite
    metrics: dict[str, float]


_RUN_ID, _STATUS, _SEEN = TypeAdapter(RunId), TypeAdapter(AttemptStatus), TypeAdapter(Finite)
_SUMMARY, _POINTS, _HASH = TypeAdapter(dict[str, float]), TypeAdapter(list[_Point]), TypeAdapter(Hash)


def header_of(content: bytes, *, where: str) -> ExportHeader:
    """DataError in one line for what is no header."""
    with _told_at(where):
        return ExportHeader.model_validate_json(content)


def run_of(content: bytes, run_id: str, header: ExportHeader, *, where: str) -> ExportedRun:
    """A run, with what its tags record. DataError in one line for what is none of this export."""
    with _told_at(where):
        run = ExportedRun.model_validate_json(content)
    if run.run != run_id:
        raise _wrong(where, f"run: got {run.run}, need {run_id}")
    prefix = artifact_file(run_id, "")
    there = {name.removeprefix(prefix): facts for name, facts in header.files.items() if name.startswith(prefix)}
    if {each.path: FileFacts(sha256=each.sha256, size=each.size) for each in run.artifacts} != there:
        raise _wrong(where, "artifacts: are not those of study.json")
    _check_tags(run.tags, header, where=f"{where}: tags.")
    return run


def check_search(file: Path, *, where: str) -> None:
    """DataError for what is no SQLite file, or one that does more than keep rows."""
    with _told_at(where):
        with file.open("rb") as stream:
            if stream.read(16) != b"SQLite format 3\0":
                raise ValueError("is no SQLite file")
        try:
            with closing(sqlite3.connect(f"{file.as_uri()}?immutable=1", uri=True)) as database:
                kinds = [kind for kind, in database.execute("SELECT type FROM sqlite_master")]
                (flaw,) = database.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.Error as error:
            raise ValueError(f"cannot be read ({one_line(error)})") from error
        for kind in kinds:
            if kind not in ("table", "index"):
                raise ValueError(f"has a {kind}, and a search has none")
        if flaw != "ok":
            raise ValueError(f"is damaged ({one_line(flaw)})")


def _check_tags(tags: Mapping[str, str], header: ExportHeader, *, where: str) -> None:
    if PARENT_TAG in tags:
        with _told_at(f"{where}{PARENT_TAG}"):
            _RUN_ID.validate_python(tags[PARENT_TAG])
    if tags.get(encoding.KIND) not in ("study", "attempt"):
        return
    for name in [name for name in tags if name.startswith(PLUGIN_TAG)]:
        with _told_at(f"{where}{name}"):
            _HASH.validate_python(tags[name])
    with _told_at(f"{where}{encoding.STATUS}"):
        _STATUS.validate_python(tags.get(encoding.STATUS))
    if encoding.SEEN in tags:
        with _told_at(f"{where}{encoding.SEEN}"):
            _SEEN.validate_python(float(tags[encoding.SEEN]))
    if tags[encoding.KIND] == "study":
        _check_study(tags, header, where=f"{where}{encoding.RECORD}")
    else:
        _check_attempt(tags, header, where=where)


def _check_study(tags: Mapping[str, str], header: ExportHeader, *, where: str) -> None:
    with _told_at(where):
        text = encoding.record_text(tags)
        json.loads(text)  # as it will be read: the model takes longer numbers
        study = _Study.model_validate_json(text)
    for name, got, need in (("name", study.name, header.study),
                            ("fingerprint", study.fingerprint, header.fingerprint)):
        if got != need:
            raise _wrong(where, f"{name}: got {got}, need {need}")


def _check_attempt(tags: Mapping[str, str], header: ExportHeader, *, where: str) -> None:
    with _told_at(f"{where}{encoding.RECORD}"):
        text = encoding.record_text(tags)
        json.loads(text)
        start = _Attempt.model_validate_json(text)
        if start.study != header.study:
            raise ValueError(f"study: got {start.study}, need {header.study}")
        float(start.environment.get("usd_per_hour", 0))
    with _told_at(f"{where}{encoding.SUMMARY}"):
        _SUMMARY.validate_json(from_pieces(encoding.SUMMARY, tags) or "{}")
    with _told_at(f"{where}{POINTS}"):
        _POINTS.validate_python([asdict(point) for point in encoding.points_from_tags(tags)])


@contextmanager
def _told_at(where: str) -> Iterator[None]:
    """Turns what models and decoders raise into a DataError that opens with the place."""
    try:
        yield
    except ValidationError as error:
        first: Mapping[str, Any] = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"] if part != "[key]")
        what = str(first["msg"]).removeprefix("Value error, ")
        got = f" (got {one_line(repr(first['input']), most=60)})" if place else ""
        raise _wrong(where, f"{place}: {what}{got}" if place else what) from error
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise _wrong(where, str(error) or type(error).__name__) from error
    except StorageError as error:  # of a later version
        raise _wrong(where, str(error)) from error


def _wrong(where: str, what: str) -> DataError:
    return DataError(f"{one_line(where, most=400)}: {one_line(what)}; export the study again")
