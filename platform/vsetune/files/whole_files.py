"""Files that are either whole or absent, whatever happens while they are written."""

from __future__ import annotations

import json
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

from vsetune.errors import DamagedCheckpoint, StorageError

_PARTIAL = ".partial"
_JSON_BYTES = 1 << 20


def make_folder(folder: Path) -> None:
    """Create the folder and its parents. StorageError when it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"{folder}: cannot make this folder ({error.strerror}); choose another place or mend its rights."
        ) from error


def write_whole(path: Path, content: bytes | memoryview, *, durable: bool) -> None:
    """Write beside `path`, then move into place: a crash leaves the old file or the new one.

    durable: also survive a power cut (fsync of the file and of its folder).
    StorageError in one line when there is no space or no permission; the old file stays.
    """
    partial = path.with_name(path.name + _PARTIAL)
    try:
        with open(partial, "wb") as stream:
            stream.write(content)
            stream.flush()
            if durable:
                os.fsync(stream.fileno())
        os.replace(partial, path)
        if durable:
            _sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise StorageError(
            f"{path}: cannot write {len(content):,} bytes ({error.strerror}; {_free_bytes(path)}); "
            "free space or choose another folder, then resume."
        ) from error


def remove_partials(folder: Path) -> None:
    """Remove what a killed process left half written; the space may be missed. Nobody else may be writing there."""
    for partial in folder.glob("*" + _PARTIAL):
        with suppress(OSError):
            partial.unlink()


def read_whole(path: Path, *, most: int | None = None) -> bytes | None:
    """The content of a regular file, or None when there is no such file.

    DamagedCheckpoint when something else stands there, or more than `most` bytes; StorageError when it cannot be read.
    """
    try:
        about = os.stat(path)
        if not stat.S_ISREG(about.st_mode):
            raise _damaged(path, "no regular file")
        if most is not None and about.st_size > most:
            raise _damaged(path, f"{about.st_size:,} bytes, need at most {most:,}")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> StorageError:
    """The file may be sound, but storage does not give it."""
    return StorageError(f"{path}: cannot be read ({error.strerror}); check the disk and its rights, then resume.")


def write_json(path: Path, plain: Any, *, durable: bool) -> None:
    """`write_whole` of one JSON value."""
    write_whole(path, json.dumps(plain).encode(), durable=durable)


def read_json(path: Path) -> Any | None:
    """The value in the file, or None when there is no such file. DamagedCheckpoint when it is not JSON."""
    content = read_whole(path, most=_JSON_BYTES)
    if content is None:
        return None
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, " ".join(str(error).split())) from error


def _damaged(path: Path, reason: str) -> DamagedCheckpoint:
    return DamagedCheckpoint(
        f"{path}: cannot read ({reason}), so it is damaged; remove its folder to start the trial again."
    )


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _free_bytes(path: Path) -> str:
    try:
        return f"{shutil.disk_usage(path.parent).free:,} free"
    except OSError:
        return "free space unknown"
