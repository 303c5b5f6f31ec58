"""Sending a new version of a mirrored folder: objects first, then their list; objects no longer listed are removed.

One writer at a time: the list is written over the version that this writer knows, or not at all. So a process that was
wrongly taken for dead cannot undo what its successor has sent, and the objects that it sent in vain are removed.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vsetune.errors import StorageError
from vsetune.files.hashes import sha256_hex, sha256_of_file
from vsetune.object_storage.addresses import join
from vsetune.object_storage.mirror_contents import (
    CONTENTS_FILE,
    OBJECTS,
    Contents,
    Piece,
    StoredFile,
    read_contents,
)
from vsetune.object_storage.s3 import ObjectChanged, delete, drop_unfinished, listing, put_bytes, upload

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
                raise TakenOver(f"{self._prefix}: another process goes on with it, this one leaves it.") from error
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
