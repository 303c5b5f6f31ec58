"""Files that are either whole or absent, whatever happens while they are written."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any, BinaryIO, cast

from vsetune.errors import DataError, Message, StorageError, one_line

_JSON_UNREADABLE = Message("VSE-O022", "{file}: cannot read ({reason})")

_PARTIAL = ".partial"
_JSON_BYTES = 1 << 20


def make_folder(folder: Path) -> None:
    """Create the folder and its parents. StorageError when it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            "VSE-O020", "{folder}: cannot make this folder ({reason}); choose another place or fix its permissions.",
            folder=folder, reason=error.strerror,
        ) from error


@contextmanager
def whole_file(path: Path, *, durable: bool, by_many: bool = False) -> Iterator[IO[bytes]]:
    """A stream to a file beside `path`, moved into place when the block ends and removed when the block raises.

    durable: also survive a power cut (fsync of the file and of its folder).
    by_many: several processes may be making the file at once. Each then writes under its own temporary name, and the
    file is readable by all users. OSError when it cannot be written; the old file stays.
    """
    partial: Path | None = None
    try:
        with _partial_of(path, by_many) as stream:
            partial = Path(stream.name)
            yield stream
            stream.flush()
            if durable:
                os.fsync(stream.fileno())
        if by_many:
            partial.chmod(0o644)  # a temporary file is private to its owner
        os.replace(partial, path)
    except BaseException:
        if partial is not None:
            with suppress(OSError):  # the error to report is why it could not be written
                partial.unlink(missing_ok=True)
        raise
    if durable:
        _sync_folder(path.parent)


def write_whole(path: Path, content: bytes | memoryview, *, durable: bool) -> None:
    """The content as a `whole_file`: a crash leaves the old file or the new one.

    StorageError in one line when there is no space or no permission; the old file stays.
    """
    try:
        with whole_file(path, durable=durable) as stream:
            stream.write(content)
    except OSError as error:
        raise _cannot_write(path, len(content), error) from error


def write_text(path: Path, text: str | bytes) -> None:
    """Write a text or a picture for people, and make its folders. StorageError in one line."""
    content = text.encode() if isinstance(text, str) else text
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_write(path, len(content), error) from error
    write_whole(path, content, durable=False)


def move_in_place(made: Path, path: Path, *, durable: bool) -> None:
    """Move a finished file to its place in one step, over any file there. durable: its content is first synced to disk.

    OSError when it cannot be moved.
    """
    if durable:
        with open(made, "rb") as stream:
            os.fsync(stream.fileno())
    os.replace(made, path)


def sync_file(path: Path) -> None:
    """Make an existing file survive a power cut, under its name. StorageError in one line."""
    try:
        with open(path, "rb") as stream:
            os.fsync(stream.fileno())
        _sync_folder(path.parent)
    except OSError as error:
        raise _cannot_write(path, path.stat().st_size if path.exists() else 0, error) from error


def free_name(path: Path, what: str) -> Path:
    """The first free `NAME.what-1`, `NAME.what-2`, ..., for a file that is set aside for people to look at."""
    number = 1
    while os.path.lexists(free := path.with_name(f"{path.name}.{what}-{number}")):
        number += 1
    return free


def remove_partials(folder: Path) -> None:
    """Remove files that a killed process left half written, to free their space. No other process may be writing there.
    """
    for partial in partials_in(folder):
        with suppress(OSError):
            partial.unlink()


def partials_in(folder: Path) -> list[Path]:
    """Files that a killed process left half written."""
    return list(folder.glob("*" + _PARTIAL))


def unreadable(path: Path, error: OSError) -> StorageError:
    """The error for a file that may be sound, but that storage does not deliver."""
    return StorageError(
        "VSE-O018", "{file}: cannot be read ({reason}); check the disk and its rights, then resume.", file=path,
        reason=error.strerror,
    )


def write_json(path: Path, plain: Any, *, durable: bool) -> None:
    """`write_whole` of one JSON value."""
    write_whole(path, json.dumps(plain).encode(), durable=durable)


def read_json(path: Path, *, most_bytes: int = _JSON_BYTES) -> Any | None:
    """The value in a small file of ours, or None when there is no such file.

    DataError, without advice, when it is not a regular file, too large or not JSON; StorageError when it cannot be
    read.
    """
    try:
        about = os.stat(path)
        if not stat.S_ISREG(about.st_mode):
            raise DataError(_JSON_UNREADABLE(file=path, reason="no regular file"))
        if about.st_size > most_bytes:
            raise DataError(_JSON_UNREADABLE(
                file=path, reason=f"{about.st_size:,} bytes, need at most {most_bytes:,}",
            ))
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, RecursionError) as error:
        raise DataError(_JSON_UNREADABLE(file=path, reason=one_line(error))) from error


def readable_json(plain: Any) -> bytes:
    """JSON for files that people read too; equal data give equal bytes."""
    return (json.dumps(plain, indent=1, sort_keys=True) + "\n").encode()


def _partial_of(path: Path, by_many: bool) -> IO[bytes]:
    if by_many:
        # removed by `whole_file`, not when it is closed
        return cast(IO[bytes], NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False))
    return open(path.with_name(path.name + _PARTIAL), "wb")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _cannot_write(path: Path, size: int, error: OSError) -> StorageError:
    return StorageError(
        "VSE-O019", "{file}: cannot write {bytes:,} bytes ({reason}; {free}); free space or choose another folder, "
        "then repeat.", file=path, bytes=size, reason=error.strerror or error, free=free_in(path.parent),
    )


FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors of a write that more room would fix: no space, no quota, a file larger than is allowed."""
MAKE_ROOM = "free space there, or name another folder in TMPDIR"
"""Advice for a full temporary folder."""


def free_in(folder: Path) -> str:
    """`1,024 free`, in bytes, for people."""
    try:
        return f"{shutil.disk_usage(folder).free:,} free"
    except OSError:
        return "free space unknown"


_LONGEST_HEADER = 100_000_000
"""The limit of the safetensors library."""


def safetensors_flaw(stream: BinaryIO, size: int) -> str | None:
    """What is wrong with a file of `size` bytes, in a few words; None if it is whole. Reads the header only."""
    length = int.from_bytes(stream.read(8), "little")
    if size < 8 or length > size - 8:
        return f"cut short at {size:,} bytes"
    if length > _LONGEST_HEADER:
        return "no header of weights"
    try:
        header = json.loads(stream.read(length))
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        wanted = 8 + length + max(ends, default=0)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return "its header cannot be read"
    return None if size == wanted else f"{size:,} bytes, its header says {wanted:,}"
