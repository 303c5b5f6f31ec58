"""Ends the Ray processes of a driver that was killed with `kill -9`, which the driver itself can no longer do.

Ray ties its servers to the driver, but its agents check for their parent themselves and sometimes stay for minutes.
The guardian is a small separate process, run as a script. It reads lines `PID CREATION_TIME` from its standard input.
When the input ends, because the driver has ended for any reason, it ends the named processes that still live. It
imports only psutil.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterable

import psutil

GRACE_S = 5.0
"""Seconds that Ray has to end its processes itself."""


class Guardian:
    """The driver's side of the guardian."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the driver
        )
        self._named: set[psutil.Process] = set()

    def watch_over(self, processes: Iterable[psutil.Process]) -> None:
        """Names processes to end after this one. Processes that were named before are not named again."""
        assert self._process.stdin is not None
        for process in set(processes) - self._named:
            with contextlib.suppress(psutil.Error, OSError, ValueError):  # it has gone, or the guardian has
                self._process.stdin.write(f"{process.pid} {process.create_time()!r}\n".encode())
                self._process.stdin.flush()
            self._named.add(process)

    def dismiss(self) -> None:
        """Ends the guardian, when all processes have been ended."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
            self._process.kill()
        self._process.wait()


def _main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # only the driver's end may end the guardian
        signal.signal(number, signal.SIG_IGN)
    wards = dict(line.split() for line in sys.stdin)
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline and any(_living(wards)):
        time.sleep(0.2)
    for process in _living(wards):
        with contextlib.suppress(psutil.Error):
            process.kill()


def _living(wards: dict[str, str]) -> list[psutil.Process]:
    """The named processes that still live. The creation time is compared, since a PID may belong to another process."""
    living = []
    for pid, created in wards.items():
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(int(pid))
            if repr(process.create_time()) == created:
                living.append(process)
    return living


if __name__ == "__main__":
    _main()
