"""Objects stored in a folder under their hash, up to a size limit, shared by all processes of this machine.

    FOLDER/SHA256            whole, and of that hash: the name is the content, whatever prefix it came from
    FOLDER/SHA256.partial    being downloaded, of its full size from the start, so that its room is taken
    FOLDER/locks/            one lock per object, and `room` for making room

The least recently used objects are removed first. Linux keeps a removed file for processes that have it open, so no
read breaks off.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

from vsetune.files.hashes import sha256_hex, sha256_of_file
from vsetune.files.locks import take_lock

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
