"""A trial stops when it no longer improves *and* half of the cell's trials were better by then.

Slow starters go on for as long as they rise, which successive halving does not grant them (docs/search.md): what is
compared early is who starts first, not who gets highest. Patience over the median rule of Golovin et al. (2017).
"""

from __future__ import annotations

from statistics import median

from vsetune.metrics.curves import SAME_EPOCH
from vsetune.search.stopping.rule import Course, StoppingRule


class PatienceOverMedian(StoppingRule):
    """Stops a trial at a validation at or after `grace_epochs` when its best M-Recall is at least `patience_epochs` old
    and below the median of what the others of the cell that came as far had reached by then, `fewest_trials` of them
    at least. With a patience of 0 it is the median rule."""

    def __init__(
        self, *, grace_epochs: float, patience_epochs: float, fewest_trials: int, epochs: float
    ) -> None:
        super().__init__(epochs)
        self._grace, self._patience, self._fewest = grace_epochs, patience_epochs, fewest_trials

    def decide(self, trial: str, course: Course) -> str:
        waited = course.epoch - course.improved_at
        if course.epoch < self._grace - SAME_EPOCH or waited < self._patience - SAME_EPOCH:
            return ""
        others = [
            reached for name, other in self.courses.items()
            if name != trial and (reached := other.best_until(course.epoch)) is not None
        ]
        if len(others) < self._fewest or course.best >= (middle := median(others)):
            return ""
        best = f"{course.best:.1f} of epoch {course.improved_at:g}" if waited else f"{course.best:.1f}"
        return f"best {best}, below the median {middle:.1f} of {len(others)} others at epoch {course.epoch:g}"
