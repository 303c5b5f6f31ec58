"""Reading a file that a thread of this process is still writing, so that readers need not wait for the whole file."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from vsetune.errors import StorageError
from vsetune.object_storage import s3

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
