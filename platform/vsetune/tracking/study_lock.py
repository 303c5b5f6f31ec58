"""One process per study: the lock of its folder."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vsetune.errors import StorageError, StudyConflict

LOCK_FILE = "lock"


@contextmanager
def locked_study(folder: Path) -> Iterator[None]:
    """Hold a study's folder, which is made if need be. The lock goes with its process, however that ends.

    StudyConflict when another process holds it, StorageError when the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = open(folder / LOCK_FILE, "w")  # noqa: SIM115  held open as long as the lock
    except OSError as error:
        raise StorageError(
            f"{folder}: cannot be written ({error.strerror}); set VSETUNE_HOME to another folder"
        ) from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StudyConflict(f"study {folder.name}: another process is running it; wait for it or stop it") from None
        yield
