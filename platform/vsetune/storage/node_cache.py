"""Objects of a bucket cached on the disk of this node, for all its processes: downloaded once, SHA-256 compared.

The cache is $VSETUNE_NODE_CACHE, or `cache/shards` under vsetune's home, and takes at most $VSETUNE_NODE_CACHE_GB; see
`kept_objects`. An object can be read while it is still arriving. Decision 0036.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from vsetune.errors import ConfigError, DataError, StorageError, one_line
from vsetune.storage import s3
from vsetune.storage.hashes import HashingWriter, sha256_of_file
from vsetune.storage.kept_objects import WAIT_S, Arriving, Following, KeptObjects, is_hash
from vsetune.storage.paths import NODE_CACHE_VARIABLE, home, local_path
from vsetune.storage.whole_files import whole_file

FOLDER_VARIABLE, SIZE_VARIABLE = NODE_CACHE_VARIABLE, "VSETUNE_NODE_CACHE_GB"

_DEFAULT_GB = 50.0
"""MS-COCO with 36 regions of 2048 takes 18 GB, its photographs another 18 GB: room for one such data set and a small
one."""
_AHEAD_SHARE = 8
"""A shard is fetched ahead if this many of its size fit: four are read side by side, each with its next shard."""
_AT_ONCE = 1 << 20
_OTHER_HASH = "its SHA-256 is not the one it was listed with"

_log = logging.getLogger(__name__)


class WrongContent(DataError):
    """An object that does not match its list. reason: what is wrong with it, in a few words."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason

    @classmethod
    def of(cls, url: str, reason: str) -> WrongContent:
        return cls(
            f"{one_line(url)}: {reason}; half written, or changed since it was ingested: upload it again from the "
            "data set's folder, or ingest the data set again.", reason,
        )


class _NoRoom(Exception):
    """The bound, or half of the disk, is taken by files that cannot be removed."""


class _Stopped(Exception):
    """The download is no longer wanted."""


def node_cache() -> NodeCache:
    """The cache that the environment describes. ConfigError in one line for an unusable folder or size."""
    folder, size = os.environ.get(FOLDER_VARIABLE), os.environ.get(SIZE_VARIABLE)
    try:
        place = Path(local_path(folder)).absolute() if folder else home() / "cache" / "shards"
    except ValueError as error:
        raise ConfigError(f"{FOLDER_VARIABLE}: {error}") from error
    try:
        gigabytes = float(size) if size else _DEFAULT_GB
    except ValueError:
        gigabytes = math.nan
    if not 0 <= gigabytes < 1e9:
        raise ConfigError(
            f"{SIZE_VARIABLE}: got {one_line(repr(size))}, need gigabytes such as 50; 0 reads from S3 every time"
        )
    return NodeCache(place, round(gigabytes * 1e9))


@dataclass(frozen=True)
class NodeCache:
    """most_bytes: limit for all objects together; 0 caches nothing.

    If an object cannot be cached (too large, an unwritable folder or full disk, no hash), the methods return None and
    the object has to be read from S3; reasons of size, folder and disk are logged once. size: bytes of the object, None
    if unknown.
    """

    folder: Path
    most_bytes: int

    def whole(self, url: str, *, sha256: str, size: int | None = None) -> int | None:
        """A descriptor of the object, once it is here. WrongContent; NothingThere, StorageError as in `s3`."""
        if not self._may_keep(url, sha256, size):
            return None
        try:
            if not self._bring(url, sha256, size, Arriving(), wait_s=WAIT_S):
                return None
            return self._kept.open_sealed(sha256, size)
        except OSError as error:
            self._say_unkept(error)
            return None

    def found(self, *, sha256: str, size: int) -> int | None:
        """A descriptor of an object that is here already."""
        if self.most_bytes and is_hash(sha256):
            with suppress(OSError):  # the process that downloads it next reports what is wrong with the folder
                return self._kept.open_sealed(sha256, size)
        return None

    def follow(self, url: str, *, sha256: str, size: int) -> Following | None:
        """An object that is not here yet: a thread downloads it, and it is read as it arrives. Errors as in `whole`.

        A wrong hash is raised instead of returning the last byte: as WrongContent, or as StorageError if a second
        download was right.
        """
        if not self._may_keep(url, sha256, size):
            return None
        arriving, is_first = self._join(sha256, None, reads=True)
        if is_first:
            thread = threading.Thread(
                target=self._download, args=(url, sha256, size, arriving), kwargs={"wait_s": WAIT_S},
                name="vsetune-download", daemon=True,
            )
            thread.start()

        def finished() -> int | None:
            with suppress(OSError):
                return self._kept.open_sealed(sha256, size)
            return None

        return Following(arriving, url, finished=finished, left=lambda: _leave(arriving))

    def fetch(self, url: str, *, sha256: str, size: int, stop: threading.Event) -> None:
        """Fetch the object ahead of its use, or wait for the download that runs in this process.

        Does nothing if another process downloads it or too few objects of this size fit. Ends early when `stop` is set.
        Errors are raised to the readers, not here.
        """
        if size * _AHEAD_SHARE > self.most_bytes or not self._may_keep(url, sha256, size):
            return
        here = self.found(sha256=sha256, size=size)
        if here is not None:
            os.close(here)
            return
        arriving, is_first = self._join(sha256, stop, reads=False)
        if is_first:
            self._download(url, sha256, size, arriving, wait_s=0.0)
        else:
            arriving.wait_for_end(unless=stop)

    def require_sound(self, url: str, *, sha256: str) -> None:
        """StorageError when the copy on this disk is damaged; the copy is then removed, so the next read fetches it
        again.

        Called after the content was found wrong: the object itself may be sound.
        """
        if not is_hash(sha256):
            return
        path = self._kept.path(sha256)
        with suppress(OSError):
            if sha256_of_file(path) != sha256:
                path.unlink(missing_ok=True)
                raise StorageError(f"{path}: the copy of {url} on this disk was damaged and is removed; start again.")

    @property
    def _kept(self) -> KeptObjects:
        return KeptObjects(self.folder, self.most_bytes)

    def _may_keep(self, url: str, sha256: str, size: int | None) -> bool:
        if not self.most_bytes or not is_hash(sha256):
            return False
        if size is not None and size > self.most_bytes:
            self._say_too_large(url, size)
            return False
        return True

    def _join(self, sha256: str, stop: threading.Event | None, *, reads: bool) -> tuple[Arriving, bool]:
        """(the download in this process, whether the caller has to begin it)."""
        key = (self.folder, sha256)
        with _downloads_lock:
            is_first = key not in _downloads
            arriving = _downloads.setdefault(key, Arriving(stop))
            arriving.readers += reads
        return arriving, is_first

    def _download(self, url: str, sha256: str, size: int, arriving: Arriving, *, wait_s: float) -> None:
        """Run a download of this process to its end. wait_s: for another process's download, if this process has no
        reader."""
        is_kept, error = False, cast(Exception | None, None)
        try:
            try:
                is_kept = self._bring(url, sha256, size, arriving, wait_s=wait_s)
            except BlockingIOError:
                if self._has_ended_unread(sha256, arriving):
                    return
                is_kept = self._bring(url, sha256, size, arriving, wait_s=WAIT_S)
        except OSError as caught:
            self._say_unkept(caught)
        except _Stopped:
            error = StorageError(f"{url}: its download was given up; start again.")
        except Exception as caught:  # raised to the readers
            error = caught
        with _downloads_lock:
            _downloads.pop((self.folder, sha256), None)
        arriving.end(is_kept=is_kept, error=error)

    def _has_ended_unread(self, sha256: str, arriving: Arriving) -> bool:
        """Whether no reader here waits for the download of another process; this download is then ended."""
        with _downloads_lock:
            if arriving.readers:
                return False
            _downloads.pop((self.folder, sha256), None)
        arriving.end(is_kept=False)
        return True

    def _bring(self, url: str, sha256: str, size: int | None, arriving: Arriving, *, wait_s: float) -> bool:
        """Whether the object is here now, sealed. OSError from the folder or disk."""
        kept = self._kept
        here = kept.open_sealed(sha256, size)
        if here is None:
            with kept.lock(sha256, wait_s=wait_s):
                here = kept.open_sealed(sha256, size)
                if here is None:
                    if not kept.is_sound(sha256):
                        return self._fetch_twice(url, sha256, size, arriving)
                    kept.seal(sha256)
                    return True
        os.close(here)
        return True

    def _fetch_twice(self, url: str, sha256: str, size: int | None, arriving: Arriving) -> bool:
        """False if it does not fit. A wrong hash is downloaded once more, since bits can flip in transit, then raised.
        """
        try:
            try:
                self._write(url, sha256, size, arriving)
            except WrongContent as error:
                if error.reason != _OTHER_HASH:
                    raise
                _log.warning("%s: %s; fetching it once more", url, error.reason)
                arriving.begin_again()
                self._write(url, sha256, size, arriving)
        except _NoRoom:
            return False
        return True

    def _write(self, url: str, sha256: str, size: int | None, arriving: Arriving) -> None:
        stream, length = s3.open_object(url)
        with stream:
            if size not in (None, length):
                raise WrongContent.of(url, f"{length:,} bytes, the manifest says {size:,}")
            with whole_file(self._kept.path(sha256), durable=False) as file:
                if not self._kept.take_room(file, length):
                    self._say_too_large(url, length)
                    raise _NoRoom
                writer = HashingWriter(file)
                while content := stream.read(_AT_ONCE):
                    if arriving.is_unwanted:
                        raise _Stopped
                    writer.write(content)
                    file.flush()
                    arriving.written(Path(file.name), min(writer.written, length - 1))
                if writer.sha256 != sha256:
                    raise WrongContent.of(url, _OTHER_HASH)
                self._kept.seal_open(file, sha256)

    def _say_too_large(self, url: str, size: int) -> None:
        _say_once(
            f"{one_line(url.rpartition('/')[0])}: files larger than this node keeps of S3 are read again every epoch; "
            f"raise {SIZE_VARIABLE}, free space on {self.folder}, or ingest with a smaller shard.max_bytes",
            f" ({one_line(url)}: {size:,} bytes)",
        )

    def _say_unkept(self, error: OSError) -> None:
        _say_once(
            f"{self.folder}: cannot keep what is read from S3 ({error.strerror or one_line(error)}), so it is read "
            f"again every epoch; free space, or name a folder that can be written in {FOLDER_VARIABLE}"
        )


_downloads: dict[tuple[Path, str], Arriving] = {}
"""Downloads of this process that have not ended."""
_downloads_lock = threading.Lock()


def _leave(arriving: Arriving) -> None:
    with _downloads_lock:
        arriving.readers -= 1


def _forget_downloads() -> None:
    """In a forked process: the parent's threads do not exist here, so its downloads would never end."""
    global _downloads_lock
    _downloads.clear()
    _downloads_lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_downloads)

_said: set[str] = set()


def _say_once(text: str, example: str = "") -> None:
    if text not in _said:
        _said.add(text)
        _log.warning("%s%s", text, example)
