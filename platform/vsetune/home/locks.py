"""One process at a time: file locks, which are released when their process ends, however it ends."""

from __future__ import annotations

import errno
import os
from contextlib import ExitStack
from pathlib import Path

from filelock import Timeout, UnixFileLock

_LOOK_EVERY_S = 0.1


def take_lock(file: Path, *, wait_s: float | None) -> ExitStack:
    """Lock this file until the returned stack is closed. The file is made if needed; its folder must exist.

    wait_s: how long to wait for another process that holds the lock; 0 does not wait, None waits without limit.
    BlockingIOError when another process still holds it; any other OSError where no lock can be taken at all.
    """
    lock = UnixFileLock(
        file, timeout=-1 if wait_s is None else wait_s, poll_interval=_LOOK_EVERY_S, thread_local=False,
        fallback_to_soft=False,  # a lock that outlives its process would need a person to remove it
    )
    if not file.parent.is_dir():  # filelock would make it
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(file))
    held = ExitStack()
    try:
        held.enter_context(lock)
    except Timeout as error:
        raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK)) from error
    return held
