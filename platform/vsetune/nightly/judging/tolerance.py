"""Requirements on a nightly report: the rate of false alarms, and the smallest changes that matter."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from vsetune.errors import UsageError
from vsetune.nightly.measures import Measure


@dataclass(frozen=True)
class Tolerance:
    """The promise of a report, independent of the number of its cells and measures.

    false_alarm_nights: one false alarm in so many nights, over the whole report, > 1. baseline_nights: nights with a
    value before a stream is judged, >= 2. smallest_change: by name of a measure, overrides the measure's default; in
    its unit where linear, a fraction where ratio; > 0. Raises UsageError for other values.
    """

    false_alarm_nights: float = 30.0
    baseline_nights: int = 7
    smallest_change: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.false_alarm_nights) and self.false_alarm_nights > 1):
            raise UsageError(f"false_alarm_nights: got {self.false_alarm_nights}, need a number of nights above 1; "
                             "30 is one false alarm a month")
        if self.baseline_nights < 2:
            raise UsageError(f"baseline_nights: got {self.baseline_nights}, need at least 2 nights to see any noise; "
                             "7 is the default")
        for name, change in self.smallest_change.items():
            if not (math.isfinite(change) and change > 0):
                raise UsageError(f"smallest_change.{name}: got {change}, need a number above 0 in the measure's unit "
                                 "(a fraction for times, rates and memory)")

    def change_that_matters(self, measure: Measure) -> float:
        """Smallest change of this measure that matters, as judged: in its unit where linear, in logarithms where ratio.
        """
        change = self.smallest_change.get(measure.name, measure.smallest_change)
        return math.log1p(change) if measure.scale == "ratio" else change
