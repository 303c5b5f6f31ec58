"""The log of a study: a file `study.log` in the study's folder to which one driver appends lines.

    CRC-32 of all that follows, number of the line, kind, head as JSON; of a `validated` event a tab and its points

Lines count up from 0. An incomplete last line, as a kill or a full disk leaves it, does not count; the next writer cuts
it off. A damaged line before other lines is an error for a writer; a reader skips it with a warning.

With a home on object storage the log is a series of numbered objects under `log/`, each of whole lines, and the file is
a copy of them. An object is created only if none exists (`If-None-Match: *`): a driver that was overtaken finds its
next number taken, and can add nothing more.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from vsetune.errors import DataError, StorageError
from vsetune.records import messages
from vsetune.records.background import Repeated
from vsetune.records.events import Event, from_texts, to_texts
from vsetune.storage.addresses import join
from vsetune.storage.locks import take_lock
from vsetune.storage.mirror import SET_ASIDE
from vsetune.storage.paths import home_variable
from vsetune.storage.s3 import ObjectChanged, find, listing, put_bytes
from vsetune.storage.whole_files import free_name, make_folder, read_json, unreadable, write_json

_log = logging.getLogger(__name__)
LOG_FILE = "study.log"
OBJECTS = "log"
_NOTE_FILE = ".study.log.objects"
_SEND_EVERY_S = 5.0
_LARGEST_OBJECT, _LARGEST_SENT, _AT_ONCE = 1 << 28, 1 << 24, 16
_NOTHING = {"objects": 0, "bytes": 0}


class Line(NamedTuple):
    """One event as the log stores it. end: the offset behind it."""

    number: int
    kind: str
    head: bytes
    rest: bytes
    end: int

    def event(self) -> Event:
        """The event with all its numbers."""
        return from_texts(self.kind, self.head, self.rest)


class Overtaken(StorageError):
    """Another driver has the study: events that this driver adds no longer count."""


def lines_of(file: Path, offset: int = 0, *, number: int | None = None, strict: bool = False) -> Iterator[Line]:
    """The whole lines of a log from an offset on; none if there is no file.

    number: of the first line, if known. strict: DataError for a damaged line that others follow; otherwise it is
    skipped with a warning. StorageError when the file cannot be read.
    """
    try:
        with file.open("rb") as stream:
            stream.seek(offset)
            expected = number
            for raw in stream:
                line = _parsed(raw, offset + len(raw))
                if line is None and not raw.endswith(b"\n"):
                    return
                if line is None or (expected is not None and line.number != expected):
                    if strict:
                        raise DataError(messages.LOG_DAMAGED(log=file, byte=offset))
                    _log.warning("%s: damaged at byte %s; its line is left out", file, f"{offset:,}")
                offset += len(raw)
                if line is not None:
                    expected = line.number + 1
                    yield line
    except FileNotFoundError:
        return
    except OSError as error:
        raise unreadable(file, error) from error


def name_of_log(file: Path) -> str:
    """An identifier of the log at this path: the checksum of its first line. FileNotFoundError."""
    with file.open("rb") as stream:
        return stream.read(8).decode()


def cannot_write(path: Path, error: OSError) -> StorageError:
    """The error for a file or folder of a home that the disk refuses."""
    return StorageError(messages.CANNOT_WRITE(
        file=path, reason=error.strerror or error, variable=home_variable()
    ))


class LogWriter:
    """Appends events to the log of a study. The caller holds the study's lock or lease. Thread-safe.

    folder: of the study on this machine. url: of the same folder under a remote home; None: the folder is the home.
    """

    def __init__(
        self, folder: Path, url: str | None = None, *, on_overtaken: Callable[[str], None] = _log.error
    ) -> None:
        """Open or make the log and cut off a torn end. on_overtaken: called once, from a thread, when another driver
        has the study. StorageError when the log cannot be read or written; DataError when it is damaged."""
        make_folder(folder)
        self.path = folder / LOG_FILE
        self._lock = threading.RLock()
        self._sender = None if url is None else _Sender(self.path, url, on_overtaken)
        end, number = 0, -1
        for line in lines_of(self.path, number=0, strict=True):
            end, number = line.end, line.number
        self._number = number
        self._waiting: deque[bytes] = deque()
        self._is_refused = False
        try:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            if os.fstat(self._descriptor).st_size > end:
                _log.warning("%s: its last line was torn off and is left out", self.path)
                os.ftruncate(self._descriptor, end)
        except OSError as error:
            raise cannot_write(self.path, error) from error
        self._end = end
        if self._sender is not None:
            self._sender.start(end)

    @property
    def last(self) -> int:
        """The number of the newest line; -1 of an empty log."""
        return self._number

    @property
    def settled_end(self) -> int:
        """The offset behind the last line that counts: it is in the file and, with a remote home, on the server."""
        return self._end if self._sender is None else self._sender.sent

    def append(self, event: Event, *, durable: bool = False) -> None:
        """Append an event, which then outlives this process. durable: it also survives a power failure.

        Never raises: events that the disk refuses wait in memory, in order, and are written before the next event.
        """
        kind, head, rest = to_texts(event)
        with self._lock:
            self._number += 1
            content = f"{self._number} {kind} {head}".encode() + (b"\t" + rest.encode() if rest else b"")
            self._waiting.append(b"%08x %s\n" % (zlib.crc32(content), content))
            with suppress(OSError):
                self._write(durable=durable)

    def settle(self, within_s: float = 60.0) -> None:
        """Return once all appended events count: they are on the disk and, with a remote home, on the server.

        Overtaken when another driver has the study; StorageError when disk or server do not take them in time.
        """
        with self._lock:
            try:
                self._write(durable=True)
            except OSError as error:
                raise cannot_write(self.path, error) from error
        if self._sender is not None:
            self._sender.settle(within_s)

    def after_settled(self, do: Callable[[], None]) -> None:
        """Call `do` once everything appended so far counts: at once, or from a thread once the server has it. With a
        remote home, a StorageError that it raises is logged and dropped."""
        if self._sender is None:
            do()
        else:
            self._sender.after(do)

    def _write(self, *, durable: bool) -> None:
        try:
            while self._waiting:
                _write_all(self._descriptor, self._waiting[0])
                self._end += len(self._waiting.popleft())
            if durable:
                os.fsync(self._descriptor)
        except OSError as error:
            if not self._is_refused:
                _log.warning("%s: cannot be written (%s); events wait in memory", self.path, error.strerror)
            self._is_refused = True
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._end)
            raise
        self._is_refused = False
        if self._sender is not None:
            self._sender.end = self._end

    def close(self, within_s: float = 60.0) -> None:
        """Write and send the rest, as far as disk and server take it in time, and close the file."""
        with self._lock, suppress(OSError):
            self._write(durable=True)
        if self._sender is not None:
            self._sender.close(within_s)
        with self._lock:
            os.close(self._descriptor)


class _Sender:
    """Sends the bytes appended to the local copy of a log to object storage, as the next numbered object."""

    def __init__(self, path: Path, url: str, on_overtaken: Callable[[str], None]) -> None:
        self._path, self._url, self._on_overtaken = path, url, on_overtaken
        self._afterwards: deque[tuple[int, Callable[[], None]]] = deque()
        self._objects, self.sent = bring_up_to_date(path, url)
        self.end = 0
        self._steps = Repeated(self._step, name="log-sender", what=url, every_s=_SEND_EVERY_S, final=Overtaken)

    def start(self, end: int) -> None:
        self.end = end
        self._steps.start()

    def settle(self, within_s: float) -> None:
        wanted = self.end
        self._steps.ask()
        self._steps.wait_for(lambda: self.sent >= wanted, within_s)
        if self._steps.refusal is not None:
            raise self._steps.refusal
        if self.sent < wanted:
            raise self._steps.outage or StorageError(messages.LOG_NOT_SENT(log=self._url, seconds=within_s))

    def after(self, do: Callable[[], None]) -> None:
        self._afterwards.append((self.end, do))

    def close(self, within_s: float) -> None:
        with suppress(StorageError):
            self.settle(within_s)
        self._steps.close(_SEND_EVERY_S)

    def _step(self) -> bool:
        try:
            self._send_object()
        except Overtaken as error:
            self._on_overtaken(str(error))
            raise
        while self._afterwards and self._afterwards[0][0] <= self.sent:
            _, do = self._afterwards.popleft()
            try:
                do()
            except StorageError as error:
                _log.info("%s: not done after sending: %s", self._url, error)
        return self.sent < self.end

    def _send_object(self) -> None:
        end = self.end
        if self.sent == end:
            return
        with self._path.open("rb") as stream:
            stream.seek(self.sent)
            content = stream.read(min(end - self.sent, _LARGEST_SENT))
            if self.sent + len(content) < end:
                content += stream.readline()
        address = join(self._url, f"{OBJECTS}/{self._objects:08d}")
        try:
            put_bytes(address, content, if_absent=True)
        except ObjectChanged as error:
            there = find(address, most=_LARGEST_OBJECT)
            if there is None or not there[0] or not content.startswith(there[0]):
                raise Overtaken(messages.LOG_OVERTAKEN(log=self._url)) from error
            content = there[0]  # this driver's own: the answer to it was lost, and the log has grown since
        self._objects += 1
        self.sent += len(content)
        write_json(
            self._path.with_name(_NOTE_FILE), {"objects": self._objects, "bytes": self.sent}, durable=False
        )


def bring_up_to_date(path: Path, url: str) -> tuple[int, int]:
    """Bring the local copy of a log up to date with the remote home. Returns (objects, bytes in them). StorageError.

    Local bytes after the last remote object stay, and are sent next: a driver of this machine was killed before it sent
    them, or the home was on this disk before. Where the contents differ, the remote ones count, and the local bytes are
    moved to a file beside the log.
    """
    names = sorted(name for name in listing(join(url, OBJECTS) + "/"))
    note = read_json(path.with_name(_NOTE_FILE)) or _NOTHING
    size = path.stat().st_size if path.exists() else 0
    if note["objects"] > len(names) or note["bytes"] > size:
        note = _NOTHING
    new = names[note["objects"]:]
    if not new:
        return note["objects"], note["bytes"]
    make_folder(path.parent)
    with ThreadPoolExecutor(_AT_ONCE) as pool, path.open("r+b" if path.exists() else "w+b") as stream:
        end = note["bytes"]
        for name, found in zip(new, pool.map(lambda each: find(each, most=_LARGEST_OBJECT), new), strict=True):
            if found is None:
                raise StorageError(messages.OBJECT_REMOVED(object=name))
            stream.seek(end)
            here = stream.read(len(found[0]))
            if here != found[0]:
                if not found[0].startswith(here):
                    _keep_rest(stream, end, path)
                stream.seek(end)
                stream.write(found[0])
            end += len(found[0])
    write_json(path.with_name(_NOTE_FILE), {"objects": len(names), "bytes": end}, durable=False)
    return len(names), end


def _keep_rest(stream: IO[bytes], begin: int, path: Path) -> None:
    """Move the content of a log from an offset on to a file beside it."""
    kept = free_name(path, SET_ASIDE)
    stream.seek(begin)
    with kept.open("wb") as rest:
        shutil.copyfileobj(stream, rest)
    stream.truncate(begin)
    _log.warning("%s: the home's server has other lines from byte %s on; what stood here is in %s", path, begin, kept)


def refreshed(folder: Path, url: str | None, lock_file: Path) -> Path:
    """The log of a study, for reading; brought up to date if the home is remote and no driver of this machine writes
    the copy. StorageError when the server does not answer."""
    path = folder / LOG_FILE
    if url is None:
        return path
    make_folder(folder)
    with suppress(BlockingIOError), take_lock(lock_file, wait_s=0):
        bring_up_to_date(path, url)
    return path


def _parsed(raw: bytes, end: int) -> Line | None:
    """The line; None if it is incomplete or damaged."""
    content = raw[9:-1]
    if not raw.endswith(b"\n") or raw[:9] != b"%08x " % zlib.crc32(content):
        return None
    begin, _, rest = content.partition(b"\t")
    number, kind, head = begin.split(b" ", 2)
    return Line(int(number), kind.decode(), head, rest, end)


def _write_all(descriptor: int, content: bytes) -> None:
    done = 0
    while done < len(content):
        done += os.write(descriptor, content[done:])
