"""Which threads a piece of a test started, and whether they end."""

from __future__ import annotations

import threading
import time

_PATIENCE_S = 60  # a reader that waits for a worker process which is only just starting ends when that has spoken


class StartedThreads:
    """The threads called `prefix...` that started since this object was made; those of other tests do not count."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._before = set(threading.enumerate())

    def alive(self) -> list[threading.Thread]:
        return [
            thread for thread in threading.enumerate()
            if thread not in self._before and thread.name.startswith(self._prefix)
        ]

    def all_end(self) -> bool:
        """Waits for them, and says whether they did end."""
        deadline = time.monotonic() + _PATIENCE_S
        for thread in self.alive():
            thread.join(max(0.0, deadline - time.monotonic()))
        return not self.alive()
