"""A trial stops when it no longer improves *and* half of the cell's trials were better by the same epoch.

A slow starter continues as long as its M-Recall rises. Successive halving stops it (docs/search.md): an early
comparison measures who starts first, not who reaches the highest M-Recall. Patience combined with the median rule of
Golovin et al. (2017).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort

from vsetune.metrics.curves import SAME_EPOCH
from vsetune.search.stopping.rule import Course, StoppingRule

_MOST_MARKS = 256
"""Most epochs for which the sorted M-Recalls of all trials are stored. Trials of one cadence are validated at the same
epochs; beyond the limit, all trials are searched instead."""


class PatienceOverMedian(StoppingRule):
    """Stops a trial at a validation at or after `grace_epochs` when its best M-Recall is at least `patience_epochs` old
    and below the median of the best M-Recalls that the other trials of the cell had by that epoch. At least
    `fewest_trials` others must have reached it. With a patience of 0 it is the median rule.
    """

    def __init__(
        self, *, grace_epochs: float, patience_epochs: float, fewest_trials: int, epochs: float
    ) -> None:
        super().__init__(epochs)
        self._grace, self._patience, self._fewest = grace_epochs, patience_epochs, fewest_trials
        self._marks: list[float] = []
        self._reached: list[list[float]] = []

    def decide(self, trial: str, course: Course) -> str:
        self._pass_marks(course)
        waited = course.epoch - course.improved_at
        if course.epoch < self._grace - SAME_EPOCH or waited < self._patience - SAME_EPOCH:
            return ""
        reached = self._reached_by(course.epoch)
        others = len(reached) - 1
        if others < self._fewest or course.best >= (middle := _middle_of_others(reached, course.best)):
            return ""
        best = f"{course.best:.1f} of epoch {course.improved_at:g}" if waited else f"{course.best:.1f}"
        return f"best {best}, below the median {middle:.1f} of {others} others at epoch {course.epoch:g}"

    def _pass_marks(self, course: Course) -> None:
        """Add the trial's best M-Recall at every mark that its last validation passes."""
        before = course.epochs[-2] + SAME_EPOCH if len(course.epochs) > 1 else float("-inf")
        for place in range(bisect_right(self._marks, before), bisect_right(self._marks, course.epoch + SAME_EPOCH)):
            reached = course.best_until(self._marks[place])
            if reached is not None:
                insort(self._reached[place], reached)

    def _reached_by(self, epoch: float) -> list[float]:
        """Best M-Recalls by `epoch` of all trials that reached it, ascending. Must not be modified."""
        place = bisect_left(self._marks, epoch)
        if place < len(self._marks) and self._marks[place] == epoch:
            return self._reached[place]
        found = sorted(
            reached for course in self.courses.values() if (reached := course.best_until(epoch)) is not None
        )
        if len(self._marks) < _MOST_MARKS:
            self._marks.insert(place, epoch)
            self._reached.insert(place, found)
        return found


def _middle_of_others(ordered: list[float], own: float) -> float:
    """Median of all entries except one that equals `own`; -inf where there is no other, so that no trial is below
    it."""
    others, place = len(ordered) - 1, bisect_left(ordered, own)
    if not others:
        return -math.inf
    half = others // 2
    middle, before = (ordered[at + (at >= place)] for at in (half, half - 1))
    return middle if others % 2 else (before + middle) / 2
