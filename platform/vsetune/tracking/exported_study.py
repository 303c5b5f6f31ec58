"""A study outside every store: a folder, or one `.zip` file of the same, to be carried to another store.

    study.json          format, study, fingerprint, tags of the experiment, the order of the runs, and of every other
                        file its size and SHA-256
    runs/RUN.json       one run: name, times, status, params, tags, data sets, every number of every metric, artifacts
    artifacts/RUN/...   its files
    search.db           what the search knows, where that lay in the study's folder

Knows nothing of MLflow. Nothing in such a file is run when it is read.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, Protocol

from vsetune.config.spec.foreign_text import one_line
from vsetune.errors import DataError, StorageError, UsageError
from vsetune.files.hashes import sha256_hex, sha256_of_file, sha256_of_stream
from vsetune.files.room import FULL, MAKE_ROOM, free_in
from vsetune.files.whole_files import move_in_place, readable_json, whole_file
from vsetune.tracking.exported_content import (
    FORMAT,
    SEARCH_FILE,
    ExportedRun,
    artifact_file,
    check_search,
    header_of,
    is_inside,
    run_file,
    run_of,
)

_HEADER = "study.json"
_ZIP = ".zip"
_PARTIAL = ".partial"
MOST_JSON = 64 << 20
"""Bytes of the header, and of the file of a run: a million numbers."""
_MOST_UNPACKED, _MOST_TIMES = 256 << 20, 100
"""Bytes to which any archive may unpack, and how many times its own size a larger one."""


class _Target(Protocol):
    def put(self, name: str, content: Path | bytes) -> None:
        """Keep a file. OSError."""


class StudyWriter:
    """Takes the files of an export, see `written_study`."""

    def __init__(self, target: _Target) -> None:
        self._target = target
        self._files: dict[str, dict[str, Any]] = {}

    def add_json(self, name: str, plain: Any) -> None:
        """A small file of ours. OSError when it cannot be written, as everywhere here."""
        content = readable_json(plain)
        if len(content) > MOST_JSON:
            raise UsageError(f"{name}: {len(content):,} bytes of numbers, an export takes at most {MOST_JSON:,} a run")
        self._files[name] = {"sha256": sha256_hex(content), "size": len(content)}
        self._target.put(name, content)

    def add_file(self, name: str, file: Path) -> None:
        """A copy of a file."""
        self._files[name] = {"sha256": sha256_of_file(file), "size": file.stat().st_size}
        self._target.put(name, file)

    def facts(self, name: str) -> Mapping[str, Any]:
        """`sha256` and `size` of a file that was added."""
        return self._files[name]

    def finish(self, header: Mapping[str, Any]) -> None:
        """The last file; without it there is no export."""
        self._target.put(_HEADER, readable_json({**header, "format": FORMAT, "files": self._files}))


@contextmanager
def written_study(place: Path) -> Iterator[StudyWriter]:
    """Writes an export: a `.zip` file, or a folder of any other name. It appears whole when the block ends.

    UsageError when something is there already; StorageError when it cannot be written.
    """
    if place.exists():
        raise UsageError(f"{place}: exists already; name another place, or remove it")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.suffix == _ZIP:
            with whole_file(place, durable=True) as stream, zipfile.ZipFile(stream, "w") as archive:
                yield StudyWriter(_ZipTarget(archive))
            return
        partial = place.with_name(place.name + _PARTIAL)
        shutil.rmtree(partial, ignore_errors=True)  # of an export that was killed
        partial.mkdir()
        try:
            yield StudyWriter(_FolderTarget(partial))
            move_in_place(partial, place, durable=False)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise StorageError(
            f"{place}: cannot be written ({error.strerror or error}); free space or name another place, then repeat"
        ) from error


class _ZipTarget:
    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive

    def put(self, name: str, content: Path | bytes) -> None:
        """Text is packed; weights would not get smaller."""
        if isinstance(content, bytes):
            self._archive.writestr(name, content, zipfile.ZIP_DEFLATED)
        else:
            self._archive.write(content, name, zipfile.ZIP_STORED)


class _FolderTarget:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, name: str, content: Path | bytes) -> None:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            shutil.copyfile(content, path)


class ExportedStudy:
    """An export that was opened and checked, see `opened_study`."""

    def __init__(self, place: Path, files: _ZipFiles | _FolderFiles) -> None:
        """DataError, with the place in the export, for whatever is not as an export is written."""
        self._place, self._of_place = place, files
        content = self._content(_HEADER, most=MOST_JSON)
        self._header = header_of(content, where=f"{place}: {_HEADER}")
        self.study, self.fingerprint = self._header.study, self._header.fingerprint
        self.experiment_tags: Mapping[str, str] = self._header.experiment_tags
        self.run_ids: Sequence[str] = self._header.runs
        for name in sorted(self._header.files):
            self._check(name)

    def run(self, run_id: str) -> ExportedRun:
        """One run as it was exported."""
        name = run_file(run_id)
        return run_of(self._text(name), run_id, self._header, where=f"{self._place}: {name}")

    def content_of(self, run_id: str) -> str:
        """A hash of all that is exported of a run, its artifacts included (their hashes stand in its file)."""
        return self._header.files[run_file(run_id)].sha256

    def artifacts(self, run_id: str) -> list[str]:
        """The files of a run, with their folders."""
        prefix = artifact_file(run_id, "")
        return [name.removeprefix(prefix) for name in self._header.files if name.startswith(prefix)]

    def size_of(self, name: str) -> int:
        """Bytes of a file of the export."""
        return self._header.files[name].size

    def has(self, name: str) -> bool:
        """Whether the export has a file of this name."""
        return name in self._header.files

    def extract(self, name: str, into: Path) -> Path:
        """A copy of a file in a temporary folder, under its last name. DataError when it is not what was exported,
        StorageError when the folder takes no more."""
        path = into / PurePosixPath(name).name
        with self._stream(name) as source:
            try:
                with path.open("wb") as target:
                    shutil.copyfileobj(source, target)
            except OSError as error:
                if error.errno not in FULL:
                    raise
                raise StorageError(
                    f"{path}: cannot be written ({error.strerror}; {free_in(into)}); {MAKE_ROOM}, then repeat"
                ) from error
        if sha256_of_file(path) != self._header.files[name].sha256:
            raise self._changed(name)
        return path

    def _check(self, name: str) -> None:
        facts = self._header.files[name]
        if (size := self._size(name)) != facts.size:
            raise DataError(f"{self._place}: {name} has {size:,} bytes and had {facts.size:,}; export the study again")
        if name.startswith("runs/"):
            self.run(PurePosixPath(name).stem)
        elif name == SEARCH_FILE:
            with tempfile.TemporaryDirectory() as into:
                check_search(self.extract(name, Path(into)), where=f"{self._place}: {name}")
        else:
            with self._stream(name) as stream:
                if sha256_of_stream(stream) != facts.sha256:
                    raise self._changed(name)

    def _text(self, name: str) -> bytes:
        """A file that is read at once. DataError when it is not what was exported."""
        content = self._content(name, most=MOST_JSON)
        if sha256_hex(content) != self._header.files[name].sha256:
            raise self._changed(name)
        return content

    def _content(self, name: str, *, most: int) -> bytes:
        if (size := self._size(name)) > most:
            raise DataError(f"{self._place}: {name} has {size:,} bytes, need at most {most:,}; export the study again")
        with self._stream(name) as stream:
            return stream.read(most)

    def _size(self, name: str) -> int:
        with self._in_one_line(name):
            return self._of_place.size(name)

    @contextmanager
    def _stream(self, name: str) -> Iterator[IO[bytes]]:
        with self._in_one_line(name), self._of_place.open(name) as stream:
            yield stream

    @contextmanager
    def _in_one_line(self, name: str) -> Iterator[None]:
        try:
            yield
        except (OSError, KeyError, EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError) as error:
            reason = one_line(getattr(error, "strerror", None) or error)
            raise DataError(f"{self._place}: {name} cannot be read ({reason}); export the study again") from error

    def _changed(self, name: str) -> DataError:
        return DataError(f"{self._place}: {name} is not what was exported (other SHA-256); export the study again")


class _FolderFiles:
    """The regular files of a folder; no link is followed, and none that blocks is waited for."""

    def __init__(self, folder: Path) -> None:
        self._folder = Path(os.path.realpath(folder))

    def size(self, name: str) -> int:
        """OSError where there is no such file."""
        with self.open(name) as stream:
            return os.fstat(stream.fileno()).st_size

    def open(self, name: str) -> IO[bytes]:
        """OSError where there is no such file."""
        path = self._folder / name
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode) or os.path.realpath(path) != str(path):
            os.close(descriptor)
            raise OSError("need a regular file, and no link")
        return os.fdopen(descriptor, "rb")


class _ZipFiles:
    """The files of an archive, which takes no more room than its own size allows."""

    def __init__(self, place: Path, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        members, size = archive.infolist(), place.stat().st_size
        for member in members:
            if flaw := _flaw_of(member):
                raise DataError(f"{place}: {one_line(member.orig_filename)}: {flaw}; export the study again")
        names = [member.filename for member in members]
        if len(set(names)) < len(names):
            raise DataError(f"{place}: {_repeated(names)} stands there twice; export the study again")
        if sum(member.compress_size for member in members) > size:
            raise DataError(f"{place}: its files lie over one another; export the study again")
        unpacked = sum(member.file_size for member in members)
        if unpacked > max(_MOST_UNPACKED, _MOST_TIMES * size):
            raise DataError(f"{place}: {size:,} bytes, and unpacks to {unpacked:,}; export the study again")

    def size(self, name: str) -> int:
        """KeyError where there is no such file."""
        return self._archive.getinfo(name).file_size

    def open(self, name: str) -> IO[bytes]:
        """KeyError where there is no such file."""
        return self._archive.open(name)


def _flaw_of(member: zipfile.ZipInfo) -> str | None:
    """Why a member of an archive is none of an export."""
    kind = stat.S_IFMT(member.external_attr >> 16)
    if member.is_dir() and is_inside(member.orig_filename.removesuffix("/")):
        return None
    if not is_inside(member.orig_filename):
        return "leads out of the export, or is no file's name"
    if kind not in (0, stat.S_IFREG):
        return "is no regular file"
    if member.flag_bits & 1 or member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "is packed in a way that exports are not"
    return None


def _repeated(names: Sequence[str]) -> str:
    return one_line(min(name for name, count in Counter(names).items() if count > 1))


@contextmanager
def opened_study(place: Path) -> Iterator[ExportedStudy]:
    """Opens an export, which may come from anybody. All of it is checked first: every file against its SHA-256, every
    value of a run. DataError in one line, with the place in it, for what is not as an export is written."""
    if place.is_dir():
        yield ExportedStudy(place, _FolderFiles(place))
        return
    try:
        if place.exists() and not place.is_file():
            raise OSError("neither a file nor a folder")
        archive = zipfile.ZipFile(place)
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{place}: no export of a study ({one_line(getattr(error, 'strerror', None) or error)}); name what "
            "`vsetune tracking export` wrote"
        ) from error
    with archive:
        yield ExportedStudy(place, _ZipFiles(place, archive))
