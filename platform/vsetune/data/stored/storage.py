"""Reading bytes from a local path or an `s3://bucket/key` address.

Shards and configs come from other people, so only regular files are opened, and of a data folder only files inside it.

Two kinds of failure are distinguished. StorageError: the place could not be reached or the reading broke off (no
answer, no rights, a device that fails); the same reading may succeed later. DataError: the content is not what it
should be (missing, too large, not a file); it will be the same next time.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from vsetune.errors import DataError, Message, Problem, StorageError, UsageError, one_line
from vsetune.home import node_cache, s3
from vsetune.home.addresses import has_controls, is_remote, join
from vsetune.home.hashes import sha256_of_stream
from vsetune.home.s3 import NothingThere

OTHER_HASH = Message("VSE-D030", "{file}: its SHA-256 is not the one of {listed}, the file was changed; {fix}")
TABLE_LINE = Message("VSE-D052", "{file}: line {line}: got {found}, need {need}.")
NOT_IN_IT = Message("VSE-D051", "{where}: no {need} in it; check the file, or the path in the recipe.")
NAME_TWICE = Message("VSE-D019", "{where}: {name} is listed more than once; remove or rename one.")
MISFIT = Message("VSE-D024", "{where}: got {found}, need {need}; {fix}")

_BUFFER = 1 << 20
SMALL_FILE_BYTES = 64 << 20
"""Limit for a file that is read whole and parsed (a manifest, a vocabulary), in bytes, unless another one is given."""

_OF_THE_PATH = {
    errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL, errno.ENXIO, errno.ENODEV,
}
_KINDS = {
    stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


def is_inside(name: str) -> bool:
    """Whether a name from a manifest or a list can only mean a file of its folder; links are checked on opening."""
    parts = PurePosixPath(name).parts
    is_plain = not has_controls(name) and "\\" not in name and "://" not in name and not name.startswith("/")
    return bool(parts) and is_plain and ".." not in parts


def exists(url: str) -> bool:
    """Whether the path or address exists and is not a folder. StorageError when that cannot be determined."""
    if not is_remote(url):
        try:
            return not stat.S_ISDIR(os.stat(url).st_mode)
        except ValueError:  # a NUL in the path
            return False
        except OSError as error:
            if error.errno in _OF_THE_PATH:
                return False
            raise read_failure(url, error) from error
    return s3.look(url) is not None


def open_stream(url: str) -> BinaryIO:
    """The file as a binary stream, read from its start; the caller closes it.

    DataError when it is missing or not a regular file; StorageError when it cannot be reached, also from a later read.
    """
    return open_sized(url)[0]


def open_inside(folder: str, name: str) -> tuple[BinaryIO, int]:
    """`open_sized` of a file of a data folder or prefix; DataError when name or link lead out of it."""
    url = join(folder, name)
    return open_sized(_resolved_inside(folder, name), named=url)


def open_hashed(folder: str, name: str, *, sha256: str, size: int | None = None) -> tuple[BinaryIO, int]:
    """`open_inside` of a file whose hash is known: a file of an s3:// prefix is downloaded once for all of this node.

    A cached file has been compared with that hash; a local file, and one that cannot be cached, is returned unchecked.
    size: in bytes, if known. `node_cache.WrongContent` (a DataError) for an object of another hash or size.
    """
    url = _resolved_inside(folder, name)
    if not is_remote(url):
        return open_sized(url, named=join(folder, name))
    kept = node_cache.node_cache().open_copy(url, sha256=sha256, size=size)
    if kept is None:
        return s3.open_object(url)
    return io.BufferedReader(_FileStream(kept, url), buffer_size=_BUFFER), os.fstat(kept).st_size


def size_inside(folder: str, name: str) -> int | None:
    """Bytes of a regular file of a local data folder, None if there is none. Errors as in `open_inside`."""
    target = _resolved_inside(folder, name)
    if not exists(target):
        return None
    descriptor, size = _open_regular(target, join(folder, name))
    os.close(descriptor)
    return size


def open_sized(url: str, *, named: str | None = None) -> tuple[BinaryIO, int]:
    """(stream, length in bytes). named: name for messages. Errors as in `open_stream`."""
    if not is_remote(url):
        descriptor, size = _open_regular(url, named or url)
        return io.BufferedReader(_FileStream(descriptor, named or url), buffer_size=_BUFFER), size
    return s3.open_object(url)


def read_bytes(url: str, *, most: int = SMALL_FILE_BYTES) -> bytes:
    """The whole content of a file of at most `most` bytes. Errors as in `open_stream`; DataError when it is larger."""
    stream, size = open_sized(url)
    return _whole(stream, size, url, most)


def read_inside(folder: str, name: str, *, most: int = SMALL_FILE_BYTES) -> bytes:
    """`read_bytes` of a file of a data folder or prefix; DataError when name or link lead out of it."""
    stream, size = open_inside(folder, name)
    return _whole(stream, size, join(folder, name), most)


def read_hashed(folder: str, name: str, *, sha256: str, most: int = SMALL_FILE_BYTES) -> bytes:
    """`read_inside` through `open_hashed`."""
    stream, size = open_hashed(folder, name, sha256=sha256)
    return _whole(stream, size, join(folder, name), most)


def sha256_of(url: str) -> str | None:
    """SHA-256 of the content, None where there is no such file. StorageError when it cannot be reached."""
    try:
        stream = open_stream(url)
    except DataError:
        return None
    with stream:
        return sha256_of_stream(stream)


def find_inside(folder: str, name: str) -> bytes | None:
    """`read_inside`; None if there is no such file, which takes one request for an s3:// prefix."""
    if not is_remote(folder) and not exists(join(folder, name)):
        return None
    try:
        return read_inside(folder, name)
    except NothingThere:
        return None


def read_failure(place: object, error: OSError) -> UsageError:
    """The error for a failed local access: DataError if the path is wrong, StorageError if the storage is."""
    reason = error.strerror or one_line(error)
    if error.errno in _OF_THE_PATH:
        kind = NothingThere if error.errno == errno.ENOENT else DataError
        return kind(Problem.of(
            "VSE-D001", "{file}: cannot open ({reason}); check the path.", file=place, reason=reason
        ))
    return StorageError(
        "VSE-D002", "{file}: cannot be read ({reason}); check the disk and its rights, then start again.", file=place,
        reason=reason,
    )


def _resolved_inside(folder: str, name: str) -> str:
    url = join(folder, name)
    if not is_inside(name):
        raise DataError("VSE-D008", "{file} leads out of its folder, need the name of a file in it", file=one_line(url))
    if is_remote(folder):
        return url
    target, home = Path(os.path.realpath(url)), Path(os.path.realpath(folder))
    if not target.is_relative_to(home):
        raise DataError(
            "VSE-D009", "{file}: is a link to {target}, outside of its data folder; put the file itself there.",
            file=url, target=target,
        )
    return str(target)


def _whole(stream: BinaryIO, size: int, url: str, most: int) -> bytes:
    with stream:
        if size <= most:
            content = stream.read(most + 1)
            if len(content) <= most:
                return content
            size = len(content)
    raise DataError(
        "VSE-D004", "{file}: {bytes:,} bytes or more, need at most {most:,}; check the file.", file=one_line(url),
        bytes=size, most=most,
    )


def _open_regular(path: str, named: str) -> tuple[int, int]:
    """(descriptor, size). Opened without waiting, so that a FIFO without a writer cannot block."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except ValueError as error:
        raise DataError(
            "VSE-D001", "{file}: cannot open ({reason}); check the path.", file=one_line(named), reason=one_line(error)
        ) from error
    except OSError as error:
        raise read_failure(named, error) from error
    about = os.fstat(descriptor)
    if stat.S_ISREG(about.st_mode):
        return descriptor, about.st_size
    os.close(descriptor)
    kind = _KINDS.get(stat.S_IFMT(about.st_mode), "something else")
    raise DataError(
        "VSE-D007", "{file}: is {kind}, need a regular file; put the file itself there.", file=named, kind=kind
    )


class _FileStream(io.FileIO):
    """A local file whose read errors become those of `read_failure`."""

    def __init__(self, descriptor: int, named: str) -> None:
        super().__init__(descriptor, "rb")
        self._named = named

    def readinto(self, buffer: Any) -> int:
        try:
            return super().readinto(buffer)
        except OSError as error:
            raise read_failure(self._named, error) from error

    def readall(self) -> bytes:
        try:
            return super().readall()
        except OSError as error:
            raise read_failure(self._named, error) from error
