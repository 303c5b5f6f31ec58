"""Epochs until something happened, of seeds to some of which it had not happened when they ended (right-censored)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vsetune.metrics.seed_intervals import LEVEL, median_interval


@dataclass(frozen=True)
class Epochs:
    """Epochs until something happened; if censored it had not happened by then, and value is a lower bound."""

    value: float
    censored: bool


@dataclass(frozen=True)
class EpochsOverSeeds:
    """median: of Kaplan and Meier. bounds: 95 % interval of the median, None for fewer than five seeds; the upper end
    is infinite where seeds that never got there leave it open. censored_share: of the seeds, 0 to 1."""

    median: Epochs
    bounds: tuple[float, float] | None
    seeds: int
    censored_share: float


def kaplan_meier(values: Sequence[Epochs]) -> list[tuple[float, float]]:
    """(epochs, share of seeds that have not got there after them) at every epoch where one gets there (Kaplan and Meier
    1958): the product over epochs t of 1 - hits at t / seeds still running just before t.

    A seed that ends at the epoch of a hit was still running there.
    """
    left, steps = 1.0, []
    for moment in sorted({each.value for each in values if not each.censored}):
        running = sum(each.value >= moment for each in values)
        hits = sum(each.value == moment and not each.censored for each in values)
        left *= 1 - hits / running
        steps.append((moment, left))
    return steps


def kaplan_meier_median(values: Sequence[Epochs]) -> Epochs:
    """Where half of the seeds have got there; halfway to the next hit where exactly half have, as of any even number.

    A lower bound where the ended seeds leave it open. Raises ValueError without values.
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
    """Median, interval and share censored. The interval takes a censored seed as later than it ran and as nothing else.

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
"""Products of shares differ from one half in the last bits."""
