"""One process at a time: locks on files, of which nothing is left when their process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import IO

_LOOK_EVERY_S = 0.1


def take_lock(file: Path, *, wait_s: float | None) -> IO[bytes]:
    """Hold the lock of this file, made if need be in a folder that is there, until what is returned is closed.

    wait_s: how long another process may hold it first; 0 is not at all, None as long as it takes.
    BlockingIOError when another process still holds it; any other OSError where no lock can be taken at all.
    """
    until = None if wait_s is None else time.monotonic() + wait_s
    while True:
        handle = open(file, "ab")  # noqa: SIM115  held open as long as the lock
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
        handle.close()  # its last holder has removed the file, and the next process takes another one


def _is_there(file: Path, handle: IO[bytes]) -> bool:
    """Whether the file that is open still has its name."""
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
