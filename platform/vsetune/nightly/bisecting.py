"""Finds the commit that changed a number: binary search, and paired runs where the machine is noisy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from vsetune.errors import VsetuneError
from vsetune.nightly import messages
from vsetune.nightly.night import Measure
from vsetune.nightly.revisions import Commit

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
    pairs: list[Pair], take: Callable[[int], Pair], test: Callable[[], bool | None], least: int
) -> bool | None:
    """Take pairs until the test decides, at least `least` and at most MOST_PAIRS; None when it remains undecided.

    take: measures the pair of a round, 0 for the first. test: None is undecided. pairs: extended in place.
    """
    least = min(max(least, FEWEST_PAIRS), MOST_PAIRS)
    for look in (least, *(look for look in LOOKS if look > least)):
        while len(pairs) < look:
            pairs.append(take(len(pairs)))
        if test() is not None:
            break
    return test()


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


Side = Literal["good", "bad", "skipped"]
Losses = Mapping[str, Sequence[float]]
"""Exact first losses by cell, and the recalls after them under the cell's name with the prefix `RECALLS_OF`."""
RECALLS_OF = "recalls of "


class CannotRun(VsetuneError):
    """A revision gives no number and is skipped. The message is the reason, in one line."""


class NoDifference(VsetuneError):
    """Good and bad give the same number, so there is nothing to search. Exit code 1."""


@dataclass(frozen=True)
class Tried:
    """The result of one revision. value, reference: medians of its runs and of the good revision's, None for first
    losses. pairs: number of paired runs with the good revision."""

    commit: Commit
    side: Side
    text: str
    value: float | None = None
    reference: float | None = None
    pairs: int = 0


@dataclass(frozen=True)
class Bisected:
    """suspects: commits of which one made the change, oldest first; more than one where commits between cannot run.

    good, bad: results of the two ends. tried: every revision between them that was tried, in order of the search.
    """

    suspects: Sequence[Commit]
    good: Tried
    bad: Tried
    tried: Sequence[Tried]


def bisect(
    good: Commit, after: Sequence[Commit], judge: LossJudge | PairedJudge, tell: Callable[[Tried, int], None]
) -> Bisected:
    """Search for the commit that made the change. after: commits after `good`, oldest first; the last one is bad.

    tell: called with the result of every tried revision and the number of commits that may still be at fault. judge:
    measures the two ends first. CannotRun when one of the ends gives no number, NoDifference when both give the same.
    """
    first, last = judge.ends(good, after[-1])
    tried: list[Tried] = []
    low, high = -1, len(after) - 1  # places of the newest good commit and the oldest bad one
    skipped: set[int] = set()
    while untried := [place for place in range(low + 1, high) if place not in skipped]:
        middle = (low + high) / 2
        place = min(untried, key=lambda each: abs(each - middle))
        try:
            seen = judge.judge(after[place])
        except CannotRun as error:
            seen = Tried(after[place], "skipped", str(error))
        tried.append(seen)
        if seen.side == "skipped":
            skipped.add(place)
        elif seen.side == "bad":
            high = place
        else:
            low = place
        tell(seen, high - low)
    return Bisected(after[low + 1: high + 1], first, last, tried)


@dataclass
class LossJudge:
    """Judges by the first losses, bit for bit. run: returns those of a revision."""

    run: Callable[[Commit], Losses]
    _of_good: Losses = field(default_factory=dict, init=False)

    def ends(self, good: Commit, bad: Commit) -> tuple[Tried, Tried]:
        self._of_good = self.run(good)
        other = first_difference(self._of_good, self.run(bad))
        if other is None:
            cells = ", ".join(self._of_good)
            raise NoDifference(messages.SAME_BITS(good=good.short, bad=bad.short, cells=cells))
        return Tried(good, "good", "the losses that others are compared with"), Tried(bad, "bad", other)

    def judge(self, commit: Commit) -> Tried:
        other = first_difference(self._of_good, self.run(commit))
        return Tried(commit, "good", "the same bits") if other is None else Tried(commit, "bad", other)


def first_difference(expected: Losses, found: Losses) -> str | None:
    """Description of the first loss or recall that differs; None where every bit is equal. CannotRun: `found` lacks a
    cell. Recalls that only one of the two has are not compared."""
    for cell, losses in expected.items():
        is_recalls = cell.startswith(RECALLS_OF)
        what, one_of = ("numbers", "number") if is_recalls else ("losses", "loss of step")
        if cell not in found:
            if is_recalls:
                continue
            raise CannotRun(messages.LOSSES_MISSING(cell=cell))
        ours, theirs = [repr(float(each)) for each in losses], [repr(float(each)) for each in found[cell]]
        if len(ours) != len(theirs):
            return f"{cell}: {len(theirs)} {what} instead of {len(ours)}"
        for step, (one, other) in enumerate(zip(ours, theirs, strict=True), start=1):
            if one != other:
                return f"{cell}: {one_of} {step} is {other} instead of {one}"
    return None


@dataclass
class PairedJudge:
    """Judges by a number measured in pairs with the good revision, repeated until the result is clear.

    take: runs the good revision and another with the seed of a round, and returns both numbers. known: pairs of earlier
    calls by hash, extended in place. smallest_change: smallest change that matters, as `Measure.smallest_change`.
    """

    measure: Measure
    smallest_change: float
    take: Callable[[Commit, Commit, int], Pair]
    known: dict[str, list[Pair]] = field(default_factory=dict)
    fewest: int = FEWEST_PAIRS
    _good: Commit | None = field(default=None, init=False)
    _gap: float = field(default=0.0, init=False)

    def ends(self, good: Commit, bad: Commit) -> tuple[Tried, Tried]:
        self._good = good
        decided, shift = self._compared(bad, lambda pairs: differs(pairs, self.measure, self.smallest_change))
        if not decided:
            message = messages.TOO_NOISY if decided is None else messages.SAME_VALUES
            raise NoDifference(message(
                measure=self.measure.name, good=good.short, bad=bad.short, pairs=shift.pairs, values=self._text(shift)
            ))
        self._gap = shift.size
        reference = Tried(good, "good", "what others are compared with", shift.reference, None, shift.pairs)
        return reference, self._tried(bad, "bad", shift, "")

    def judge(self, commit: Commit) -> Tried:
        decided, shift = self._compared(commit, lambda pairs: on_bad_side(pairs, self.measure, self._gap))
        is_bad = is_nearer_to_bad(shift, self._gap) if decided is None else decided
        return self._tried(commit, "bad" if is_bad else "good", shift, ", a close call" if decided is None else "")

    def _compared(self, commit: Commit, test: Callable[[Sequence[Pair]], bool | None]) -> tuple[bool | None, Shift]:
        """(decision of the test, shift) of a revision, from as many pairs as the decision takes."""
        good = self._good
        assert good is not None, "ends comes first"
        pairs = self.known.setdefault(commit.hash, [])
        decided = more_pairs(
            pairs, lambda number: self.take(good, commit, number), lambda: test(pairs), self.fewest
        )
        return decided, shift_of(pairs, self.measure)

    def _tried(self, commit: Commit, side: Side, shift: Shift, remark: str) -> Tried:
        text = f"{self._text(shift)}{remark}"
        return Tried(commit, side, text, shift.value, shift.reference, shift.pairs)

    def _text(self, shift: Shift) -> str:
        """Both values and their difference, in words."""
        if self.measure.scale == "ratio":
            by = f"{100 * math.expm1(shift.size):+.1f} ± {100 * shift.error:.1f} %"
        else:
            by = f"{shift.size:+.3g} ± {shift.error:.2g} {self.measure.unit}"
        return f"{shift.value:.5g} against {shift.reference:.5g}, {by}"
