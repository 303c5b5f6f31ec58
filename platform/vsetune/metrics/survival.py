"""Epochs until an event; seeds that ended before the event are right-censored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vsetune.metrics.seed_intervals import LEVEL, median_interval


@dataclass(frozen=True)
class Epochs:
    """Epochs until an event. If censored, the event had not happened by then, and value is a lower bound."""

    value: float
    censored: bool


@dataclass(frozen=True)
class EpochsOverSeeds:
    """median: by Kaplan and Meier. bounds: interval of the median (by default 95 %), None for fewer than five seeds;
    the upper end is infinite where censored seeds leave it unbounded. censored_share: of the seeds, 0 to 1."""

    median: Epochs
    bounds: tuple[float, float] | None
    seeds: int
    censored_share: float


def kaplan_meier(values: Sequence[Epochs]) -> list[tuple[float, float]]:
    """(epochs, share of seeds without the event after them) at every epoch with an event (Kaplan and Meier 1958): the
    product over epochs t of 1 - events at t / seeds still running just before t.

    A seed that ends at the epoch of an event counts as still running there.
    """
    left, steps = 1.0, []
    for moment in sorted({each.value for each in values if not each.censored}):
        running = sum(each.value >= moment for each in values)
        hits = sum(each.value == moment and not each.censored for each in values)
        left *= 1 - hits / running
        steps.append((moment, left))
    return steps


def kaplan_meier_median(values: Sequence[Epochs]) -> Epochs:
    """Epoch at which half of the seeds have the event. If exactly half have it, the mean of that epoch and of the next
    event's, as for a median of an even number.

    A lower bound where censored seeds leave it unbounded. Raises ValueError without values.
    """
    if not values:
        raise ValueError("median: got no seeds, need at least one")
    last = max(each.value for each in values)
    steps = kaplan_meier(values)
    reached = next((moment for moment, left in steps if left <= 0.5 + _SAME), None)
    passed = next((moment for moment, left in steps if left < 0.5 - _SAME), None)
    middle = ((last if reached is None else reached) + (last if passed is None else passed)) / 2
    return Epochs(middle, censored=reached is None or passed is None)


def epochs_over_seeds(values: Sequence[Epochs], *, level: float = LEVEL) -> EpochsOverSeeds:
    """Median, interval and share of censored seeds. A censored seed enters the interval as any later epoch.

    Raises ValueError without values.
    """
    median = kaplan_meier_median(values)
    lower = [each.value for each in values]
    low, high = median_interval(lower, [np.inf if each.censored else each.value for each in values], level)
    return EpochsOverSeeds(
        median, None if np.isnan(low) else (float(low), float(high)), len(values),
        sum(each.censored for each in values) / len(values),
    )


_SAME = 1e-9
"""Tolerance for products of shares, which may differ from one half in the last bits."""
