"""Objects of a bucket cached on the disk of this node, for all its processes: downloaded once, SHA-256 compared.

The cache is $VSETUNE_NODE_CACHE, or `cache/shards` under vsetune's home, and takes at most
$VSETUNE_NODE_CACHE_GB. A file is named by its hash and appears whole. Decision 0047.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import re
import shutil
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

from vsetune.errors import ConfigError, DataError, Problem, StorageError, VsetuneError, one_line
from vsetune.home import s3
from vsetune.home.hashes import HashingWriter, sha256_hex, sha256_of_file
from vsetune.home.locks import take_lock
from vsetune.home.paths import NODE_CACHE_VARIABLE, home, local_path
from vsetune.home.whole_files import whole_file

FOLDER_VARIABLE, SIZE_VARIABLE = NODE_CACHE_VARIABLE, "VSETUNE_NODE_CACHE_GB"

_DEFAULT_GB = 50.0
"""MS-COCO with 36 regions of 2048 takes 18 GB, its photographs another 18 GB: room for one such data set and a small
one."""
_AHEAD_SHARE = 8
"""A shard is fetched ahead if this many of its size fit: for each of four readers, the current one and the next."""
_WAIT_S = 300.0
"""Limit on the wait for another process that downloads the same object: a stopped process must not block the rest."""
_SHARE_OF_DISK = 0.5
"""Share of the free space and the cached files together; checkpoints, results and Ray's spilling need the rest."""
_HASH, _NAME = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{16,64}")
_PARTIAL = ".partial"
_AT_ONCE = 1 << 20
_OTHER_HASH = "its SHA-256 is not the one it was listed with"

_log = logging.getLogger(__name__)
_logged: set[str] = set()


class WrongContent(DataError):
    """An object that does not match its list. reason: what is wrong with it, in a few words."""

    @classmethod
    def of(cls, url: str, reason: str) -> WrongContent:
        return cls(Problem.of(
            "VSE-O032", "{url}: {reason}; half written, or changed since it was ingested: upload it again from the "
            "data set's folder, or ingest the data set again.", url=one_line(url), reason=reason,
        ))

    @property
    def reason(self) -> str:
        return str(self.problem.fields["reason"])


class NoRoom(Exception):
    """The bound, or half of the disk, is taken by files that cannot be removed."""


class _Stopped(Exception):
    """The download is no longer wanted."""


def node_cache() -> NodeCache:
    """The cache that the environment describes. ConfigError in one line for an unusable folder or size."""
    folder, size = os.environ.get(FOLDER_VARIABLE), os.environ.get(SIZE_VARIABLE)
    try:
        place = Path(local_path(folder)).absolute() if folder else home() / "cache" / "shards"
    except ValueError as error:
        raise ConfigError(error.args[0].at(FOLDER_VARIABLE)) from error
    try:
        gigabytes = float(size) if size else _DEFAULT_GB
    except ValueError:
        gigabytes = math.nan
    if not 0 <= gigabytes < 1e9:
        raise ConfigError(
            "VSE-O025", "{variable}: got {found}, need gigabytes such as 50; 0 reads from S3 every time",
            variable=SIZE_VARIABLE, found=one_line(repr(size)),
        )
    return NodeCache(place, round(gigabytes * 1e9))


@dataclass(frozen=True)
class NodeCache:
    """most_bytes: limit for all objects together; 0 caches nothing.

    An object cannot be cached if it is too large or has no hash, or if the folder or disk refuses. Then `open_copy`
    returns None, and the object has to be read from S3. Reasons other than a missing hash are logged once. size: bytes
    of the object, None if unknown.
    """

    folder: Path
    most_bytes: int

    def open_copy(self, url: str, *, sha256: str, size: int | None = None) -> int | None:
        """A descriptor of this node's copy, which is downloaded first if it is missing. None: it cannot be cached.
        WrongContent; NothingThere, StorageError as in `s3`."""
        if not self._may_keep(url, sha256, size):
            return None
        try:
            return self._kept.open_sealed(sha256, size) if self._bring(url, sha256, size, wait_s=_WAIT_S) else None
        except OSError as error:
            self._log_unwritable(error)
            return None

    def fetch(self, url: str, *, sha256: str, size: int, stop: threading.Event) -> None:
        """Fetch the object ahead of its use. Does nothing if another process or thread downloads it or too few objects
        of this size fit; ends early when `stop` is set. Errors are left to the reader, who finds them again."""
        if size * _AHEAD_SHARE <= self.most_bytes and self._may_keep(url, sha256, size):
            with suppress(OSError, VsetuneError, _Stopped):
                self._bring(url, sha256, size, wait_s=0, stop=stop)

    def require_sound(self, url: str, *, sha256: str) -> None:
        """StorageError when the copy on this disk is damaged; the copy is then removed, so the next read fetches it
        again.

        Called after the content was found wrong: the object itself may be sound.
        """
        if not _is_hash(sha256):
            return
        path = self._kept.path(sha256)
        with suppress(OSError):
            if sha256_of_file(path) != sha256:
                path.unlink(missing_ok=True)
                raise StorageError(
                    "VSE-O024", "{file}: the copy of {url} on this disk was damaged and is removed; start again.",
                    file=path, url=url,
                )

    @property
    def _kept(self) -> SealedFiles:
        return SealedFiles(self.folder, self.most_bytes)

    def _may_keep(self, url: str, sha256: str, size: int | None) -> bool:
        if not self.most_bytes or not _is_hash(sha256):
            return False
        if size is not None and size > self.most_bytes:
            self._log_too_large(url, size)
            return False
        return True

    def _bring(
        self, url: str, sha256: str, size: int | None, *, wait_s: float, stop: threading.Event | None = None
    ) -> bool:
        """Whether the object is here now, sealed. OSError from the folder or disk, _Stopped."""
        kept = self._kept
        here = kept.open_sealed(sha256, size)
        if here is None:
            with kept.lock(sha256, wait_s=wait_s):
                here = kept.open_sealed(sha256, size)
                if here is None:
                    return kept.seal_again(sha256, sha256) or self._fetch_twice(url, sha256, size, stop)
        os.close(here)
        return True

    def _fetch_twice(self, url: str, sha256: str, size: int | None, stop: threading.Event | None) -> bool:
        """False if it does not fit. A wrong hash is downloaded once more, since bits can flip in transit, then raised.
        """
        try:
            return self._write(url, sha256, size, stop)
        except WrongContent as error:
            if error.reason != _OTHER_HASH:
                raise
            _log.warning("%s: %s; fetching it once more", url, error.reason)
            return self._write(url, sha256, size, stop)

    def _write(self, url: str, sha256: str, size: int | None, stop: threading.Event | None) -> bool:
        """False if it does not fit."""
        stream, length = s3.open_object(url)
        with stream:
            if size not in (None, length):
                raise WrongContent.of(url, f"{length:,} bytes, the manifest says {size:,}")
            with suppress(NoRoom), whole_file(self._kept.path(sha256), durable=False) as file:
                if not self._kept.take_room(file, length):
                    raise NoRoom
                writer = HashingWriter(file)
                while content := stream.read(_AT_ONCE):
                    if stop is not None and stop.is_set():
                        raise _Stopped
                    writer.write(content)
                if writer.sha256 != sha256:
                    raise WrongContent.of(url, _OTHER_HASH)
                file.flush()
                self._kept.seal(sha256, file.fileno())
                return True
        self._log_too_large(url, length)
        return False

    def _log_too_large(self, url: str, size: int) -> None:
        _log_once(
            f"{one_line(url.rpartition('/')[0])}: files too large for this node's cache are read again every epoch; "
            f"raise {SIZE_VARIABLE}, free space on {self.folder}, or ingest with a smaller shard.max_bytes",
            f" ({one_line(url)}: {size:,} bytes)",
        )

    def _log_unwritable(self, error: OSError) -> None:
        _log_once(
            f"{self.folder}: cannot keep what is read from S3 ({error.strerror or one_line(error)}), so it is read "
            f"again every epoch; free space, or name a folder that can be written in {FOLDER_VARIABLE}"
        )


def _log_once(text: str, example: str = "") -> None:
    if text not in _logged:
        _logged.add(text)
        _log.warning("%s%s", text, example)


def _is_hash(text: str) -> bool:
    return _HASH.fullmatch(text) is not None


@dataclass(frozen=True)
class SealedFiles:
    """Files in a folder that all processes of a machine share, sealed once their SHA-256 was verified.

    Names are hex digits, the files have this suffix. most_bytes: limit for all of them. idle_s: a file opened within
    this time is not removed. Every method raises OSError when the folder or disk refuses.
    """

    folder: Path
    most_bytes: int
    suffix: str = ""
    idle_s: float = 0.0

    def path(self, name: str) -> Path:
        return self.folder / f"{name}{self.suffix}"

    def lock(self, name: str, *, wait_s: float) -> ExitStack:
        """`take_lock` of this file, so that one process makes it and the others find it."""
        (self.folder / "locks").mkdir(parents=True, exist_ok=True)
        return take_lock(self.folder / "locks" / f"{name}.lock", wait_s=wait_s)

    def open_sealed(self, name: str, size: int | None) -> int | None:
        """A descriptor of the file, if it has not been written to since its hash was verified. Notes the use."""
        try:
            descriptor = os.open(self.path(name), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        about, seal = os.fstat(descriptor), seal_of(name)
        if about.st_mtime_ns != seal or size not in (None, about.st_size):
            os.close(descriptor)
            return None
        with suppress(OSError):  # another user's file: its age then counts from that user's last use
            os.utime(descriptor, ns=(time.time_ns(), seal))
        return descriptor

    def seal(self, name: str, file: Path | int) -> None:
        """Mark that the hash of this file was verified. file: a descriptor if the file is not renamed yet, because its
        path may then belong to another process."""
        os.utime(file, ns=(time.time_ns(), seal_of(name)))

    def seal_again(self, name: str, sha256: str) -> bool:
        """Seal a file that lost its seal, as after a restart of the machine, if its content is still right. False for a
        missing or damaged file; a damaged one is removed."""
        path = self.path(name)
        try:
            if sha256_of_file(path) == sha256:
                self.seal(name, path)
                return True
        except FileNotFoundError:
            return False
        _log.warning("%s: damaged on this disk; removed, to be made again", path)
        path.unlink(missing_ok=True)
        return False

    def take_room(self, file: IO[bytes], length: int) -> bool:
        """Make room for `length` bytes and allocate it on the disk, one process at a time. False: there cannot be
        enough."""
        with self.lock("room", wait_s=_WAIT_S):
            used, kept = self._used()
            free = shutil.disk_usage(self.folder).free + used
            if free < length:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            bound = min(self.most_bytes, int(_SHARE_OF_DISK * free))
            for opened, size, path in sorted(kept):
                if used + length <= bound or time.time() - opened < self.idle_s:
                    break
                path.unlink(missing_ok=True)
                used -= size
            if used + length > bound:
                return False
            if length:
                os.posix_fallocate(file.fileno(), 0, length)
        return True

    def _used(self) -> tuple[int, list[tuple[float, int, Path]]]:
        """(bytes of all files, (last use, bytes, path) of removable files). Removes partial files of killed processes.

        Other software's files in the folder are neither counted nor touched.
        """
        used, kept = 0, []
        for entry in os.scandir(self.folder):
            name = entry.name.removesuffix(_PARTIAL).removesuffix(self.suffix)
            is_partial = entry.name.endswith(_PARTIAL)
            if not _NAME.fullmatch(name) or (is_partial and self._is_abandoned(name)):
                continue
            with suppress(FileNotFoundError):
                about = entry.stat(follow_symlinks=False)
                used += about.st_size
                if not is_partial:
                    kept.append((about.st_atime, about.st_size, Path(entry.path)))
        return used, kept

    def _is_abandoned(self, name: str) -> bool:
        """Whether no process writes the partial file any more; it is then removed."""
        try:
            with self.lock(name, wait_s=0):
                Path(f"{self.path(name)}{_PARTIAL}").unlink(missing_ok=True)
        except BlockingIOError:
            return False
        return True


def seal_of(name: str) -> int:
    """The modification time, in ns, that marks a file of this name as verified: a date long past that no writer sets.

    A write to the file breaks the seal, and so does a restart of the machine: files are not forced to the disk, so one
    may have its full size without its content after a power cut.
    """
    return int(sha256_hex(f"{_boot()} {name}".encode())[:7], 16) * 10**9


@cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:  # not Linux
        return ""
