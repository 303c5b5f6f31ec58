"""Queue of interrupted trials: the first one whose pause is over continues next."""

from __future__ import annotations

import heapq
from collections.abc import Callable

FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 60.0
"""A trial pauses 2, 4, 8, ... seconds after its first, second, third interruption in a row, at most one minute."""


def pause_after(interruptions: int) -> float:
    """Seconds that a trial waits after this many interruptions in a row (1 is the first)."""
    return float(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (interruptions - 1)))


class Requeued:
    """Names of trials in the order of their interruptions, each with the time from which it may continue.

    A call takes time logarithmic in their number. The time of a trial may change while it is in the queue.
    """

    def __init__(self, *, not_before: Callable[[str], float]) -> None:
        """not_before: gives the time from which a queued trial may continue, on the clock of `now` in `next`."""
        self._not_before = not_before
        self._pausing: list[tuple[float, int, str]] = []
        self._ready: list[tuple[int, str]] = []
        self._added = 0

    def add(self, trial: str) -> None:
        heapq.heappush(self._pausing, (self._not_before(trial), self._added, trial))
        self._added += 1

    def next(self, now: float, *, may: Callable[[str], bool] = lambda trial: True) -> str | None:
        """Takes the first trial that may continue; None if there is none. may: trials that it excludes keep their place
        in the queue."""
        passed_over: list[tuple[int, str]] = []
        try:
            return self._next(now, may, passed_over)
        finally:
            for each in passed_over:
                heapq.heappush(self._ready, each)

    def _next(self, now: float, may: Callable[[str], bool], passed_over: list[tuple[int, str]]) -> str | None:
        while self._pausing and self._pausing[0][0] <= now:
            _, place, trial = heapq.heappop(self._pausing)
            heapq.heappush(self._ready, (place, trial))
        while self._ready:
            place, trial = heapq.heappop(self._ready)
            if (moment := self._not_before(trial)) > now:
                heapq.heappush(self._pausing, (moment, place, trial))
            elif may(trial):
                return trial
            else:
                passed_over.append((place, trial))
        return None
