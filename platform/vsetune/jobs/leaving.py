"""A worker notices that it will be ended, and lets its attempt leave with a checkpoint; and says that it is alive.

Three warnings are heard: Ray drains the node (a spot instance was told so, `ray drain-node`, an autoscaler that takes
an idle node away), the process is sent SIGTERM (`ray stop`, a pod that is evicted), or the study is asked to stop.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import ray

from vsetune.jobs.capacity import draining_nodes
from vsetune.jobs.stop_sign import is_told

LOOK_EVERY_S = 5.0

_log = logging.getLogger(__name__)


class LeaveWatch:
    """Calls `leave` once, in a thread of its own or from the signal's handler, when this process will be ended.

    The thread also calls `live` now and then, so that nothing of this is waited for by the training.
    is_ending: whether the node will go, or the study stops.
    """

    def __init__(
        self, leave: Callable[[], None], *, live: Callable[[], None] = lambda: None,
        is_ending: Callable[[], bool] | None = None, every_s: float = LOOK_EVERY_S,
    ) -> None:
        self._leave, self._live = leave, live
        self._is_ending, self._every_s = is_ending or this_worker_will_end, every_s
        self._ended = threading.Event()
        self._has_left = self.was_terminated = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, the warnings are heard; afterwards SIGTERM means what it meant before."""
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
        """The handler there was; None where none can be set."""
        if threading.current_thread() is not threading.main_thread():
            return None
        return signal.signal(signal.SIGTERM, self._terminated)

    def _terminated(self, number: int, frame: FrameType | None) -> None:
        self.was_terminated = True
        self._leave()

    def _look(self) -> None:
        while True:
            for step in (self._live, self._ask):
                try:
                    step()
                except Exception as error:  # Ray is away: its death is somebody else's matter
                    _log.info("cannot tell Ray a sign of life, or ask whether this worker shall leave (%s)", error)
            if self._ended.wait(self._every_s):
                return

    def _ask(self) -> None:
        if not self._has_left and self._is_ending():
            self._has_left = True
            self._leave()


def this_worker_will_end() -> bool:
    """Whether its node is drained, or its study was asked to stop."""
    return is_told() or this_node_is_draining()


def this_node_is_draining() -> bool:
    """Whether Ray drains the node of this worker."""
    return ray.is_initialized() and ray.get_runtime_context().get_node_id() in draining_nodes()
