"""Contents of a prefix that mirrors a folder: the list of its files, and bringing them to this machine.

    contents.json      the list, written last in one request: name -> size and pieces, or the content itself
    objects/<...>      the pieces, each under its SHA-256 and the mark of its writer; never changed

A file is one piece; a growing log is cut into several, so that only its end is sent again. A process that dies while
sending leaves the old list with all its pieces, and some objects that no list names; the next writer removes those.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from vsetune.config.spec.foreign_text import one_line
from vsetune.errors import DataError, StorageError
from vsetune.files.hashes import HashingReader, sha256_of_file
from vsetune.files.whole_files import make_folder, whole_file
from vsetune.object_storage.addresses import join
from vsetune.object_storage.s3 import NothingThere, find, open_object

CONTENTS_FILE, OBJECTS = "contents.json", "objects"
_FORMAT = 1
_MOST_BYTES = 64 << 20
_AT_ONCE = 1 << 20
_LOOKS = 3


class DamagedObject(StorageError):
    """An object that is missing or differs from what was written; the file it is a piece of cannot be restored."""


@dataclass(frozen=True)
class Piece:
    """An object. key: below the prefix. size: in bytes."""

    key: str
    size: int
    sha256: str


@dataclass(frozen=True)
class StoredFile:
    """A file: its pieces in order, or, when it is small, its content."""

    pieces: tuple[Piece, ...] = ()
    content: bytes | None = None

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.content) if self.content is not None else sum(piece.size for piece in self.pieces)


@dataclass(frozen=True)
class Contents:
    """The list of files. number: counts up with every version. writer: the mark of its writer. etag: None if there is
    no list yet; conditional writes over it keep out a writer that knows only an older version."""

    files: Mapping[str, StoredFile] = field(default_factory=dict)
    number: int = 0
    writer: str = ""
    etag: str | None = None

    @property
    def version(self) -> str:
        """A name that no other version has."""
        return f"{self.writer} {self.number}"

    def keys(self) -> set[str]:
        """Keys of all objects that the list names."""
        return {piece.key for stored in self.files.values() for piece in stored.pieces}

    def to_bytes(self) -> bytes:
        files: dict[str, Any] = {}
        for name, stored in self.files.items():
            if stored.content is not None:
                files[name] = {"content": base64.b64encode(stored.content).decode()}
            else:
                pieces = [{"key": each.key, "size": each.size, "sha256": each.sha256} for each in stored.pieces]
                files[name] = {"size": stored.size, "pieces": pieces}
        plain = {"format": _FORMAT, "number": self.number, "writer": self.writer, "files": files}
        return json.dumps(plain, indent=1).encode()


def read_contents(prefix: str) -> Contents:
    """The list under a prefix, empty where there is none. StorageError when it cannot be read or is damaged."""
    url = join(prefix, CONTENTS_FILE)
    try:
        found = find(url, most=_MOST_BYTES)
        if found is None:
            return Contents()
        content, state = found
        return _parsed(json.loads(content), state.etag)
    except (DataError, ValueError, KeyError, TypeError, AttributeError, RecursionError, binascii.Error) as error:
        raise StorageError(
            f"{url}: damaged list of files ({one_line(error)}); bring back an older version of it, or remove {prefix} "
            "to start again"
        ) from error


def fetch(prefix: str, folder: Path, wanted: Callable[[str], bool], *, durable: bool = False) -> Contents:
    """Bring the wanted files into a folder; a file that is already there, unchanged, is not downloaded again.

    Returns the list that was read. DamagedObject, StorageError; files that were brought before the error stay.
    """
    for look in range(1, _LOOKS + 1):
        contents = read_contents(prefix)
        try:
            for name in filter(wanted, contents.files):
                bring(prefix, contents.files[name], folder / name, durable=durable)
            return contents
        except DamagedObject:
            # another process may have replaced the file since we read the list
            if look == _LOOKS or read_contents(prefix).etag == contents.etag:
                raise
    raise AssertionError("the last look returns or raises")


def bring(prefix: str, stored: StoredFile, path: Path, *, durable: bool = False) -> None:
    """Write one file whole, unless it is already there, unchanged. Errors as in `fetch`."""
    if _is_there(stored, path):
        return
    make_folder(path.parent)
    try:
        with whole_file(path, durable=durable, by_many=True) as stream:
            for block in _blocks(prefix, stored):
                stream.write(block)
    except OSError as error:
        raise StorageError(
            f"{path}: cannot be written ({error.strerror or error}); free space, or set VSETUNE_NODE_FOLDER"
        ) from error


def _blocks(prefix: str, stored: StoredFile) -> Iterable[bytes]:
    if stored.content is not None:
        yield stored.content
    for piece in stored.pieces:
        url = join(prefix, piece.key)
        try:
            stream, _ = open_object(url)
        except NothingThere as error:
            raise DamagedObject(f"{url}: gone, need {piece.size:,} bytes; the file it belongs to is lost.") from error
        with stream:
            reader, there = HashingReader(stream), 0
            while block := reader.read(_AT_ONCE):
                there += len(block)
                yield block
        if (there, reader.sha256) != (piece.size, piece.sha256):
            raise DamagedObject(
                f"{url}: is not what was written ({there:,} of {piece.size:,} bytes, or another SHA-256); it was "
                "damaged on the server, bring it back or start what it belongs to again."
            )


def _is_there(stored: StoredFile, path: Path) -> bool:
    try:
        if not path.is_file() or path.stat().st_size != stored.size:
            return False
        if stored.content is not None:
            return path.read_bytes() == stored.content
        return len(stored.pieces) == 1 and sha256_of_file(path) == stored.pieces[0].sha256
    except OSError:
        return False


def _parsed(plain: Any, etag: str) -> Contents:
    if plain["format"] != _FORMAT:
        raise ValueError(f"format {one_line(plain['format'])}, need {_FORMAT}")
    files = {_plain_name(name): _parsed_file(each) for name, each in plain["files"].items()}
    return Contents(files, int(plain["number"]), str(plain["writer"]), etag)


def _parsed_file(plain: Any) -> StoredFile:
    if "content" in plain:
        return StoredFile(content=base64.b64decode(plain["content"], validate=True))
    return StoredFile(tuple(
        Piece(_plain_name(each["key"]), int(each["size"]), str(each["sha256"])) for each in plain["pieces"]
    ))


def _plain_name(name: str) -> str:
    """The name, unchanged. ValueError for a name that could lead out of its folder."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or not name.isprintable() or "\\" in name:
        raise ValueError(f"a file called {one_line(name)}")
    return name
