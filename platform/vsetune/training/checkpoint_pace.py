"""When the next checkpoint is due: often enough to lose little work, rarely enough to cost little time (decision
0054)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class CheckpointPace:
    """share: of the time of a trial that checkpoints may take, above 0, at most 1; with 1 a checkpoint is always due.

    After one that took s seconds none is due for s (1 / share - 1) seconds. The first is due immediately, so a
    continued trial saves its work at its first validation. clock: in seconds.
    """

    def __init__(self, share: float, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._pause_per_second = 1 / share - 1
        self._clock = clock
        self._not_before = float("-inf")

    def is_due(self) -> bool:
        """Whether a checkpoint should be written now."""
        return self._clock() >= self._not_before

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Context around the writing of a checkpoint, which measures its time."""
        begin = self._clock()
        yield
        end = self._clock()
        self._not_before = end + (end - begin) * self._pause_per_second
