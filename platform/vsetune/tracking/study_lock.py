"""One process per study: the lock of its folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vsetune.errors import StorageError, StudyConflict
from vsetune.files.locks import take_lock

LOCK_FILE = "lock"


@contextmanager
def locked_study(folder: Path) -> Iterator[None]:
    """Hold a study's folder, which is made if need be. The lock goes with its process, however that ends.

    StudyConflict when another process holds it, StorageError when the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = take_lock(folder / LOCK_FILE, wait_s=0)
    except BlockingIOError:
        raise StudyConflict(f"study {folder.name}: another process is running it; wait for it or stop it") from None
    except OSError as error:
        raise StorageError(
            f"{folder}: cannot be written ({error.strerror}); set VSETUNE_HOME to another folder"
        ) from error
    with lock:
        yield
