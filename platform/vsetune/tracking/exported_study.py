"""A study outside every store: a folder, or one `.zip` file of the same, to be carried to another store.

    study.json          format, study, fingerprint, tags of the experiment, the order of the runs, and of every other
                        file its size and SHA-256
    runs/RUN.json       one run: name, times, status, params, tags, data sets, every number of every metric, artifacts
    artifacts/RUN/...   its files
    search.db           what the search knows, where that lay in the study's folder

Knows nothing of MLflow. Nothing in such a file is run when it is read.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, Protocol

from vsetune.errors import DataError, StorageError, UsageError
from vsetune.files.hashes import sha256_hex, sha256_of_file, sha256_of_stream
from vsetune.files.room import FULL, MAKE_ROOM, free_in
from vsetune.files.whole_files import move_in_place, readable_json, whole_file

FORMAT = 1
SEARCH_FILE = "search.db"
_HEADER = "study.json"
_ZIP = ".zip"
_PARTIAL = ".partial"
_LARGEST_TEXT = 1 << 30


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
    """An export that was opened, see `opened_study`; its header has been read, its files have not."""

    def __init__(self, place: Path, archive: zipfile.ZipFile | None) -> None:
        self._place, self._archive = place, archive
        header = self._json(_HEADER)
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            found = header.get("format") if isinstance(header, dict) else None
            raise DataError(f"{place}: an export of format {found}, this version reads {FORMAT}; export it again")
        try:
            self.study, self.fingerprint = str(header["study"]), str(header["fingerprint"])
            self.experiment_tags: Mapping[str, str] = dict(header["experiment_tags"])
            self.run_ids: Sequence[str] = [str(each) for each in header["runs"]]
            self._files: Mapping[str, Mapping[str, Any]] = header["files"]
            for name, facts in self._files.items():
                if not _is_plain(name) or not isinstance(facts["sha256"], str) or not isinstance(facts["size"], int):
                    raise ValueError(name)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"{place}: {_HEADER} is damaged ({error}); export the study again") from error

    def verify(self) -> None:
        """DataError for the first file that is not what was exported."""
        for name in self._files:
            self._check(name)

    def run(self, run_id: str) -> dict[str, Any]:
        """One run as it was exported."""
        found = self._json(run_file(run_id))
        if not isinstance(found, dict):
            raise DataError(f"{self._place}: {run_file(run_id)} is damaged; export the study again")
        return found

    def content_of(self, run_id: str) -> str:
        """A hash of all that is exported of a run, its artifacts included (their hashes stand in its file)."""
        return str(self._files[run_file(run_id)]["sha256"])

    def artifacts(self, run_id: str) -> list[str]:
        """The files of a run, with their folders."""
        prefix = artifact_file(run_id, "")
        return [name.removeprefix(prefix) for name in self._files if name.startswith(prefix)]

    def size_of(self, name: str) -> int:
        """Bytes of a file of the export."""
        return int(self._files[name]["size"])

    def has(self, name: str) -> bool:
        """Whether the export has a file of this name."""
        return name in self._files

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
        if sha256_of_file(path) != self._files[name]["sha256"]:
            raise self._changed(name)
        return path

    def _check(self, name: str) -> None:
        with self._stream(name) as stream:
            if sha256_of_stream(stream) != self._files[name]["sha256"]:
                raise self._changed(name)

    def _json(self, name: str) -> Any:
        try:
            with self._stream(name) as stream:
                return json.loads(stream.read(_LARGEST_TEXT))
        except ValueError as error:
            raise DataError(f"{self._place}: {name} is damaged ({error}); export the study again") from error

    @contextmanager
    def _stream(self, name: str) -> Iterator[IO[bytes]]:
        try:
            stream = self._archive.open(name) if self._archive is not None else (self._place / name).open("rb")
            with stream:
                yield stream
        except (OSError, KeyError, EOFError, zipfile.BadZipFile, NotImplementedError) as error:
            raise DataError(
                f"{self._place}: {name} cannot be read ({getattr(error, 'strerror', None) or error}); export the study "
                "again"
            ) from error

    def _changed(self, name: str) -> DataError:
        return DataError(f"{self._place}: {name} is not what was exported (other SHA-256); export the study again")


@contextmanager
def opened_study(place: Path) -> Iterator[ExportedStudy]:
    """Opens an export. DataError in one line when it is none."""
    if place.is_dir():
        yield ExportedStudy(place, None)
        return
    try:
        archive = zipfile.ZipFile(place)
    except (OSError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{place}: no export of a study ({getattr(error, 'strerror', None) or error}); name what "
            "`vsetune tracking export` wrote"
        ) from error
    with archive:
        yield ExportedStudy(place, archive)


def run_file(run_id: str) -> str:
    """The name of a run in an export."""
    return f"runs/{run_id}.json"


def artifact_file(run_id: str, path: str) -> str:
    """The name of an artifact in an export. path: with its folder."""
    return f"artifacts/{run_id}/{path}"


def _is_plain(name: str) -> bool:
    """No way out of the export's folder."""
    parts = PurePosixPath(name).parts
    return bool(parts) and ".." not in parts and not name.startswith("/") and "\\" not in name
