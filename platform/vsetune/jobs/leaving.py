"""Watch in a worker: it sends pulses, and makes the attempt leave with a checkpoint when the worker will be ended.

A worker will be ended when its process receives SIGTERM (`leaving_node`, `ray stop`, a pod that is evicted), or when
its study is asked to stop.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

LOOK_EVERY_S = 2.0

_log = logging.getLogger(__name__)


class LeaveWatch:
    """Calls `leave`, in a thread of its own or from the signal's handler, when this process will be ended.

    beat: called every `every_s` seconds outside the training's thread; reports that the attempt works, and returns
    whether its study stops.
    """

    def __init__(self, leave: Callable[[], None], *, beat: Callable[[], bool], every_s: float = LOOK_EVERY_S) -> None:
        self._leave, self._beat, self._every_s = leave, beat, every_s
        self._ended = threading.Event()
        self._has_left = self.was_terminated = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watches inside the context; restores the earlier handler of SIGTERM afterwards."""
        thread = threading.Thread(target=self._look, name="vsetune-leaving", daemon=True)
        thread.start()
        before = self._hear_sigterm()
        try:
            yield
        finally:
            self._ended.set()
            if before is not None:
                signal.signal(signal.SIGTERM, before)

    def _hear_sigterm(self) -> Any:
        """Sets the handler of SIGTERM. Returns the earlier one; None if none can be set outside the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return None
        return signal.signal(signal.SIGTERM, self._terminated)

    def _terminated(self, number: int, frame: FrameType | None) -> None:
        self.was_terminated = True
        self._leave()

    def _look(self) -> None:
        while True:
            try:
                is_stopping = self._beat()
            except Exception as error:  # Ray is not available, which the driver notices
                _log.info("no sign of life was sent (%s)", error)
            else:
                if is_stopping and not self._has_left:
                    self._has_left = True
                    self._leave()
            if self._ended.wait(self._every_s):
                return
