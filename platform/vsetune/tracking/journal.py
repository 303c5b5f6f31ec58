"""A log file of records that grows at its end, and the note of how far it was delivered. Knows nothing of stores.

    journal.log        one line per record: CRC-32 of the rest, number, kind, the record as JSON
    journal.delivered  the journal's identity and the number of the last record delivered, overwritten in place

Numbers count up by one. A line is whole or it does not count: what a kill or a full disk tore off at the end is cut
away when the file is opened again. A number that is missing between two others means that the log is not complete.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import uuid
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from vsetune.errors import StorageError
from vsetune.files.whole_files import move_in_place
from vsetune.tracking.encoding import to_json

_log = logging.getLogger(__name__)
JOURNAL_FILE = "journal.log"
CURSOR_FILE = "journal.delivered"
_HEADER = "journal"
_BLOCK = 1 << 18
_AT_ONCE = 1000


class Entry(NamedTuple):
    """One record. number: its place among all records of the journal. kind: what `body` describes."""

    number: int
    kind: str
    body: dict[str, Any]


class Place(NamedTuple):
    """How far somebody has read: the number of the last record, and where in the file to look for the next."""

    number: int = -1
    offset: int = 0


class _Unwritten(NamedTuple):
    """A record that the disk has not taken yet. line: as it will stand in the file."""

    number: int
    line: bytes
    durable: bool


class Journal:
    """The file of one folder, opened for one process. Thread-safe.

    `append` never raises for a disk that is full or gone: such records stay in memory, in order, and are written as
    soon as the disk takes them (`retry`). identity: made with the journal, the same for ever.
    is_complete: no record is missing since the first line.
    """

    def __init__(self, folder: Path) -> None:
        """Open or create. StorageError in one line when the folder cannot be written."""
        self.path = folder / JOURNAL_FILE
        self._lock = threading.RLock()
        self._unwritten: deque[_Unwritten] = deque()
        self.identity, self.is_complete = "", True
        self._last = Place()
        self._torn = self._refused = False
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            self._scan()
            self.cursor = Cursor(folder / CURSOR_FILE)
        except OSError as error:
            raise StorageError(
                f"{self.path}: cannot be opened for writing ({error.strerror}); free space, mend its rights, or set "
                "VSETUNE_HOME to another folder"
            ) from error
        if not self.identity:
            self.identity = uuid.uuid4().hex
            self.append(_HEADER, {"identity": self.identity}, durable=True)
        delivered = self.cursor.read(self.identity)
        if delivered > self._last.number:  # records that never reached the disk were delivered from memory
            self.is_complete = False
            self._last = self._last._replace(number=delivered)

    @property
    def last_number(self) -> int:
        """The number of the newest record, written or not."""
        with self._lock:
            return self._unwritten[-1].number if self._unwritten else self._last.number

    @property
    def unwritten(self) -> int:
        """How many records are only in memory, because the disk did not take them."""
        return len(self._unwritten)

    def append(self, kind: str, body: Mapping[str, Any], *, durable: bool) -> int:
        """Add a record; its number. durable: survives a power cut too, not only the death of this process.

        Takes tens of microseconds where the disk takes it and no sync is asked for.
        """
        text = to_json(dict(body))
        with self._lock:
            number = self.last_number + 1
            self._unwritten.append(_Unwritten(number, _line(number, kind, text), durable))
            self.retry()
        return number

    def retry(self) -> None:
        """Write what is only in memory, as far as the disk takes it."""
        with self._lock:
            while self._unwritten:
                number, line, durable = self._unwritten[0]
                try:
                    end = self._write(line)
                    if durable:
                        os.fsync(self._descriptor)
                except OSError as error:
                    if not self._refused:
                        _log.warning("%s: cannot be written (%s); records wait in memory", self.path, error.strerror)
                    self._refused = True
                    return
                self._refused = False
                self._unwritten.popleft()
                self._last = Place(number, end)

    def following(self, place: Place, most: int) -> list[tuple[Entry, Place]]:
        """The next records after `place`, at most so many, each with the place behind it.

        The file is read without the lock: who appends meanwhile does not wait.
        """
        with self._lock:
            end, descriptor = self._last.offset, os.dup(self._descriptor)
            unwritten = list(islice((each for each in self._unwritten if each.number > place.number), most))
        try:
            behind = ((entry, Place(entry.number, at)) for entry, at in _lines(descriptor, place.offset, end))
            found = list(islice((each for each in behind if each[0].number > place.number), most))
        finally:
            os.close(descriptor)
        in_memory = (entry for each in unwritten if (entry := _parse(each.line)) is not None)
        return [*found, *((entry, Place(entry.number, end)) for entry in islice(in_memory, most - len(found)))]

    def entries(self) -> Iterator[Entry]:
        """All records, oldest first."""
        place = Place()
        while found := self.following(place, _AT_ONCE):
            yield from (entry for entry, _ in found)
            place = found[-1][1]

    def start_over(self, kind: str, body: Mapping[str, Any]) -> Place:
        """Replace all records by one that says the same, in one step. Returns the place behind it.

        OSError when there is no room; the journal is then what it was.
        """
        with self._lock:
            number = self.last_number + 1
            header = _line(number, _HEADER, to_json({"identity": self.identity}))
            content = header + _line(number + 1, kind, to_json(dict(body)))
            partial = self.path.with_name(self.path.name + ".partial")
            descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
            try:
                _write_all(descriptor, content)
                os.fsync(descriptor)
                move_in_place(partial, self.path, durable=False)  # it is synced
            except OSError:
                os.close(descriptor)
                partial.unlink(missing_ok=True)
                raise
            os.close(self._descriptor)
            self._descriptor, self._torn = descriptor, False
            self._unwritten.clear()
            self._last, self.is_complete = Place(number + 1, len(content)), True
            return self._last

    def close(self) -> None:
        with self._lock:
            self.cursor.close()
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def _scan(self) -> None:
        """Find the end of the last whole line and cut off what is behind it."""
        size = os.fstat(self._descriptor).st_size
        end, number = 0, -1
        for entry, line_end in _lines(self._descriptor, 0, size):
            if entry.kind == _HEADER:
                self.identity = str(entry.body.get("identity", ""))
            elif number >= 0 and entry.number > number + 1:
                self.is_complete = False
            end, number = line_end, max(number, entry.number)
        if end < size:
            _log.warning("%s: its last record was torn off and is left out (%d bytes)", self.path, size - end)
            os.ftruncate(self._descriptor, end)
        self.is_complete = self.is_complete and (bool(self.identity) or number < 0)
        self._last = Place(number, end)

    def _write(self, line: bytes) -> int:
        """The whole line or nothing; the offset behind it. A part of it that cannot be taken back is closed by a line
        break of its own."""
        before = self._last.offset
        if self._torn:
            _write_all(self._descriptor, b"\n")
            self._torn = False
        if self._refused:  # what an earlier try left there may be whole, and not synced
            before = os.fstat(self._descriptor).st_size
            self._last = self._last._replace(offset=before)
        try:
            _write_all(self._descriptor, line)
        except OSError:
            try:
                os.ftruncate(self._descriptor, before)
            except OSError:
                self._torn = True
            raise
        return before + len(line)


class Cursor:
    """The number of the last record delivered, in a file of fixed size: a full disk cannot keep it from being noted.

    Losing it is harmless, since delivering a record twice changes nothing.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def read(self, identity: str) -> int:
        """-1 when nothing of this journal was delivered yet."""
        words = os.pread(self._descriptor, 100, 0).split()
        try:
            return int(words[1]) if len(words) == 2 and words[0].decode() == identity else -1
        except ValueError:
            return -1

    def write(self, identity: str, number: int) -> None:
        with contextlib.suppress(OSError):  # see the class
            os.pwrite(self._descriptor, f"{identity} {number:020d}\n".encode(), 0)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _lines(descriptor: int, offset: int, end: int) -> Iterator[tuple[Entry, int]]:
    """Every whole record between two offsets with the offset behind it; damaged lines are passed over."""
    at, rest, block_size = offset, b"", _BLOCK
    while at < end and (block := os.pread(descriptor, min(block_size, end - at), at)):
        at += len(block)
        *lines, rest = (rest + block).split(b"\n")
        block_size = _BLOCK if lines else 2 * block_size  # a long record is not put together from many pieces
        for line in lines:
            offset += len(line) + 1
            entry = _parse(line + b"\n")
            if entry is not None:
                yield entry, offset


def _line(number: int, kind: str, text: str) -> bytes:
    content = f"{number} {kind} {text}".encode()
    return b"%08x %s\n" % (zlib.crc32(content), content)


def _parse(line: bytes) -> Entry | None:
    """The record of a line; None when the line is not whole."""
    content = line[9:-1]
    if not line.endswith(b"\n") or line[:9] != b"%08x " % zlib.crc32(content):
        return None
    number, kind, text = content.split(b" ", 2)
    return Entry(int(number), kind.decode(), json.loads(text))


def _write_all(descriptor: int, content: bytes) -> None:
    done = 0
    while done < len(content):
        done += os.write(descriptor, content[done:])
