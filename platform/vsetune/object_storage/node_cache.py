"""Objects of a bucket kept on the disk of this node, for all its processes: each is downloaded once.

    FOLDER/SHA256            whole, and of that hash: the name is the content, whatever prefix it came from
    FOLDER/SHA256.partial    being downloaded, of its full size from the start, so that its room is taken
    FOLDER/locks/            one lock per object, and `room` for whoever makes some

FOLDER is $VSETUNE_NODE_CACHE, or `cache/shards` under vsetune's home. It takes at most $VSETUNE_NODE_CACHE_GB, and
never more than half of what the disk has left without it. What was not used longest goes first; Linux keeps a removed
file for whoever has it open, so nobody's reading breaks off. Decision 0036.
"""

from __future__ import annotations

import logging
import math
import os
import re
import shutil
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

from vsetune.config.spec.foreign_text import one_line
from vsetune.config.spec.paths import home, local_path
from vsetune.errors import ConfigError, DataError, StorageError
from vsetune.files.hashes import HashingWriter, sha256_hex, sha256_of_file
from vsetune.files.locks import take_lock
from vsetune.files.whole_files import whole_file
from vsetune.object_storage import s3

FOLDER_VARIABLE, SIZE_VARIABLE = "VSETUNE_NODE_CACHE", "VSETUNE_NODE_CACHE_GB"

_DEFAULT_GB = 50.0
"""MS-COCO with 36 regions of 2048 takes 18 GB and its photographs as much again: one such data set and a small one."""
_SHARE_OF_DISK = 0.5
"""Of what is free or the cache's own: checkpoints, results and Ray's spilled objects need the rest."""
_AHEAD_SHARE = 8
"""A shard is fetched ahead when so many fit: four are read side by side, and the next of each."""
_AT_ONCE = 1 << 20
_WAIT_S = 300.0
"""For another process that downloads the same object; a stopped one must not stop everybody."""
_OTHER_HASH = "its SHA-256 is not the one it was listed with"
_HASH = re.compile(r"[0-9a-f]{64}")
_PARTIAL = ".partial"

_log = logging.getLogger(__name__)


class WrongContent(DataError):
    """An object that is not what its list says. reason: what is wrong with it, in a few words."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason

    @classmethod
    def of(cls, url: str, reason: str) -> WrongContent:
        return cls(
            f"{one_line(url)}: {reason}; half written, or changed since it was ingested: upload it again from the "
            "data set's folder, or ingest the data set again.", reason,
        )


class _Stopped(Exception):
    """Nobody waits for this download any more."""


class _NoRoom(Exception):
    """The bound, or half of the disk, is taken by what cannot go."""


def node_cache() -> NodeCache:
    """The cache that the environment describes. ConfigError in one line for a folder or size that can be none."""
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
    """most_bytes: of all objects together; 0 keeps none."""

    folder: Path
    most_bytes: int

    def descriptor(self, url: str, *, sha256: str, size: int | None = None) -> int | None:
        """An open file with this content, downloaded first when it is not here. size: in bytes, where it is known.

        None where it cannot be kept (too large, folder or disk that takes nothing, no hash): read it from S3, the log
        has said why. WrongContent: the object has another size or hash. NothingThere, StorageError: as of S3.
        """
        if not self._may_keep(url, sha256, size):
            return None
        try:
            found = self._sealed(sha256, size)
            return self._brought(url, sha256, size, wait_s=_WAIT_S, stop=None) if found is None else found
        except OSError as error:
            _say_once(
                f"{self.folder}: cannot keep what is read from S3 ({error.strerror or one_line(error)}), so it is read "
                f"again every epoch; free space, or name a folder that can be written in {FOLDER_VARIABLE}"
            )
            return None

    def fetch(self, url: str, *, sha256: str, size: int, stop: threading.Event) -> None:
        """Have it here before it is asked for; nothing where another process is at it, or too little fits.

        Ends early when `stop` is set. Errors of S3 and of the content as of `descriptor`; of the disk none.
        """
        if size * _AHEAD_SHARE > self.most_bytes or not self._may_keep(url, sha256, size):
            return
        with suppress(OSError, _Stopped):  # of the disk: whoever reads the shard is told
            found = self._sealed(sha256, size)
            found = self._brought(url, sha256, size, wait_s=0, stop=stop) if found is None else found
            if found is not None:
                os.close(found)

    def require_sound(self, url: str, *, sha256: str) -> None:
        """StorageError when the copy on this disk is damaged, which also removes it: it is then fetched again.

        For whoever found its content wrong: the object may be sound.
        """
        path = self.folder / sha256
        if not _HASH.fullmatch(sha256):
            return
        with suppress(FileNotFoundError):
            if sha256_of_file(path) != sha256:
                path.unlink()
                raise StorageError(f"{path}: the copy of {url} on this disk was damaged and is removed; start again.")

    def _may_keep(self, url: str, sha256: str, size: int | None) -> bool:
        if not self.most_bytes or not _HASH.fullmatch(sha256):
            return False
        if size is not None and size > self.most_bytes:
            self._say_too_large(url, size)
            return False
        return True

    def _say_too_large(self, url: str, size: int) -> None:
        prefix = url.rpartition("/")[0]
        _say_once(
            f"{one_line(prefix)}: files larger than this node keeps of S3 are read again every epoch; raise "
            f"{SIZE_VARIABLE}, free space on {self.folder}, or ingest with a smaller shard.max_bytes",
            f"{one_line(url)}: {size:,} bytes",
        )

    def _sealed(self, sha256: str, size: int | None) -> int | None:
        """The file, if nothing was written to it since its hash was found right; notes that it was used."""
        try:
            descriptor = os.open(self.folder / sha256, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        about, seal = os.fstat(descriptor), _seal(sha256)
        if about.st_mtime_ns != seal or size not in (None, about.st_size):
            os.close(descriptor)
            return None
        with suppress(OSError):  # somebody else's file: its age is then that of their use
            os.utime(descriptor, ns=(time.time_ns(), seal))
        return descriptor

    def _brought(
        self, url: str, sha256: str, size: int | None, *, wait_s: float, stop: threading.Event | None
    ) -> int | None:
        """Under the lock of the object, so that one process downloads it and the others find it."""
        (self.folder / "locks").mkdir(parents=True, exist_ok=True)
        with take_lock(self._lock(sha256), wait_s=wait_s):
            found = self._sealed(sha256, size)
            if found is None and (self._is_sound(sha256) or self._download(url, sha256, size, stop)):
                os.utime(self.folder / sha256, ns=(time.time_ns(), _seal(sha256)))
                found = self._sealed(sha256, None)
        return found

    def _is_sound(self, sha256: str) -> bool:
        """A file without seal has this content all the same, as after a restart of the machine; another is removed."""
        path = self.folder / sha256
        try:
            if sha256_of_file(path) == sha256:
                return True
        except FileNotFoundError:
            return False
        _log.warning("%s: damaged since it was downloaded; fetching it again", path)
        path.unlink()
        return False

    def _download(self, url: str, sha256: str, size: int | None, stop: threading.Event | None) -> bool:
        """False where it does not fit. A wrong hash is believed the second time: bits turn over on the way, too."""
        try:
            try:
                self._write(url, sha256, size, stop)
            except WrongContent as error:
                if error.reason != _OTHER_HASH:
                    raise
                _log.warning("%s: %s; fetching it once more", url, error.reason)
                self._write(url, sha256, size, stop)
        except _NoRoom:
            return False
        return True

    def _write(self, url: str, sha256: str, size: int | None, stop: threading.Event | None) -> None:
        stream, length = s3.open_object(url)
        with stream:
            if size not in (None, length):
                raise WrongContent.of(url, f"{length:,} bytes, the manifest says {size:,}")
            with whole_file(self.folder / sha256, durable=False) as file:
                if not self._take_room(file, length):
                    self._say_too_large(url, length)
                    raise _NoRoom
                writer = HashingWriter(file)
                while content := stream.read(_AT_ONCE):
                    if stop is not None and stop.is_set():
                        raise _Stopped
                    writer.write(content)
                if writer.sha256 != sha256:
                    raise WrongContent.of(url, _OTHER_HASH)

    def _take_room(self, file: IO[bytes], length: int) -> bool:
        """Make room for so many bytes and take it on the disk, one process after the other. False: it cannot be."""
        with take_lock(self._lock("room"), wait_s=_WAIT_S):
            used, kept = self._used()
            disk = shutil.disk_usage(self.folder)
            bound = min(self.most_bytes, int(_SHARE_OF_DISK * (disk.free + used)))
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
        """(bytes of all files, (last use, bytes, path) of those that may go). What a killed download left is removed.

        Files of others that lie here are neither counted nor touched.
        """
        used, kept = 0, []
        for entry in os.scandir(self.folder):
            name, is_partial = entry.name.removesuffix(_PARTIAL), entry.name.endswith(_PARTIAL)
            if not _HASH.fullmatch(name) or (is_partial and self._is_abandoned(name)):
                continue
            with suppress(FileNotFoundError):
                about = entry.stat(follow_symlinks=False)
                used += about.st_size
                if not is_partial:
                    kept.append((about.st_atime_ns, about.st_size, Path(entry.path)))
        return used, kept

    def _is_abandoned(self, sha256: str) -> bool:
        """Nobody is downloading it any more; the partial file is then gone."""
        try:
            with take_lock(self._lock(sha256), wait_s=0):
                (self.folder / f"{sha256}{_PARTIAL}").unlink(missing_ok=True)
        except BlockingIOError:
            return False
        return True

    def _lock(self, name: str) -> Path:
        return self.folder / "locks" / f"{name}.lock"


def _seal(sha256: str) -> int:
    """The modification time, in ns, of a file whose hash was found right: a date long past, hence nobody's writing.

    Whatever writes to the file breaks the seal. It holds for this start of the machine only: files are not forced to
    the disk, and after a power cut one may be of its full size and empty.
    """
    return int(sha256_hex(f"{_boot()} {sha256}".encode())[:7], 16) * 10**9


@cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:  # not Linux
        return ""


_said: set[str] = set()


def _say_once(text: str, example: str = "") -> None:
    if text not in _said:
        _said.add(text)
        _log.warning("%s%s", text, f" ({example})" if example else "")
