"""The log of a study: a file `study.log` in the study's folder to which one driver appends lines.

    CRC-32 of all that follows, number of the line, kind, head as JSON; of a `validated` event a tab and its points

Lines count up from 0. The beginning of a line at the end, as a kill or a full disk leaves it, does not count; the next
writer cuts it off. Anything else that is no line is damage: an error for a writer; a reader skips it with a warning.

With a home on object storage the log is a series of numbered objects under `log/`, each of whole lines, and the file is
a copy of them. An object is created only if none exists (`If-None-Match: *`): a driver that was overtaken finds its
next number taken, and can add nothing more.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, NamedTuple

from vsetune.errors import DataError, Overtaken, Problem, StorageError
from vsetune.home.addresses import join
from vsetune.home.background import Repeated
from vsetune.home.locks import take_lock
from vsetune.home.paths import home_variable
from vsetune.home.s3 import ObjectChanged, find, listing, put_bytes
from vsetune.home.whole_files import free_name, make_folder, read_json, unreadable, write_json
from vsetune.records.events import Event, from_texts, to_texts

_log = logging.getLogger(__name__)
LOG_FILE = "study.log"
OBJECTS = "log"
_NOTE_FILE = ".study.log.objects"
_SEND_EVERY_S = 5.0
_LARGEST_OBJECT, _LARGEST_SENT, _AT_ONCE = 1 << 28, 1 << 24, 16
_NOTHING = {"objects": 0, "bytes": 0, "crc": 0}
_PATIENCE_S = 120.0
"""How long a disk may refuse the log before its driver is asked to stop."""
_TORN = re.compile(rb"[0-9a-f]{0,8}|[0-9a-f]{8} [^\0]*")
"""The beginning of a line."""


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


def lines_of(file: Path, offset: int = 0, *, number: int | None = None, strict: bool = False) -> Iterator[Line]:
    """The whole lines of a log from an offset on; none if there is no file.

    number: of the first line, if known. strict: DataError for damage; otherwise it is skipped with a warning.
    StorageError when the file cannot be read.
    """
    try:
        with file.open("rb") as stream:
            stream.seek(offset)
            expected = number
            for raw in stream:
                line = _parsed(raw, offset + len(raw))
                if line is None and not raw.endswith(b"\n") and _TORN.fullmatch(raw):
                    return
                if line is None or (expected is not None and line.number != expected):
                    if strict:
                        raise DataError(
                            "VSE-R001", "{log}: damaged at byte {byte:,}; put back a copy of the study's folder, or "
                            "bring the lines from its MLflow (vsetune tracking import --tracking-uri URI {study})",
                            log=file, byte=offset, study=file.parent.name,
                        )
                    _tell_damage(file, offset)
                offset += len(raw)
                if line is not None:
                    expected = line.number + 1
                    yield line
    except FileNotFoundError:
        return
    except OSError as error:
        raise unreadable(file, error) from error


@cache
def _tell_damage(file: Path, offset: int) -> None:
    """Once in a process, however often the log is read."""
    _log.warning("what stands there is left out: %s", Problem.of(
        "VSE-R001", "{log}: damaged at byte {byte:,}; put back a copy of the study's folder, or bring the lines from "
        "its MLflow (vsetune tracking import --tracking-uri URI {study})", log=file, byte=offset,
        study=file.parent.name,
    ))


def name_of_log(file: Path) -> str:
    """An identifier of the log at this path: the checksum of its first line. FileNotFoundError."""
    with file.open("rb") as stream:
        return stream.read(8).decode()


def cannot_write(path: Path, error: OSError) -> StorageError:
    """The error for a file or folder of a home that the disk refuses."""
    return StorageError(
        "VSE-R007", "{file}: cannot be written ({reason}); free space, correct its rights, or set {variable} to "
        "another folder", file=path, reason=error.strerror or error, variable=home_variable(),
    )


class LogWriter:
    """Appends events to the log of a study. The caller holds the study's lock. Thread-safe.

    folder: of the study on this machine. url: of the same folder under a remote home; None: the folder is the home.
    """

    def __init__(
        self, folder: Path, url: str | None = None, *, on_overtaken: Callable[[str], None] = _log.error
    ) -> None:
        """Open or make the log and cut off a torn end. on_overtaken: called once, from a thread, when this driver must
        stop: another one has the study, or the disk has refused the log for two minutes. StorageError when the log
        cannot be read or written; DataError when it is damaged."""
        make_folder(folder)
        self.path = folder / LOG_FILE
        self._lock = threading.RLock()
        self._sender = None if url is None else _Sender(self.path, url, on_overtaken)
        end, number = 0, -1
        for line in lines_of(self.path, number=0, strict=True):
            end, number = line.end, line.number
        self._number = number
        self._waiting: deque[bytes] = deque()
        self._on_overtaken, self._refused_since = on_overtaken, float("inf")
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
            self._refused(error)
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._end)
            raise
        self._refused_since = float("inf")
        if self._sender is not None:
            self._sender.end = self._end

    def _refused(self, error: OSError) -> None:
        now = time.monotonic()
        if self._refused_since == float("inf"):
            _log.warning("%s: cannot be written (%s); events wait in memory, for %g s", self.path, error.strerror,
                         _PATIENCE_S)
            self._refused_since = now
        elif self._refused_since + _PATIENCE_S <= now:
            self._refused_since = now
            self._on_overtaken(str(cannot_write(self.path, error)))

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
        self._crc = (read_json(path.with_name(_NOTE_FILE)) or _NOTHING)["crc"]
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
            raise self._steps.outage or StorageError(
                "VSE-R005", "{log}: the server took nothing for {seconds:g} s; check the server", log=self._url,
                seconds=within_s,
            )

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
                raise Overtaken(
                    "VSE-R004", "{log}: another driver has added to the log of this study; this process stops",
                    log=self._url,
                ) from error
            content = there[0]  # this driver's own: the answer to it was lost, and the log has grown since
        self._objects += 1
        self.sent += len(content)
        self._crc = zlib.crc32(content, self._crc)
        _note(self._path, self._objects, self.sent, self._crc)


def bring_up_to_date(path: Path, url: str, *, checks: bool = True) -> tuple[int, int]:
    """Bring the local copy of a log up to date with the remote home. Returns (objects, bytes in them). StorageError.
    checks: also what was brought before.

    Local bytes after the last remote object stay, and are sent next: a driver of this machine was killed before it sent
    them, or the home was on this disk before. Where the contents differ, the server's count. Local bytes that once were
    equal to them were damaged here and are overwritten; other bytes move to a file beside the log.
    """
    names = sorted(name for name in listing(join(url, OBJECTS) + "/"))
    known = note = _noted(path)
    size = path.stat().st_size if path.exists() else 0
    if note["objects"] > len(names) or note["bytes"] > size:
        known = note = _NOTHING
    elif checks and note["bytes"] and _crc_of(path, note["bytes"]) != note["crc"]:
        note = _NOTHING
    new = names[note["objects"]:]
    if not new:
        return note["objects"], note["bytes"]
    make_folder(path.parent)
    with ThreadPoolExecutor(_AT_ONCE) as pool, path.open("r+b" if path.exists() else "w+b") as stream:
        end, crc = note["bytes"], note["crc"]
        for name, found in zip(new, pool.map(lambda each: find(each, most=_LARGEST_OBJECT), new), strict=True):
            if found is None:
                raise StorageError(
                    "VSE-R006", "{object}: was removed while it was read; put it back, or restore the bucket",
                    object=name,
                )
            stream.seek(end)
            here = stream.read(len(found[0]))
            if here != found[0]:
                if end + len(found[0]) <= known["bytes"]:
                    _log.warning("%s: was damaged at byte %s and is mended from the home's server", path, f"{end:,}")
                elif not found[0].startswith(here):
                    _keep_rest(stream, end, path)
                stream.seek(end)
                stream.write(found[0])
            end, crc = end + len(found[0]), zlib.crc32(found[0], crc)
    _note(path, len(names), end, crc)
    return len(names), end


def _noted(path: Path) -> dict[str, int]:
    """What the copy had when it was last equal to the objects: how many, their bytes, and the CRC-32 of these."""
    with suppress(DataError):
        note = read_json(path.with_name(_NOTE_FILE))
        if isinstance(note, dict) and all(isinstance(note.get(key), int) for key in _NOTHING):
            return note
    return _NOTHING


def _note(path: Path, objects: int, size: int, crc: int) -> None:
    write_json(path.with_name(_NOTE_FILE), {"objects": objects, "bytes": size, "crc": crc}, durable=False)


def _crc_of(path: Path, size: int) -> int:
    """Of the first bytes of a file."""
    crc = 0
    with path.open("rb") as stream:
        while size and (block := stream.read(min(size, _LARGEST_SENT))):
            crc, size = zlib.crc32(block, crc), size - len(block)
    return crc


def _keep_rest(stream: IO[bytes], begin: int, path: Path) -> None:
    """Move the content of a log from an offset on to a file beside it."""
    kept = free_name(path, "superseded")
    stream.seek(begin)
    with kept.open("wb") as rest:
        shutil.copyfileobj(stream, rest)
    stream.truncate(begin)
    _log.warning("%s: the home's server has other lines from byte %s on; what stood here is in %s", path, begin, kept)


def refreshed(folder: Path, url: str | None, lock_file: Path, *, checks: bool = True) -> Path:
    """The log of a study, for reading; brought up to date if the home is remote and no driver of this machine writes
    the copy; checks: see `bring_up_to_date`. StorageError when the server does not answer."""
    path = folder / LOG_FILE
    if url is None:
        return path
    make_folder(folder)
    with suppress(BlockingIOError), take_lock(lock_file, wait_s=0):
        bring_up_to_date(path, url, checks=checks)
    return path


def _parsed(raw: bytes, end: int) -> Line | None:
    """The line; None if it is incomplete or damaged."""
    content = raw[9:-1]
    if not raw.endswith(b"\n") or raw[:9] != b"%08x " % zlib.crc32(content):
        return None
    begin, _, rest = content.partition(b"\t")
    try:
        number, kind, head = begin.split(b" ", 2)
        return Line(int(number), kind.decode(), head, rest, end)
    except ValueError:
        return None


def _write_all(descriptor: int, content: bytes) -> None:
    done = 0
    while done < len(content):
        done += os.write(descriptor, content[done:])
