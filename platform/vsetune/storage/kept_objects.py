"""Objects stored in a folder under their hash, read while they arrive, shared by all processes of a machine."""

from __future__ import annotations

import errno
import io
import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple

from vsetune.errors import StorageError
from vsetune.storage import s3
from vsetune.storage.hashes import sha256_hex, sha256_of_file
from vsetune.storage.locks import take_lock

WAIT_S = 300.0
"""Limit on the wait for another process that downloads the same object: a stopped process must not block the rest."""
_SHARE_OF_DISK = 0.5
"""Of the free space and the folder's own files: checkpoints, results and Ray's spilled objects need the rest."""
_HASH = re.compile(r"[0-9a-f]{64}")
_PARTIAL = ".partial"

_log = logging.getLogger(__name__)


def is_hash(text: str) -> bool:
    """Whether this can be the name of an object here."""
    return _HASH.fullmatch(text) is not None


@dataclass(frozen=True)
class KeptObjects:
    """most_bytes: limit for all objects together. Every method raises OSError when the folder or disk refuses."""

    folder: Path
    most_bytes: int

    def path(self, sha256: str) -> Path:
        return self.folder / sha256

    def lock(self, name: str, *, wait_s: float) -> IO[bytes]:
        """`take_lock` of this object, so that one process downloads it and the others find it."""
        (self.folder / "locks").mkdir(parents=True, exist_ok=True)
        return take_lock(self.folder / "locks" / f"{name}.lock", wait_s=wait_s)

    def open_sealed(self, sha256: str, size: int | None) -> int | None:
        """A descriptor of the file, if it has not been written to since its hash was verified. Notes the use."""
        try:
            descriptor = os.open(self.path(sha256), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        about, seal = os.fstat(descriptor), seal_of(sha256)
        if about.st_mtime_ns != seal or size not in (None, about.st_size):
            os.close(descriptor)
            return None
        with suppress(OSError):  # another user's file: its age then counts from that user's last use
            os.utime(descriptor, ns=(time.time_ns(), seal))
        return descriptor

    def seal(self, sha256: str) -> None:
        """Mark that its hash was verified."""
        os.utime(self.path(sha256), ns=(time.time_ns(), seal_of(sha256)))

    def seal_open(self, file: IO[bytes], sha256: str) -> None:
        """As `seal`, for a file that is not in its place yet. Seals the open file rather than the name: if the folder
        is removed meanwhile, another process may be writing under that name."""
        file.flush()
        os.utime(file.fileno(), ns=(time.time_ns(), seal_of(sha256)))

    def is_sound(self, sha256: str) -> bool:
        """Whether a file without a seal has this content all the same, as after a restart of the machine; if not, it is
        removed."""
        path = self.path(sha256)
        try:
            if sha256_of_file(path) == sha256:
                return True
        except FileNotFoundError:
            return False
        _log.warning("%s: damaged since it was downloaded; fetching it again", path)
        path.unlink(missing_ok=True)
        return False

    def take_room(self, file: IO[bytes], length: int) -> bool:
        """Make room for `length` bytes and allocate it on the disk, one process at a time. False: there cannot be
        enough."""
        with self.lock("room", wait_s=WAIT_S):
            used, kept = self._used()
            free = shutil.disk_usage(self.folder).free + used
            if free < length:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            bound = min(self.most_bytes, int(_SHARE_OF_DISK * free))
            for _, size, path in sorted(kept):
                if used + length <= bound:
                    break
                path.unlink(missing_ok=True)
                used -= size
            if used + length > bound:
                return False
            if length:
                os.posix_fallocate(file.fileno(), 0, length)
        return True

    def _used(self) -> tuple[int, list[tuple[int, int, Path]]]:
        """(bytes of all files, (last use, bytes, path) of removable files). Removes what a killed download left.

        Other software's files in the folder are neither counted nor touched.
        """
        used, kept = 0, []
        for entry in os.scandir(self.folder):
            name, is_partial = entry.name.removesuffix(_PARTIAL), entry.name.endswith(_PARTIAL)
            if not is_hash(name) or (is_partial and self._is_abandoned(name)):
                continue
            with suppress(FileNotFoundError):
                about = entry.stat(follow_symlinks=False)
                used += about.st_size
                if not is_partial:
                    kept.append((about.st_atime_ns, about.st_size, Path(entry.path)))
        return used, kept

    def _is_abandoned(self, sha256: str) -> bool:
        """Whether no process is downloading it any more; the partial file is then removed."""
        try:
            with self.lock(sha256, wait_s=0):
                (self.folder / f"{sha256}{_PARTIAL}").unlink(missing_ok=True)
        except BlockingIOError:
            return False
        return True


def seal_of(name: str) -> int:
    """The modification time, in ns, that marks a file of this name as verified: a date long past that no writer sets.

    A write to the file breaks the seal. It holds until the machine restarts only: files are not forced to the disk, and
    after a power cut one may have its full size and be empty.
    """
    return int(sha256_hex(f"{_boot()} {name}".encode())[:7], 16) * 10**9


@cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:  # not Linux
        return ""


_AT_ONCE = 1 << 20


class _Progress(NamedTuple):
    """bytes: of `file`, readable so far. attempt: how often the file was begun again. is_kept: set at the end."""

    bytes: int = 0
    file: Path = Path()
    attempt: int = 0
    is_over: bool = False
    is_kept: bool = False


class Arriving:
    """An object that is being downloaded: one thread writes, any number of readers follow. stop: asks the writer to
    end.

    The last byte is given out once the writer has verified the whole, so a reader that reaches the end has read the
    right content.
    """

    def __init__(self, stop: threading.Event | None = None) -> None:
        self.readers = 0
        """Changed under the lock of the registry that hands out this object."""
        self._stop = stop or threading.Event()
        self._changed = threading.Condition()
        self._progress = _Progress()
        self._error: Exception | None = None

    @property
    def is_unwanted(self) -> bool:
        """Whether the writer was asked to end and has no reader."""
        return self._stop.is_set() and not self.readers

    def written(self, file: Path, count: int) -> None:
        """`count` bytes of the file can be read."""
        self._go_on(self._progress._replace(file=file, bytes=count))

    def begin_again(self) -> None:
        """The content written so far is wrong; a reader that has some of it gets a StorageError at the end."""
        self._go_on(_Progress(attempt=self._progress.attempt + 1))

    def end(self, *, is_kept: bool, error: Exception | None = None) -> None:
        """Writing is over. is_kept: the file is whole and in its place. error: raised to the readers."""
        self._error = error
        self._go_on(self._progress._replace(is_over=True, is_kept=is_kept))

    def wait_for_end(self, *, unless: threading.Event | None = None) -> None:
        """Wait until writing is over, or the event is set."""
        with self._changed:
            while not self._progress.is_over and (unless is None or not unless.is_set()):
                self._changed.wait(0.1)

    def wait_beyond(self, position: int, attempt: int | None) -> _Progress:
        """Wait until more than `position` bytes of this attempt are there, or writing is over. Raises the writer's
        error."""
        with self._changed:
            while not self._progress.is_over and (
                self._progress.bytes <= position or attempt not in (None, self._progress.attempt)
            ):
                self._changed.wait()
            if self._error is not None:
                raise self._error
            return self._progress

    def _go_on(self, progress: _Progress) -> None:
        with self._changed:
            self._progress = progress
            self._changed.notify_all()


class Following(io.RawIOBase):
    """The arriving object as a stream from its start; made when its first bytes are there. Raises the writer's error.

    finished: gives a descriptor of the finished file, or None, and S3 is then read. left: called on closing.
    """

    def __init__(
        self, arriving: Arriving, url: str, *, finished: Callable[[], int | None], left: Callable[[], None]
    ) -> None:
        self._arriving, self._url, self._finished, self._left = arriving, url, finished, left
        self._file: io.FileIO | BinaryIO | None = None
        self._position, self._ready, self._is_whole = 0, 0, False
        self._attempt: int | None = None
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._is_whole and self._position >= self._ready:
            self._wait()
        assert self._file is not None
        most = len(buffer) if self._is_whole else min(len(buffer), self._ready - self._position)
        try:
            content = self._file.read(most)
        except OSError as error:
            raise StorageError(f"{self._url}: its copy cannot be read ({error.strerror}); start again.") from error
        buffer[: len(content)] = content
        self._position += len(content)
        return len(content)

    def close(self) -> None:
        if not self.closed:
            if self._file is not None:
                self._file.close()
            self._left()
        super().close()

    def _wait(self) -> None:
        """Wait until there is more. The opened file stays the same one when it gets its final name."""
        found = self._arriving.wait_beyond(self._position, self._attempt)
        if not found.is_over:
            self._ready = found.bytes
            if self._file is not None or self._has_opened(found):
                return
            self._arriving.wait_for_end()
            self._wait()
            return
        self._is_whole = True
        if self._file is None:
            descriptor = self._finished()
            self._file = s3.open_object(self._url)[0] if descriptor is None else io.FileIO(descriptor)
        elif found.attempt != self._attempt:
            raise StorageError(f"{self._url}: did not arrive as it should be; start again.")
        elif not found.is_kept:
            self._go_on_from_s3()

    def _go_on_from_s3(self) -> None:
        """Continue from S3 after the disk was full or the folder was removed; the bytes read so far came from S3
        unchanged."""
        assert self._file is not None
        self._file.close()
        self._file, position = s3.open_object(self._url)[0], 0
        while position < self._position:
            passed = len(self._file.read(min(_AT_ONCE, self._position - position)))
            if not passed:
                raise StorageError(f"{self._url}: was changed while it was read; start again.")
            position += passed

    def _has_opened(self, found: _Progress) -> bool:
        """False when the file was just moved to its place, or withdrawn."""
        try:
            self._file = io.FileIO(found.file)
        except FileNotFoundError:
            return False
        self._attempt = found.attempt
        return True
