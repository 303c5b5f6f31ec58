"""One process per study: the lock of its folder, and with a home on object storage also a heartbeat for all machines.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from vsetune.errors import StudyConflict
from vsetune.home.addresses import join
from vsetune.home.heartbeat import Heartbeat, holder_of
from vsetune.home.locks import take_lock
from vsetune.home.paths import remote_place
from vsetune.records.log import cannot_write

_log = logging.getLogger(__name__)
LOCK_FILE, HEARTBEAT_FILE = "lock", "heartbeat.json"
_LOOK_S = 0.3
"""How long a driver waits for a process that only checks whether another driver lives."""


@contextmanager
def locked_study(folder: Path, *, on_lost: Callable[[str], None] = _log.error) -> Iterator[Heartbeat | None]:
    """Lock a study's folder, which is made if needed. The lock ends with its process, however that ends.

    on_lost: called from a thread when another machine has taken the study over. StudyConflict when another process
    runs the study, StorageError when the folder or the home cannot be written. Yields None with a local home.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = take_lock(folder / LOCK_FILE, wait_s=_LOOK_S)
    except BlockingIOError:
        raise StudyConflict(
            "VSE-R010", "study {study}: another process is running it; wait for it or stop it", study=folder.name
        ) from None
    except OSError as error:
        raise cannot_write(folder, error) from error
    with lock:
        place = remote_place(folder)
        if place is None:
            yield None
            return
        heartbeat = Heartbeat(join(place, HEARTBEAT_FILE), f"study {folder.name}", on_lost=on_lost)
        try:
            yield heartbeat
        finally:
            heartbeat.release()


def is_led(folder: Path) -> bool:
    """Whether a driver of the study, on any machine, may be at work by its heartbeat. StorageError."""
    place = remote_place(folder)
    found = None if place is None else holder_of(join(place, HEARTBEAT_FILE))
    return found is not None and found[0].may_live(found[1])
