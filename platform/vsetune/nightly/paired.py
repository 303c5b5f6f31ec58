"""Whether two revisions differ in a number that a noisy machine measures: always in pairs, one run beside the other.

What a machine does over hours (other load, heat) moves both runs of a pair, so only their difference is read, which is
taken in logarithms where the measure is a ratio (seconds, bytes).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from vsetune.nightly.measures import Measure

LOOKS = (3, 5, 8, 12, 20)
"""After how many pairs it is asked whether something can be said: seldom, for every look may err."""
FEWEST_PAIRS, MOST_PAIRS = LOOKS[0], LOOKS[-1]

_OF_NORMAL = 1.4826  # standard deviations in a median absolute deviation
_OF_MEDIAN = 1.2533  # standard errors of a median in those of a mean
_FEW = 5
_STUDENT = {3: 9.92, 4: 5.84, 5: 4.60, 6: 4.03, 8: 3.50, 12: 3.11, 20: 2.86}
_NORMAL = 2.576
"""Quantiles for 99 in 100 of Student's t, by the number of pairs, and of the normal distribution: few pairs know little
of their own spread."""
_SURE, _CLEAR = 4.0, 2.0
"""Standard errors: between good and bad, and between a revision and the half-way line."""


@dataclass(frozen=True)
class Pair:
    """One run of the good revision and one of another, one after the other, with the same seed."""

    reference: float
    value: float


@dataclass(frozen=True)
class Shift:
    """How far a revision is from the good one. size, error: median of the differences and its standard error, larger
    where there are few pairs, in logarithms for a ratio. value, reference: medians as measured."""

    size: float
    error: float
    value: float
    reference: float
    pairs: int


def shift_of(pairs: Sequence[Pair], measure: Measure) -> Shift:
    """At least one pair. ValueError for a ratio that is not positive, or a number that is not finite."""
    differences = [_difference(pair, measure) for pair in pairs]
    centre, count = median(differences), len(differences)
    spread = _OF_NORMAL * median(abs(each - centre) for each in differences)
    if count < _FEW:  # too few for a median of deviations, which is 0 as soon as two of three agree
        spread = max(spread, (max(differences) - min(differences)) / 2)
    error = math.inf if count < FEWEST_PAIRS else _OF_MEDIAN * spread / math.sqrt(count) * _widened(count)
    return Shift(
        centre, error, median(pair.value for pair in pairs), median(pair.reference for pair in pairs), count
    )


def differs(pairs: Sequence[Pair], measure: Measure, smallest_change: float) -> bool | None:
    """Good against bad. None: not to be said yet, more pairs are needed.

    smallest_change: what matters, as `Measure.smallest_change`; a gap of less than half of it is none.
    """
    shift = shift_of(pairs, measure)
    least = (math.log1p(smallest_change) if measure.scale == "ratio" else smallest_change) / 2
    if shift.pairs < FEWEST_PAIRS:
        return None
    if abs(shift.size) >= least and shift.error <= abs(shift.size) / _SURE:
        return True
    if abs(shift.size) + _CLEAR * shift.error < least:
        return False
    return None


def on_bad_side(pairs: Sequence[Pair], measure: Measure, gap: float) -> bool | None:
    """Whether a revision is nearer to the bad one. gap: size of the bad one's shift. None: more pairs are needed."""
    shift = shift_of(pairs, measure)
    if shift.pairs < FEWEST_PAIRS or abs(shift.size - gap / 2) < _CLEAR * shift.error:
        return None
    return is_nearer_to_bad(shift, gap)


def is_nearer_to_bad(shift: Shift, gap: float) -> bool:
    """By the half-way line alone, however little that may be."""
    return (shift.size - gap / 2) * gap > 0


def more_pairs(
    pairs: list[Pair], take: Callable[[int], Pair], say: Callable[[], bool | None], least: int
) -> bool | None:
    """Take pairs until something can be said, at least `least` and at most MOST_PAIRS; None when it still cannot.

    take: measures the pair of a round, 0 for the first. pairs: grows.
    """
    least = min(max(least, FEWEST_PAIRS), MOST_PAIRS)
    looks = [least, *(look for look in LOOKS if look > least)]
    for look in looks:
        while len(pairs) < look:
            pairs.append(take(len(pairs)))
        if say() is not None:
            break
    return say()


def _widened(count: int) -> float:
    return _STUDENT[max(known for known in _STUDENT if known <= count)] / _NORMAL


def _difference(pair: Pair, measure: Measure) -> float:
    if not (math.isfinite(pair.reference) and math.isfinite(pair.value)):
        raise ValueError(f"{measure.name}: got {pair.reference} and {pair.value}, need finite numbers")
    if measure.scale == "linear":
        return pair.value - pair.reference
    if pair.reference <= 0 or pair.value <= 0:
        raise ValueError(f"{measure.name}: got {pair.reference} and {pair.value}, need more than 0")
    return math.log(pair.value / pair.reference)
