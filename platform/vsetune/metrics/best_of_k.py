"""Expected best of a search after k trials, or after some epochs of training, over all orders of its trials.

A comparison of tuned losses depends on how much they were tuned (Dodge et al. 2019, "Show Your Work"). Their
expected maximum samples trials with replacement and is too low. Without replacement, over all orders of the recorded
trials, it is unbiased (Tang et al. 2020, "Showing Your Work Doesn't Always Work"). It predicts another search only if
trials are sampled independently: a sampler that learns would have found its good trials after fewer trials.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vsetune.metrics.curves import SAME_EPOCH, Curve

BAND = 0.9
"""Share of the orders of the trials in which the best lies between `low` and `high`."""
_ALL_ORDERS_OF = 6
"""Most trials for which all orders (720) are used; for more trials, orders are sampled."""
_DRAWN_ORDERS = 400
_FEWEST_TO_HALVE = 4
_POINTS = 24
"""Approximate number of points of a curve."""
_AT_ONCE = 2**16
"""Approximate number of values processed at once, to fit the cache of a processor."""

_Floats = npt.NDArray[np.float64]
_Orders = npt.NDArray[np.int64]
_Values = Sequence[float] | _Floats


@dataclass(frozen=True)
class ExpectedBest:
    """Best M-Recall after `at` trials or epochs: mean over the orders of the recorded trials, per cent.

    low, high: the middle 90 % of the orders. This is no interval for another search. Its width is 0 at the end, where
    every order has tried all trials.
    """

    at: float
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Tried:
    """One trial of a search. curve: its validations, M-Recall in per cent; empty for a trial whose results do not
    count, which has a best of 0. epochs: charged to the budget."""

    curve: Curve
    epochs: float


def in_order(trials: Sequence[Tried]) -> list[Tried]:
    """The trials sorted by epochs, then curve, as the fixed input for sampled orders."""
    return sorted(trials, key=lambda trial: (trial.epochs, tuple(trial.curve)))


class _Searched(NamedTuple):
    """Trials sorted as by `in_order`, so that results do not depend on the order in which they ended. took: epochs of
    each. shown_at: (trials, points) epochs of the validations, infinite beyond the last. so_far: (trials, points + 1)
    highest M-Recall after so many validations, 0 after none, the best beyond the last."""

    took: _Floats
    shown_at: _Floats
    so_far: _Floats

    @property
    def bests(self) -> _Floats:
        return self.so_far[:, -1]

    @classmethod
    def of(cls, trials: Sequence[Tried]) -> _Searched:
        trials = in_order(trials)
        counts = np.array([len(trial.curve) for trial in trials])
        points = itertools.chain.from_iterable(trial.curve for trial in trials)
        numbers = itertools.chain.from_iterable(points)
        given = np.fromiter(numbers, np.float64, count=2 * int(counts.sum())).reshape(-1, 2)
        is_given = np.arange(counts.max()) < counts[:, None]
        shown_at, recalls = np.full(is_given.shape, math.inf), np.zeros(is_given.shape)
        shown_at[is_given], recalls[is_given] = given[:, 0], given[:, 1]
        so_far = np.maximum.accumulate(np.pad(recalls, ((0, 0), (1, 0))), axis=1)
        return cls(np.array([trial.epochs for trial in trials]), shown_at, so_far)


@dataclass(frozen=True)
class TuningCurves:
    """Expected bests of one search.

    trials, epochs: number of ended trials, and the epochs charged for them. after_trials, after_epochs: expected bests;
    the last point has all trials. with_replacement: at the same counts as after_trials, as in Dodge et al. (2019), per
    cent, too low.
    """

    trials: int
    epochs: float
    after_trials: tuple[ExpectedBest, ...]
    with_replacement: tuple[float, ...]
    after_epochs: tuple[ExpectedBest, ...]

    @property
    def lost_by_half(self) -> float | None:
        """Points of M-Recall by which half of the trials (rounded down) were expected to end below all of them. None
        for fewer than four trials."""
        if self.trials < _FEWEST_TO_HALVE:
            return None
        means = {int(each.at): each.mean for each in self.after_trials}
        return means[self.trials] - means[self.trials // 2]


def tuning_curves(trials: Sequence[Tried], *, budget_epochs: float | None = None) -> TuningCurves:
    """Curves at every number of trials up to 24 (for more trials at powers of the square root of 2 and at half of
    them), and at every 24th of the budget and the end.

    budget_epochs: of the search; None: the epochs trained. Raises ValueError without trials.
    """
    if not trials:
        raise ValueError("tuning curves: got no trials, need at least one")
    bests, trained = _Searched.of(trials).bests, math.fsum(trial.epochs for trial in trials)
    counts = list(range(1, len(bests) + 1))
    if len(bests) > _POINTS:
        powers = {round(2 ** (place / 2)) for place in range(2 * len(bests).bit_length() - 1)}
        counts = sorted(powers | {len(bests) // 2, len(bests)})
        counts = [count for count in counts if count <= len(bests)]
    gap = (budget_epochs or trained) / _POINTS
    moments = [*(gap * place for place in range(1, _POINTS + 1) if gap * place < trained - SAME_EPOCH), trained]
    return TuningCurves(
        len(bests), trained, tuple(best_after_trials(bests, counts)),
        tuple(best_with_replacement(bests, count) for count in counts), tuple(best_after_epochs(trials, moments)),
    )


def best_after_trials(values: _Values, counts: Sequence[int] | None = None) -> list[ExpectedBest]:
    """Exact expected highest of k trials sampled without replacement, for every k of `counts` (by default all).

    The highest of k is at most the i-th smallest of n values in C(i, k) of C(n, k) cases. values: best of every trial.
    Raises ValueError without values or for a count outside 1 to n.
    """
    ordered, wanted = _sorted(values), list(counts) if counts is not None else range(1, len(values) + 1)
    trials = len(ordered)
    if any(not 1 <= count <= trials for count in wanted):
        raise ValueError(f"best after k trials: got k from {min(wanted)} to {max(wanted)}, need 1 to {trials}")
    numbers, below, zeros, found = np.arange(1.0, trials + 1), np.ones(trials), 0, {}
    for count in range(1, max(wanted, default=0) + 1):
        below[zeros : count - 1] = 0.0
        while zeros < count - 1 or below[zeros] == 0.0:  # no share below `count` values, or underflow
            zeros += 1
        left = trials - count + 1
        below[zeros:] *= numbers[zeros - count + 1 : left]
        below[zeros:] /= left
        if count in wanted:
            weights = np.diff(below, prepend=0.0)
            low, high = (ordered[np.searchsorted(below, share - 1e-12)] for share in _ends())
            found[count] = ExpectedBest(count, float(weights @ ordered), float(low), float(high))
    return [found[count] for count in wanted]


def best_with_replacement(values: _Values, count: int) -> float:
    """Expected highest of k = `count` samples with replacement (Dodge et al. 2019), to compare with their figures:
    sum of v_i ((i / n)^k - ((i - 1) / n)^k) over the sorted values. Raises ValueError without values or samples."""
    ordered = _sorted(values)
    if count < 1:
        raise ValueError(f"best of k draws: got k = {count}, need at least 1")
    shares = (np.arange(len(ordered) + 1) / len(ordered)) ** count
    return float(np.diff(shares) @ ordered)


def best_after_epochs(trials: Sequence[Tried], moments: Sequence[float], *, seed: int = 0) -> list[ExpectedBest]:
    """The highest M-Recall of any validation after so many epochs, with the trials run one after another, over orders.

    The running trial counts with its validations so far. All orders of up to 6 trials are used, about 400 sampled ones
    (`seed`) of more. After all trials of an order, its best stays. moments: epochs, at least 0. Raises ValueError
    without trials.
    """
    if not trials:
        raise ValueError("best after epochs: got no trials, need at least one")
    searched = _Searched.of(trials)
    orders, until = _orders(len(searched.took), seed), np.array(moments, dtype=np.float64)
    groups, begins, trials = orders.shape
    rows = max(1, _AT_ONCE // max(trials, len(until) * searched.so_far.shape[1]))
    highest = np.empty((len(until), groups * begins))
    for first in range(0, groups * begins, rows):
        some = np.arange(first, min(first + rows, groups * begins))
        highest[:, some] = _shown(searched, orders[some // begins, some % begins], until).T
    ordered, means = np.sort(highest, axis=1), highest.mean(axis=1)
    low, high = (ordered[:, math.ceil(share * ordered.shape[1] - 1e-9) - 1] for share in _ends())
    return [
        ExpectedBest(moment, float(means[place]), float(low[place]), float(high[place]))
        for place, moment in enumerate(moments)
    ]


def _shown(searched: _Searched, orders: _Orders, moments: _Floats) -> _Floats:
    """(orders, moments): the highest M-Recall of any validation up to each moment."""
    ends = np.cumsum(searched.took[orders], axis=1)
    bests = np.maximum.accumulate(searched.bests[orders], axis=1)
    over = np.array([line.searchsorted(moments + SAME_EPOCH, side="right") for line in ends])
    lines, last, trials = np.arange(len(orders))[:, None], np.maximum(over - 1, 0), orders.shape[1]
    whole = np.where(over > 0, bests[lines, last], 0.0)
    at_work = orders[lines, np.minimum(over, trials - 1)]
    spent = moments - np.where(over > 0, ends[lines, last], 0.0)
    seen = (searched.shown_at[at_work] <= spent[..., None] + SAME_EPOCH).sum(axis=-1)
    return np.maximum(whole, np.where(over < trials, searched.so_far[at_work, seen], 0.0))


def _ends() -> tuple[float, float]:
    return (1 - BAND) / 2, (1 + BAND) / 2


def _sorted(values: _Values) -> _Floats:
    if not len(values):
        raise ValueError("best of trials: got no trials, need at least one")
    return np.sort(np.asarray(values, dtype=np.float64))


def _orders(trials: int, seed: int) -> _Orders:
    """(groups, orders, trials): indices of the trials in each order. For many trials a group has the rotations of one
    sampled order (every one up to 400 trials, else evenly spaced ones). Trials are then equally often first, second,
    ..., which reduces sampling noise. The rotations share the memory of their order."""
    if trials <= _ALL_ORDERS_OF:
        return np.array([list(itertools.permutations(range(trials)))])
    generator, gap = np.random.default_rng(seed), -(-trials // _DRAWN_ORDERS)
    begins = -(-trials // gap)
    drawn = np.array([generator.permutation(trials) for _ in range(-(-_DRAWN_ORDERS // begins))])
    twice = np.concatenate([drawn, drawn[:, :-1]], axis=1)
    return np.lib.stride_tricks.sliding_window_view(twice, trials, axis=1)[:, ::gap]
