"""A study carried to another home: a folder, or one `.zip` file of the same.

    export.json   format, study, and of every other file its size and SHA-256
    files/...     the study's log, its file, copies of plugins, boards, best weights, galleries

Nothing in such a file is run when it is read, and nothing of it is placed before all of it was checked. Names and
places are those of the receiving home.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any

from pydantic import TypeAdapter, ValidationError

from vsetune.config.spec.base import Name
from vsetune.config.spec.paths import remote_place
from vsetune.errors import DataError, StorageError, StudyConflict, UsageError
from vsetune.files.hashes import sha256_of_file, sha256_of_stream
from vsetune.files.locks import take_lock
from vsetune.files.whole_files import make_folder, move_in_place, readable_json, whole_file
from vsetune.object_storage.home_files import keep_in_home
from vsetune.records.events import Event, Opened
from vsetune.records.log import LOG_FILE, LogWriter, lines_of
from vsetune.records.studies import folder_of_study
from vsetune.records.study_lock import LOCK_FILE

FORMAT = 2
HEADER, FILES, _ZIP = "export.json", "files", ".zip"
_CARRIED = re.compile(
    r"study\.log|study\.yaml|warm_start\.json|[^/]+\.(html|csv|tex)|plugins/.+|kept/.+|trials/[^/]+/best\.safetensors"
)
"""Files of a study that are carried; not those of trials that have not finished, nor notes of this machine."""
_LARGEST_HEADER, _MOST_FILES, _LONGEST_LINE = 1 << 26, 100_000, 1 << 26
_EVENTS: TypeAdapter[Event] = TypeAdapter(Event)
_NAME: TypeAdapter[str] = TypeAdapter(Name)


def export_study(study: str, place: Path) -> int:
    """Writes an export, which appears when it is whole: a `.zip` file, or a folder of any other name. How many files.

    UsageError when something is there already; StorageError when it cannot be written. The study may be running.
    """
    if place.exists():
        raise UsageError(f"{place}: exists already; name another place, or remove it")
    folder = folder_of_study(study)
    files = sorted(
        path for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink() and _CARRIED.fullmatch(path.relative_to(folder).as_posix())
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
        raise StorageError(f"{place}: cannot be written ({error.strerror or error}); free space") from error
    return len(files)


def import_study(place: Path) -> tuple[str, int]:
    """Brings an exported study into this home: (its name, how many files). Importing it again changes nothing.

    DataError for what is no sound export, StudyConflict where the home has another study of this name, or one that has
    gone on since; StorageError when the home cannot be written.
    """
    with _opened(place) as export:
        header = export.header()
        study, files = header["study"], header["files"]
        folder = folder_of_study(study)
        make_folder(folder.parent)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".arriving-") as arriving:
            for name, facts in files.items():
                export.bring(name, Path(arriving) / name, facts)
            _require_sound_log(Path(arriving) / LOG_FILE, study, where=str(place))
            _place(Path(arriving), folder, list(files))
    return study, len(files)


def _place(arriving: Path, folder: Path, names: list[str]) -> None:
    """The log comes last: without it there is no study."""
    make_folder(folder)
    try:
        lock = take_lock(folder / LOCK_FILE, wait_s=0)
    except BlockingIOError:
        raise StudyConflict(f"study {folder.name}: runs here; stop it, then import again") from None
    with lock:
        url = remote_place(folder)
        LogWriter(folder, url).close()
        there, new = folder / LOG_FILE, arriving / LOG_FILE
        if not _begins_with(new, there):
            if _begins_with(there, new):
                return
            raise StudyConflict(
                f"study {folder.name}: this home has another study of this name; move {folder} away, then import again"
            )
        for name in names:
            if name != LOG_FILE:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                move_in_place(arriving / name, folder / name, durable=False)
                keep_in_home(folder / name)
        known = there.stat().st_size
        writer = LogWriter(folder, url)
        for line in lines_of(new, known):
            writer.append(line.event())
        writer.settle()
        writer.close()


def _require_sound_log(log: Path, study: str, *, where: str) -> None:
    """DataError, with the line, for a log that this version could not have written."""
    number = -1
    for line in lines_of(log, number=0, strict=True):
        number = line.number
        try:
            if len(line.head) + len(line.rest) > _LONGEST_LINE:
                raise ValueError("is too long")
            event = _EVENTS.validate_python(line.event(), strict=True)
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"]))
            at = f"{where}: {LOG_FILE}: line {number}: {key}"
            raise DataError(f"{at}: {first['msg']}; export the study again") from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(f"{where}: {LOG_FILE}: line {number}: {error}; export the study again") from error
        named = event.record.name if isinstance(event, Opened) else study
        if named != study or (number == 0 and not isinstance(event, Opened)):
            raise DataError(f"{where}: {LOG_FILE}: line {number}: is not of study {study}; export the study again")
    if number < 0:
        raise DataError(f"{where}: {LOG_FILE} is empty; export the study again")


class _Export:
    """An opened export. DataError for whatever is wrong with it."""

    def __init__(self, place: Path, archive: zipfile.ZipFile | None) -> None:
        self._place, self._archive = place, archive

    def header(self) -> dict[str, Any]:
        plain = self._read_header()
        try:
            if plain["format"] != FORMAT:
                raise DataError(
                    f"{self._place}: has format {plain['format']!r}, this vsetune reads {FORMAT}; studies of earlier "
                    "versions come from their MLflow store (vsetune tracking import --tracking-uri URI STUDY)"
                )
            study, files = _NAME.validate_python(plain["study"], strict=True), plain["files"]
            bad = next((name for name in files if not _is_plain(name)), None)
            if bad is not None or len(files) > _MOST_FILES or LOG_FILE not in files:
                raise DataError(f"{self._place}: {HEADER}: {bad or 'its list of files'!r} is no file of a study")
            for name, facts in files.items():
                if not isinstance(facts["size"], int) or facts["size"] < 0 or not isinstance(facts["sha256"], str):
                    raise DataError(f"{self._place}: {HEADER}: files.{name}: need a size and a SHA-256")
            wanted, free = sum(facts["size"] for facts in files.values()), shutil.disk_usage(self._home()).free
            if wanted > free:
                raise StorageError(f"{self._place}: needs {wanted:,} bytes, {free:,} are free; free space")
            return {"study": study, "files": files}
        except (KeyError, TypeError, AttributeError, ValidationError) as error:
            what = f"{self._place}: {HEADER} is no list of a study's files"
            raise DataError(f"{what}; name an export of vsetune") from error

    def bring(self, name: str, path: Path, facts: Mapping[str, Any]) -> None:
        """A copy of a file, which must be what the header says."""
        path.parent.mkdir(parents=True, exist_ok=True)
        left = facts["size"]
        try:
            with self._open(f"{FILES}/{name}") as source, path.open("wb") as target:
                while block := source.read(min(1 << 20, left + 1)):
                    left -= len(block)
                    if left < 0:
                        raise DataError(f"{self._place}: {name} is larger than its header says; export the study again")
                    target.write(block)
        except (zipfile.BadZipFile, EOFError, KeyError, RuntimeError) as error:
            raise DataError(f"{self._place}: {name} cannot be read ({error}); export the study again") from error
        except OSError as error:
            raise StorageError(f"{path}: cannot be written ({error.strerror}); free space, then repeat") from error
        with path.open("rb") as stream:
            if left or sha256_of_stream(stream) != facts["sha256"]:
                raise DataError(f"{self._place}: {name} is not what was exported (SHA-256); export the study again")

    def _read_header(self) -> Any:
        import json

        try:
            with self._open(HEADER) as stream:
                content = stream.read(_LARGEST_HEADER + 1)
            if len(content) > _LARGEST_HEADER:
                raise ValueError("is too large")
            return json.loads(content)
        except (OSError, ValueError, KeyError, RecursionError, zipfile.BadZipFile, RuntimeError) as error:
            raise DataError(
                f"{self._place}: no export of a study ({error}); name what `vsetune tracking export` wrote"
            ) from error

    def _open(self, name: str) -> IO[bytes]:
        if self._archive is not None:
            return self._archive.open(name)
        path = self._place / name
        about = os.lstat(path)
        if not stat.S_ISREG(about.st_mode):
            raise DataError(f"{path}: is no plain file; copy the export as it was written")
        return path.open("rb")

    @staticmethod
    def _home() -> Path:
        folder = folder_of_study("any").parent
        return folder if folder.exists() else Path("/")


@contextmanager
def _opened(place: Path) -> Iterator[_Export]:
    if place.is_dir():
        yield _Export(place, None)
        return
    try:
        if not stat.S_ISREG(os.stat(place).st_mode):
            raise DataError(f"{place}: is no file; name what `vsetune tracking export` wrote")
        archive = zipfile.ZipFile(place)
    except (OSError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{place}: no export of a study ({getattr(error, 'strerror', None) or error}); name what "
            "`vsetune tracking export` wrote"
        ) from error
    with archive:
        if len(archive.namelist()) != len(set(archive.namelist())):
            raise DataError(f"{place}: names a file twice; export the study again")
        yield _Export(place, archive)


def _is_plain(name: Any) -> bool:
    """A file that a study has, and no way out of its folder."""
    if not isinstance(name, str) or "\\" in name or "\0" in name or not _CARRIED.fullmatch(name):
        return False
    parts = PurePosixPath(name).parts
    return not name.startswith("/") and ".." not in parts and str(PurePosixPath(name)) == name


def _begins_with(file: Path, beginning: Path) -> bool:
    """Whether a file goes on from another one."""
    if not beginning.exists():
        return True
    size = beginning.stat().st_size
    if file.stat().st_size < size:
        return False
    with file.open("rb") as whole, beginning.open("rb") as part:
        while block := part.read(1 << 20):
            if whole.read(len(block)) != block:
                return False
    return True
