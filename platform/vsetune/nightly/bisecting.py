"""Finds the commit that changed a number: binary search between a good and a bad revision, with few measurements."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from vsetune.errors import VsetuneError
from vsetune.nightly.measures import Measure
from vsetune.nightly.paired import (
    FEWEST_PAIRS,
    Pair,
    Shift,
    differs,
    is_nearer_to_bad,
    more_pairs,
    on_bad_side,
    shift_of,
)
from vsetune.nightly.revisions import Commit

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


class Judge(Protocol):
    """Decides on which side a revision is. CannotRun where it gives no number."""

    def ends(self, good: Commit, bad: Commit) -> tuple[Tried, Tried]:
        """Results of the two ends. NoDifference where they are the same."""
        ...

    def judge(self, commit: Commit) -> Tried:
        """Result of a revision between the ends; `ends` must be called before."""
        ...


def bisect(good: Commit, after: Sequence[Commit], judge: Judge, tell: Callable[[Tried, int], None]) -> Bisected:
    """Search for the commit that made the change. after: commits after `good`, oldest first; the last one is bad.

    tell: called with the result of every tried revision and the number of commits that may still be at fault. CannotRun
    when one of the two ends gives no number, NoDifference when both give the same.
    """
    first, last = judge.ends(good, after[-1])
    tried: list[Tried] = []
    low, high = -1, len(after) - 1  # places of the newest good commit and the oldest bad one
    skipped: set[int] = set()
    while untried := [place for place in range(low + 1, high) if place not in skipped]:
        middle = (low + high) / 2
        place = min(untried, key=lambda each: abs(each - middle))
        seen = _judged(judge, after[place])
        tried.append(seen)
        if seen.side == "skipped":
            skipped.add(place)
        elif seen.side == "bad":
            high = place
        else:
            low = place
        tell(seen, high - low)
    return Bisected(after[low + 1: high + 1], first, last, tried)


def _judged(judge: Judge, commit: Commit) -> Tried:
    try:
        return judge.judge(commit)
    except CannotRun as error:
        return Tried(commit, "skipped", str(error))


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
            raise NoDifference(f"first_losses: {good.short} and {bad.short} give the same bits ({cells})")
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
            raise CannotRun(f"gives no losses of {cell}")
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
        pairs = self._pairs(bad)
        said = more_pairs(
            pairs, lambda number: self.take(good, bad, number),
            lambda: differs(pairs, self.measure, self.smallest_change), self.fewest,
        )
        shift = shift_of(pairs, self.measure)
        if not said:
            why = "the same" if said is False else "too noisy to tell apart"
            raise NoDifference(
                f"{self.measure.name}: {good.short} and {bad.short} are {why} in {shift.pairs} pairs of runs "
                f"({self._text(shift)}); name others with --good and --bad, or another --cell"
            )
        self._gap = shift.size
        return (
            Tried(good, "good", "what others are compared with", shift.reference, None, shift.pairs),
            self._tried(bad, "bad", shift, ""),
        )

    def judge(self, commit: Commit) -> Tried:
        good = self._good
        assert good is not None, "ends comes first"
        pairs = self._pairs(commit)
        said = more_pairs(
            pairs, lambda number: self.take(good, commit, number),
            lambda: on_bad_side(pairs, self.measure, self._gap), self.fewest,
        )
        shift = shift_of(pairs, self.measure)
        is_bad = is_nearer_to_bad(shift, self._gap) if said is None else said
        return self._tried(commit, "bad" if is_bad else "good", shift, ", a close call" if said is None else "")

    def _pairs(self, commit: Commit) -> list[Pair]:
        return self.known.setdefault(commit.hash, [])

    def _tried(self, commit: Commit, side: Side, shift: Shift, remark: str) -> Tried:
        text = f"{self._text(shift)}{remark}"
        return Tried(commit, side, text, shift.value, shift.reference, shift.pairs)

    def _text(self, shift: Shift) -> str:
        """Both values and their difference, in words."""
        if self.measure.scale == "ratio":
            by = f"{_per_cent(shift.size)} ± {100 * shift.error:.1f} %"
        else:
            by = f"{shift.size:+.3g} ± {shift.error:.2g} {self.measure.unit}"
        return f"{shift.value:.5g} against {shift.reference:.5g}, {by}"


def _per_cent(logarithm: float) -> str:
    return f"{100 * math.expm1(logarithm):+.1f}"
