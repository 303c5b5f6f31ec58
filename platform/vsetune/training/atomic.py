"""Files that are either whole or absent, whatever happens while they are written."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from vsetune.errors import StorageError

_PARTIAL = ".partial"


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
        partial.unlink(missing_ok=True)
        raise StorageError(
            f"{path}: cannot write {len(content):,} bytes ({error.strerror}; {_free_bytes(path)}); "
            "free space or choose another folder, then resume."
        ) from error


def write_json(path: Path, plain: Any, *, durable: bool) -> None:
    """`write_whole` of one JSON value."""
    write_whole(path, json.dumps(plain).encode(), durable=durable)


def read_json(path: Path) -> Any | None:
    """The value in the file, or None when there is no such file. StorageError when it is not JSON."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StorageError(f"{path}: cannot read ({error}); remove its folder to start the trial again.") from error


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
