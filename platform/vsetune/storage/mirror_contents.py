"""Contents of a prefix that mirrors a folder: the list of its files, sending and fetching."""

from __future__ import annotations

import base64
import binascii
import json
import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from vsetune.errors import DataError, StorageError, one_line
from vsetune.storage.addresses import has_controls, join
from vsetune.storage.hashes import HashingReader, sha256_hex, sha256_of_file
from vsetune.storage.s3 import (
    NothingThere,
    ObjectChanged,
    delete,
    drop_unfinished,
    find,
    listing,
    open_object,
    put_bytes,
    upload,
)
from vsetune.storage.whole_files import make_folder, whole_file

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
            "VSE-O041", "{url}: damaged list of files ({reason}); bring back an older version of it, or remove "
            "{prefix} to start again", url=url, reason=one_line(error), prefix=prefix,
        ) from error


def fetch(prefix: str, folder: Path, wanted: Callable[[str], bool]) -> Contents:
    """Bring the wanted files into a folder; a file that is already there, unchanged, is not downloaded again.

    Returns the list that was read. DamagedObject, StorageError; files that were brought before the error stay.
    """
    for look in range(1, _LOOKS + 1):
        contents = read_contents(prefix)
        try:
            for name in filter(wanted, contents.files):
                bring(prefix, contents.files[name], folder / name)
            return contents
        except DamagedObject:
            # another process may have replaced the file since we read the list
            if look == _LOOKS or read_contents(prefix).etag == contents.etag:
                raise
    raise AssertionError("the last look returns or raises")


def bring(prefix: str, stored: StoredFile, path: Path) -> None:
    """Write one file whole, unless it is already there, unchanged. Errors as in `fetch`."""
    if _is_there(stored, path):
        return
    make_folder(path.parent)
    try:
        with whole_file(path, durable=False, by_many=True) as stream:
            for block in _blocks(prefix, stored):
                stream.write(block)
    except OSError as error:
        raise StorageError(
            "VSE-O023", "{file}: cannot be written ({reason}); free space, or set VSETUNE_NODE_FOLDER", file=path,
            reason=error.strerror or error,
        ) from error


def _blocks(prefix: str, stored: StoredFile) -> Iterable[bytes]:
    if stored.content is not None:
        yield stored.content
    for piece in stored.pieces:
        url = join(prefix, piece.key)
        try:
            stream, _ = open_object(url)
        except NothingThere as error:
            raise DamagedObject(
                "VSE-O042", "{url}: gone, need {need:,} bytes; the file it belongs to is lost.", url=url,
                need=piece.size,
            ) from error
        with stream:
            reader, there = HashingReader(stream), 0
            while block := reader.read(_AT_ONCE):
                there += len(block)
                yield block
        if (there, reader.sha256) != (piece.size, piece.sha256):
            raise DamagedObject(
                "VSE-O043", "{url}: is not what was written ({found:,} of {need:,} bytes, or another SHA-256); it was "
                "damaged on the server, bring it back or start what it belongs to again.", url=url, found=there,
                need=piece.size,
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
    if not parts or name.startswith("/") or ".." in parts or has_controls(name) or "\\" in name:
        raise ValueError(f"a file called {one_line(name)}")
    return name


_log = logging.getLogger(__name__)
_PIECE_BYTES = 4 << 20
"""Piece size of a growing log: less than this is sent again when a line was added."""

Signature = tuple[int, int, int]
"""Inode, bytes, time of the last change: equal for a file that was not written since."""

_TRIES = 5


class TakenOver(StorageError):
    """Another process has written the list, so this writer's version is outdated."""


@dataclass(frozen=True)
class Taken:
    """A file as it was at one moment. content: of a small file. path: a snapshot of the file, None if it has not
    changed since it was sent. is_growing: its first `signature[1]` bytes will never change."""

    signature: Signature
    content: bytes | None = None
    path: Path | None = None
    is_growing: bool = False


class MirrorWriter:
    """Writes the versions under one prefix, one after another. Not thread-safe.

    contents: the version known to be under the prefix. before_put: called before each write with the old and the new
    version; one of the two remains if this process dies during the write.
    """

    def __init__(
        self, prefix: str, contents: Contents, *, before_put: Callable[[Contents, Contents], None] = lambda *_: None
    ) -> None:
        self.contents = contents
        self._before_put = before_put
        self._prefix, self._mark = prefix, uuid.uuid4().hex[:8]
        self._pieces = {piece.sha256: piece for each in contents.files.values() for piece in each.pieces}
        self._by_signature: dict[tuple[str, Signature], StoredFile] = {}
        self._logs: dict[str, tuple[int, tuple[Piece, ...]]] = {}
        self._tries = contents.number
        self._has_written = self._is_tidy = False

    def knows(self, name: str, signature: Signature) -> bool:
        """Whether this very file was sent and is still on the list."""
        sent = self._by_signature.get((name, signature))
        return sent is not None and self.contents.files.get(name) == sent

    def write(self, taken: Mapping[str, Taken], *, in_part: bool) -> None:
        """Make these the files under the prefix. in_part: add to the files that are there, which stay.

        The first version is written even when it changes nothing, since it keeps earlier writers out. StorageError:
        nothing has changed; objects sent by then are not sent again. TakenOver: this writer cannot be used any more.
        """
        files = dict(self.contents.files) if in_part else {}
        for name, each in taken.items():
            files[name] = self._stored(name, each)
        if files == self.contents.files and (in_part or self._has_written):
            return
        self._put(files)
        self._has_written = True
        self._remove_unnamed()

    def drop(self, names: Collection[str]) -> None:
        """Take these files off the list. Errors as in `write`."""
        self._is_tidy = True
        self._put({name: each for name, each in self.contents.files.items() if name not in names})
        self._remove_unnamed()

    def _stored(self, name: str, taken: Taken) -> StoredFile:
        if taken.content is not None:
            return StoredFile(content=taken.content)
        if taken.path is None:
            return self._by_signature[name, taken.signature]
        if taken.is_growing:
            stored = StoredFile(self._log_pieces(name, taken, taken.path))
        else:
            stored = StoredFile((self._piece(taken.path, taken.signature[1]),))
        self._by_signature = {key: each for key, each in self._by_signature.items() if key[0] != name}
        self._by_signature[name, taken.signature] = stored
        return stored

    def _piece(self, path: Path, size: int) -> Piece:
        sha256 = sha256_of_file(path)
        if sha256 not in self._pieces:
            piece = Piece(self._key(sha256), size, sha256)
            upload(path, join(self._prefix, piece.key), sha256=sha256)
            self._pieces[sha256] = piece
        return self._pieces[sha256]

    def _log_pieces(self, name: str, taken: Taken, path: Path) -> tuple[Piece, ...]:
        inode, size, _ = taken.signature
        known_inode, known = self._logs.get(name, (-1, ()))
        pieces = [piece for piece in known if piece.size == _PIECE_BYTES] if known_inode == inode else []
        done = sum(piece.size for piece in pieces)
        with open(path, "rb") as stream:
            stream.seek(done)
            while done < size and (block := stream.read(min(_PIECE_BYTES, size - done))):
                pieces.append(self._block(block))
                done += len(block)
        self._logs[name] = inode, tuple(pieces)
        return tuple(pieces)

    def _block(self, content: bytes) -> Piece:
        sha256 = sha256_hex(content)
        if sha256 not in self._pieces:
            piece = Piece(self._key(sha256), len(content), sha256)
            put_bytes(join(self._prefix, piece.key), content)
            self._pieces[sha256] = piece
        return self._pieces[sha256]

    def _key(self, sha256: str) -> str:
        """Key with the mark of this writer: two writers of the same content must not remove each other's object."""
        return f"{OBJECTS}/{sha256}-{self._mark}"

    def _put(self, files: Mapping[str, StoredFile]) -> None:
        """Write the list over the known version. Every try has its own number, so that a write that succeeded is
        recognised when only its answer was lost."""
        self._tries += 1
        new, etag = Contents(files, self._tries, self._mark), self.contents.etag
        url = join(self._prefix, CONTENTS_FILE)
        self._before_put(self.contents, new)
        try:
            now = put_bytes(url, new.to_bytes(), if_absent=etag is None, if_match=etag)
        except ObjectChanged as error:
            there = read_contents(self._prefix)
            if there.writer != self._mark:
                self._leave_to(there)
                raise TakenOver(
                    "VSE-O040", "{url}: another process goes on with it; this process stops.", url=self._prefix
                ) from error
            self.contents = there
            if there.number != new.number:
                self._put(files)
            return
        self.contents = Contents(new.files, new.number, new.writer, now)

    def _leave_to(self, there: Contents) -> None:
        """Remove what was sent for a list that was never written."""
        sent = {piece.key for piece in self._pieces.values() if piece.key.endswith(self._mark)}
        with suppress(StorageError):
            delete(join(self._prefix, key) for key in sent - there.keys() - self.contents.keys())

    def _remove_unnamed(self) -> None:
        """Remove objects that the list no longer names; the first time also unlisted objects of earlier writers."""
        named = self.contents.keys()
        try:
            if not self._is_tidy:
                objects = join(self._prefix, f"{OBJECTS}/")
                start = len(self._prefix.rstrip("/")) + 1
                delete([url for url in listing(objects) if url[start:] not in named])
                self._is_tidy = True
                drop_unfinished(objects)
            delete(join(self._prefix, piece.key) for piece in self._pieces.values() if piece.key not in named)
        except StorageError as error:
            _log.info("objects that nothing needs are left for now: %s", error)
            return
        self._pieces = {sha256: piece for sha256, piece in self._pieces.items() if piece.key in named}


def drop_files(prefix: str, names: Collection[str]) -> None:
    """Take files off the list of a mirror that no process writes to any more; nothing happens if they are not on it.

    StorageError. A process that still writes gets TakenOver.
    """
    for left in reversed(range(_TRIES)):
        contents = read_contents(prefix)
        if not contents.files.keys() & set(names):
            return
        try:
            MirrorWriter(prefix, contents).drop(names)
            return
        except TakenOver:
            if not left:
                raise
