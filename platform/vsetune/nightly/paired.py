"""Comparison of two revisions by a number measured on a noisy machine: runs in pairs, one right after the other.

Slow changes of the machine (other load, heat) affect both runs of a pair, so only their difference is used. It is a
difference of logarithms where the measure is a ratio (seconds, bytes).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from vsetune.nightly.measures import Measure

LOOKS = (3, 5, 8, 12, 20)
"""Numbers of pairs after which the test is made; few, since every test may err."""
FEWEST_PAIRS, MOST_PAIRS = LOOKS[0], LOOKS[-1]

_OF_NORMAL = 1.4826  # standard deviation / median absolute deviation, of normal values
_OF_MEDIAN = 1.2533  # standard error of a median / that of a mean, of normal values
_FEW = 5
_STUDENT = {3: 9.92, 4: 5.84, 5: 4.60, 6: 4.03, 8: 3.50, 12: 3.11, 20: 2.86}
_NORMAL = 2.576
"""Two-sided 99 % quantiles of Student's t, by the number of pairs, and of the normal distribution; they widen the error
of few pairs, whose spread is poorly known."""
_SURE, _CLEAR = 4.0, 2.0
"""Standard errors required between good and bad, and between a shift and a limit (half the gap, half the smallest
change)."""


@dataclass(frozen=True)
class Pair:
    """Two successive runs with the same seed. reference: of the good revision. value: of another."""

    reference: float
    value: float


@dataclass(frozen=True)
class Shift:
    """Distance of a revision from the good one. size, error: median of the differences and its standard error, widened
    for few pairs, in logarithms for a ratio. value, reference: medians as measured. pairs: their number."""

    size: float
    error: float
    value: float
    reference: float
    pairs: int


def shift_of(pairs: Sequence[Pair], measure: Measure) -> Shift:
    """The shift from at least one pair. ValueError for a ratio that is not positive, or a number that is not finite."""
    differences = [_difference(pair, measure) for pair in pairs]
    centre, count = median(differences), len(differences)
    spread = _OF_NORMAL * median(abs(each - centre) for each in differences)
    if count < _FEW:  # the median of few deviations is unreliable: 0 as soon as two of three agree
        spread = max(spread, (max(differences) - min(differences)) / 2)
    error = math.inf if count < FEWEST_PAIRS else _OF_MEDIAN * spread / math.sqrt(count) * _widened(count)
    return Shift(
        centre, error, median(pair.value for pair in pairs), median(pair.reference for pair in pairs), count
    )


def differs(pairs: Sequence[Pair], measure: Measure, smallest_change: float) -> bool | None:
    """Whether good and bad differ. None: undecided, more pairs are needed.

    smallest_change: smallest change that matters, as `Measure.smallest_change`; a gap below half of it does not count.
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
    """Whether the shift is beyond half the gap, whatever its error."""
    return (shift.size - gap / 2) * gap > 0


def more_pairs(
    pairs: list[Pair], take: Callable[[int], Pair], say: Callable[[], bool | None], least: int
) -> bool | None:
    """Take pairs until the test decides, at least `least` and at most MOST_PAIRS; None when it remains undecided.

    take: measures the pair of a round, 0 for the first. say: the test; None is undecided. pairs: extended in place.
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
