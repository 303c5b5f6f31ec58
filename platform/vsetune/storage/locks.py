"""One process at a time: file locks, which are released when their process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import IO

_LOOK_EVERY_S = 0.1


def take_lock(file: Path, *, wait_s: float | None) -> IO[bytes]:
    """Lock this file until the returned stream is closed. The file is made if needed; its folder must exist.

    wait_s: how long to wait for another process that holds the lock; 0 does not wait, None waits without limit.
    BlockingIOError when another process still holds it; any other OSError where no lock can be taken at all.
    """
    until = None if wait_s is None else time.monotonic() + wait_s
    while True:
        handle = open(file, "ab")  # noqa: SIM115  open as long as the lock lasts
        try:
            if until is None:
                fcntl.flock(handle, fcntl.LOCK_EX)
            else:
                _poll(handle, until)
            if _is_there(file, handle):
                return handle
        except BaseException:
            handle.close()
            raise
        handle.close()  # its last holder has removed the file, and the next process locks another one


def _is_there(file: Path, handle: IO[bytes]) -> bool:
    """Whether the open file still has its name."""
    try:
        return os.path.samestat(os.fstat(handle.fileno()), file.stat())
    except FileNotFoundError:
        return False


def _poll(handle: IO[bytes], until: float) -> None:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= until:
                raise
            time.sleep(_LOOK_EVERY_S)
