"""Moving a study to another home: a folder, or one `.zip` file of the same.

    export.json   format, study, and of every other file its size and SHA-256
    files/...     the study's log, its file, boards, best weights, galleries

An export is untrusted: all of it is checked before any of it is placed, none of it is executed, and the address of the
MLflow store it came from is dropped.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Annotated, Any, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from vsetune.config.spec.base import Name
from vsetune.errors import DataError, Problem, StorageError, StudyConflict, UsageError, VsetuneError, one_line
from vsetune.home.hashes import sha256_of_file
from vsetune.home.home_files import keep_in_home
from vsetune.home.locks import take_lock
from vsetune.home.paths import remote_place
from vsetune.home.whole_files import free_name, make_folder, move_in_place, readable_json, whole_file
from vsetune.records.events import Event, Opened, StudyRecord, is_inside
from vsetune.records.log import LOG_FILE, Line, LogWriter, cannot_write, lines_of
from vsetune.records.state import SNAPSHOT_FILE, StudyState
from vsetune.records.studies import folder_of_study
from vsetune.records.study_lock import LOCK_FILE, is_led

_log = logging.getLogger(__name__)
FORMAT = 2
HEADER, FILES, _ZIP = "export.json", "files", ".zip"
_CARRIED = re.compile(
    r"study\.log|study\.yaml|warm_start\.json|[^/]+\.(html|csv|tex)|kept/.+|trials/[^/]+/best\.safetensors"
)
"""Files of a study that are exported. Not exported: files of trials that have not finished, copies of plugins, which
are code, and notes of this machine."""
_LARGEST_HEADER, _MOST_FILES, _LARGEST_FILE = 1 << 26, 100_000, 1 << 50
_MOST_UNPACKED, _MOST_TIMES = 1 << 28, 100
"""An archive unpacks to at most `_MOST_UNPACKED` bytes, or `_MOST_TIMES` times its own size if that is more."""
_PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_PLACES = ("uri", "folder")
"""Keys of `tracking` in a study file; `folder` is of version 0.2."""
_NOT_READ = (zipfile.BadZipFile, EOFError, KeyError, RuntimeError, zlib.error)
"""Exceptions from reading an archive, besides OSError."""


def _is_carried(name: str) -> bool:
    return is_inside(name) and _CARRIED.fullmatch(name) is not None


def _require_carried(name: str) -> str:
    if not _is_carried(name):
        raise ValueError(Problem.of("VSE-R024", "need the name of a file that exports contain"))
    return name


class _Facts(BaseModel):
    """Size and SHA-256 of a file."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    size: Annotated[int, Field(ge=0, lt=_LARGEST_FILE)]
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class _Header(BaseModel):
    """`export.json`."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    format: int
    study: Name
    files: dict[Annotated[str, AfterValidator(_require_carried)], _Facts]


def export_study(study: str, place: Path) -> int:
    """Write an export: a `.zip` file, which appears once it is complete, or a folder for any other name. Returns the
    number of files.

    UsageError when the place exists already; StorageError when it cannot be written. The study may be running.
    """
    if place.exists():
        raise UsageError("VSE-R019", "{place}: exists already; name another place, or remove it", place=place)
    folder = folder_of_study(study)
    files = sorted(
        path for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink() and _is_carried(path.relative_to(folder).as_posix())
    )
    listed: dict[str, dict[str, Any]] = {}
    try:
        make_folder(place.absolute().parent)
        with tempfile.TemporaryDirectory(dir=place.absolute().parent) as made:
            for path in files:
                name = path.relative_to(folder).as_posix()
                copy = Path(made) / FILES / name
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
                listed[name] = {"size": copy.stat().st_size, "sha256": sha256_of_file(copy)}
            (Path(made) / HEADER).write_bytes(readable_json({"format": FORMAT, "study": study, "files": listed}))
            if place.suffix != _ZIP:
                shutil.copytree(made, place)
                return len(files)
            with whole_file(place, durable=True) as stream, zipfile.ZipFile(stream, "w") as archive:
                for path in sorted(Path(made).rglob("*")):
                    if path.is_file():
                        archive.write(path, path.relative_to(made).as_posix(), zipfile.ZIP_STORED)
    except OSError as error:
        raise cannot_write(place, error) from error
    return len(files)


def import_study(place: Path) -> tuple[str, int]:
    """Import an exported study into this home. Returns (its name, number of new files). Importing again changes
    nothing.

    DataError for an unsound export, StudyConflict where the home has another study of this name, or one that has gone
    on since; StorageError when the home cannot be written.
    """
    with _opened(place) as export:
        study, files = export.header()
        folder = folder_of_study(study)
        make_folder(folder.parent)
        wanted, free = sum(facts.size for facts in files.values()), shutil.disk_usage(folder.parent).free
        if wanted > free:
            raise StorageError(
                "VSE-R018", "{place}: needs {need:,} bytes, {folder} has {free:,} free; free space", place=place,
                need=wanted, folder=folder.parent, free=free,
            )
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".arriving-") as made:
            arriving = Path(made) / FILES  # in a folder of its own, so that it is not taken for a study
            for name, facts in files.items():
                export.bring(name, arriving / name, facts)
            require_sound_log(arriving / LOG_FILE, study, where=str(place))
            return study, _place(arriving, folder, list(files))


def _place(arriving: Path, folder: Path, names: list[str]) -> int:
    """Place the files of an export. Returns how many are new. The log comes last: without it there is no study."""
    make_folder(folder)
    try:
        lock = take_lock(folder / LOCK_FILE, wait_s=0)
    except BlockingIOError:
        raise StudyConflict(
            "VSE-R010", "study {study}: another process is running it; wait for it or stop it", study=folder.name
        ) from None
    with lock:
        if is_led(folder):
            raise StudyConflict(
                "VSE-R010", "study {study}: another process is running it; wait for it or stop it", study=folder.name
            )
        mended = _mend_log(folder, arriving)
        writer = LogWriter(folder, remote_place(folder))
        try:
            begin = _first_new(folder, arriving)
            new = [name for name in names if begin is not None or not (folder / name).exists()]
            for name in new:
                if name != LOG_FILE:
                    make_folder((folder / name).parent)
                    move_in_place(arriving / name, folder / name, durable=False)
                    keep_in_home(folder / name)
            if begin is not None:
                for line in lines_of(arriving / LOG_FILE, begin):
                    writer.append(_at_home(line.event()))
            writer.settle()
        except OSError as error:
            raise cannot_write(folder, error) from error
        finally:
            writer.close()
    return len(new) + mended


def _mend_log(folder: Path, arriving: Path) -> int:
    """Replace damaged lines of the study's log by those of an arriving one; the damaged log stays beside it. Returns
    how many logs were mended. DataError if that lacks them, or the log is damaged on a remote home."""
    log = folder / LOG_FILE
    try:
        for _ in lines_of(log, number=0, strict=True):
            pass
        return 0
    except DataError:
        if remote_place(folder) is not None:
            raise
    mine, theirs = ({line.number: line for line in lines_of(place / LOG_FILE)} for place in (folder, arriving))
    for number in mine.keys() & theirs.keys():
        _require_same(mine[number], theirs[number], folder)
    known = mine | theirs
    lost = next((number for number in range(max(known)) if number not in known), None)
    if lost is not None:
        raise DataError(
            "VSE-R461", "study {study}: its log is damaged at line {line}, and what arrives has only {lines} lines; "
            "put back a copy of {folder}, or move {log} away and import again, without what came later",
            study=folder.name, line=lost, lines=len(theirs), folder=folder, log=log,
        )
    mended = arriving.parent / "mended"
    writer = LogWriter(mended)
    for number in sorted(known):
        writer.append(mine[number].event() if number in mine else _at_home(theirs[number].event()))
    writer.settle()
    writer.close()
    kept = free_name(log, "damaged")
    move_in_place(log, kept, durable=False)
    move_in_place(mended / LOG_FILE, log, durable=True)
    (folder / SNAPSHOT_FILE).unlink(missing_ok=True)
    _log.warning("%s: mended with the lines that arrived; the damaged log is %s", log, kept.name)
    return 1


def _require_same(mine: Line, other: Line, folder: Path) -> None:
    if mine[1:4] != other[1:4] and _at_home(mine.event()) != _at_home(other.event()):
        raise StudyConflict(
            "VSE-R013", "study {study}: this home has another study of this name, or one that has gone on at both "
            "places; move {folder} away, then import again", study=folder.name, folder=folder,
        )


def _first_new(folder: Path, arriving: Path) -> int | None:
    """The offset of the first line of an arriving log that the study's own log lacks; None if it lacks none."""
    new, begin = lines_of(arriving / LOG_FILE), 0
    for mine in lines_of(folder / LOG_FILE):
        other = next(new, None)
        if other is None:
            return None
        _require_same(mine, other, folder)
        begin = other.end
    return None if next(new, None) is None else begin


def _at_home(event: Event) -> Event:
    """The event without the address that the sender's study was exported to."""
    if not isinstance(event, Opened):
        return event
    config = dict(event.record.config)
    if config.get("tracking"):
        config["tracking"] = {key: value for key, value in config["tracking"].items() if key not in _PLACES}
    return replace(event, record=replace(event.record, config=config))


class _Export:
    """An opened export. DataError for anything wrong with it."""

    def __init__(self, place: Path, archive: zipfile.ZipFile | None) -> None:
        self._place, self._archive = place, archive

    def header(self) -> tuple[str, dict[str, _Facts]]:
        """(name of the study, its files)."""
        try:
            with self._open(HEADER) as stream:
                content = stream.read(_LARGEST_HEADER + 1)
            if len(content) > _LARGEST_HEADER:
                raise ValueError("is too large")
            plain = json.loads(content)
        except (OSError, ValueError, RecursionError, *_NOT_READ) as error:
            raise _no_export(self._place, HEADER, error) from error
        if isinstance(plain, dict) and plain.get("format") != FORMAT:
            got = one_line(plain.get("format"))
            raise DataError(
                "VSE-R015", "{place}: has format {got}, this vsetune reads {known}; import studies of earlier versions "
                "from their MLflow store (vsetune tracking import --tracking-uri URI STUDY)", place=self._place,
                got=got, known=FORMAT,
            )
        try:
            header = _Header.model_validate(plain)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            key = ".".join(map(str, first["loc"]))
            raise _no_export(self._place, f"{HEADER}: {one_line(key)}", first["msg"]) from error
        if len(header.files) > _MOST_FILES or LOG_FILE not in header.files:
            reason = f"need at most {_MOST_FILES:,}, and {LOG_FILE} among them"
            raise _no_export(self._place, f"{HEADER}: files", reason)
        size, unpacked = self._place.stat().st_size, sum(facts.size for facts in header.files.values())
        if self._archive is not None and unpacked > max(_MOST_UNPACKED, _MOST_TIMES * size):
            raise DataError(
                "VSE-R017", "{place}: has {size:,} bytes and unpacks to {unpacked:,}; export the study again",
                place=self._place, size=size, unpacked=unpacked,
            )
        return header.study, header.files

    def bring(self, name: str, path: Path, facts: _Facts) -> None:
        """Copy a file, which must match the header."""
        left = facts.size
        try:
            source = self._open(f"{FILES}/{name}")
        except (OSError, *_NOT_READ) as error:
            raise self._damaged(name, error) from error
        try:
            with source, _made(path) as target:
                while block := source.read(min(1 << 20, left + 1)):
                    left -= len(block)
                    if left < 0:
                        raise self._damaged(name, "is larger than its header says")
                    target.write(block)
        except _NOT_READ as error:
            raise self._damaged(name, error) from error
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise self._damaged(name, "is a file and a folder, or in such a one") from error
        except OSError as error:
            raise cannot_write(path, error) from error
        if left or sha256_of_file(path) != facts.sha256:
            raise self._damaged(name, "is not what was exported (SHA-256)")

    def _open(self, name: str) -> IO[bytes]:
        """A file of the export. Raises OSError and the exceptions of archives."""
        if self._archive is not None:
            if self._archive.getinfo(name).compress_type not in _PACKED:
                raise zipfile.BadZipFile("packed in a way that exports are not")
            return self._archive.open(name)
        path = Path(os.path.realpath(self._place)) / name
        if not stat.S_ISREG(os.lstat(path).st_mode) or os.path.realpath(path) != str(path):
            raise OSError("need a regular file, and no link")
        return path.open("rb")

    def _damaged(self, file: str, reason: object) -> DataError:
        return DataError(
            "VSE-R016", "{place}: {file}: {reason}; export the study again", place=self._place, file=file,
            reason=one_line(reason),
        )


def _made(path: Path) -> IO[bytes]:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("wb")


def _no_export(place: Path, file: str, reason: object) -> DataError:
    return DataError(
        "VSE-R014", "{place}: no export of a study ({file}: {reason}); name a file that `vsetune tracking export` "
        "wrote", place=place, file=file, reason=one_line(reason),
    )


@contextmanager
def _opened(place: Path) -> Iterator[_Export]:
    if place.is_dir():
        yield _Export(place, None)
        return
    try:
        if not stat.S_ISREG(os.stat(place).st_mode):
            raise OSError("is no file")
        archive = zipfile.ZipFile(place)
    except (OSError, ValueError, *_NOT_READ) as error:
        raise _no_export(place, "archive", getattr(error, "strerror", None) or error) from error
    with archive:
        if len(archive.namelist()) != len(set(archive.namelist())):
            raise DataError(
                "VSE-R016", "{place}: {file}: {reason}; export the study again", place=place, file="archive",
                reason="names a file twice",
            )
        yield _Export(place, archive)


_LONGEST_LINE = 1 << 26
_CHECKS: dict[type, TypeAdapter[Any]] = {kind: TypeAdapter(kind) for kind in get_args(Event)}


def require_sound_log(log: Path, study: str, *, where: str) -> None:
    """Read all of a log. DataError, with the line, for content that this version could not have written for this study.
    """
    state, number = StudyState(), -1
    place = f"{one_line(where, most=400)}: {LOG_FILE}"
    _require_short_lines(log, place)
    try:
        for line in lines_of(log, number=0, strict=True):
            number = line.number
            event = line.event()
            _CHECKS[type(event)].validate_python(event)
            _require_of_study(event, study, state.record)
            state.add(event)
    except DataError as error:
        raise DataError(
            "VSE-R021", "{log}: line {line}: {reason}; export the study again", log=place, line=number + 1,
            reason="is damaged",
        ) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"] if part != "[key]")
        got = one_line(repr(first["input"]), most=60)
        raise DataError(
            "VSE-R022", "{log}: line {line}: {key}: {reason} (got {got}); export the study again", log=place,
            line=number, key=one_line(key), reason=one_line(first["msg"]), got=got,
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, VsetuneError) as error:
        raise DataError(
            "VSE-R021", "{log}: line {line}: {reason}; export the study again", log=place, line=max(number, 0),
            reason=one_line(error),
        ) from error
    if number < 0:
        raise DataError("VSE-R020", "{log}: {reason}; export the study again", log=place, reason="is empty")


def _require_short_lines(log: Path, place: str) -> None:
    """DataError for a line that is too long to be read at once."""
    with log.open("rb") as stream:
        while part := stream.readline(_LONGEST_LINE):
            if len(part) == _LONGEST_LINE:
                reason = f"has a line of more than {_LONGEST_LINE:,} bytes"
                raise DataError("VSE-R020", "{log}: {reason}; export the study again", log=place, reason=reason)


def _require_of_study(event: Event, study: str, known: StudyRecord | None) -> None:
    """ValueError for an event that does not belong to the study. known: its record in earlier lines."""
    if not isinstance(event, Opened):
        if known is None:
            raise ValueError("comes before the study was opened")
        return
    if event.record.name != study:
        raise ValueError(f"record.name: got {event.record.name}, need {study}")
    if known is not None and known.fingerprint != event.record.fingerprint:
        raise ValueError(f"record.fingerprint: got {event.record.fingerprint}, need {known.fingerprint}")
