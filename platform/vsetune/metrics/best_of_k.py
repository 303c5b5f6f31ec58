"""What a search has found after k of its trials, or after some epochs of training, whatever the order it tried them in.

A comparison of tuned losses depends on how much they were tuned (Dodge et al. 2019, "Show Your Work"). Their
expected maximum draws trials with replacement and is too low; without replacement, over all orders of the recorded
trials, it is unbiased (Tang et al. 2020, "Showing Your Work Doesn't Always Work"). Only for trials drawn
independently does it tell of another search: a sampler that learns would have come to its good ones sooner.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from vsetune.metrics.curves import SAME_EPOCH, Curve

BAND = 0.9
"""Share of the orders of the trials in which the best lies between `low` and `high`."""
_ALL_ORDERS_OF = 6
"""Trials of which every order is taken, 720; of more, orders are drawn."""
_DRAWN_ORDERS = 400
_POINTS = 24
"""Of a curve, about."""

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ExpectedBest:
    """Best M-Recall after so many trials, or epochs, `at`: mean over the orders of the recorded trials, per cent.

    low, high: the middle 90 % of the orders. That is no interval for another search, and no width is left at the end,
    where every order has tried all.
    """

    at: float
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Tried:
    """One trial of a search. curve: its validations, M-Recall in per cent; empty for one whose numbers count for
    nothing, which takes its turn and finds 0. epochs: what it took of the budget."""

    curve: Curve
    epochs: float

    @cached_property
    def best(self) -> float:
        return max([m_recall for _, m_recall in self.curve], default=0.0)


@dataclass(frozen=True)
class TuningCurves:
    """What tuning has brought: expected bests of one search.

    trials, epochs: that are over, and what they took. after_trials, after_epochs: their last point has all of them.
    with_replacement: at the same counts as after_trials, as Dodge et al. (2019) print it, per cent, too low.
    """

    trials: int
    epochs: float
    after_trials: tuple[ExpectedBest, ...]
    with_replacement: tuple[float, ...]
    after_epochs: tuple[ExpectedBest, ...]


def tuning_curves(trials: Sequence[Tried], *, budget_epochs: float | None = None) -> TuningCurves:
    """At every count of up to 24 trials, of more at ratios of the root of 2; at every 24th of the budget and the end.

    budget_epochs: of the search, what was trained where it is not known. Raises ValueError without trials.
    """
    bests, trained = [trial.best for trial in trials], math.fsum(trial.epochs for trial in trials)
    counts = list(range(1, len(bests) + 1))
    if len(bests) > _POINTS:
        counts = sorted({round(2 ** (place / 2)) for place in range(2 * len(bests).bit_length() - 1)} | {len(bests)})
        counts = [count for count in counts if count <= len(bests)]
    gap = (budget_epochs or trained) / _POINTS
    moments = [*(gap * place for place in range(1, _POINTS + 1) if gap * place < trained - SAME_EPOCH), trained]
    return TuningCurves(
        len(bests), trained, tuple(best_after_trials(bests, counts)),
        tuple(best_with_replacement(bests, count) for count in counts), tuple(best_after_epochs(trials, moments)),
    )


def best_after_trials(values: Sequence[float], counts: Sequence[int] | None = None) -> list[ExpectedBest]:
    """Of k trials drawn without replacement the expected highest, for every k of `counts` (all by default), exactly.

    The i-th smallest of n values is the highest of k, or one below it is, in C(i, k) of C(n, k) cases. values: best of
    every trial. Raises ValueError without values or for a count outside 1 to n.
    """
    ordered, wanted = _sorted(values), list(counts) if counts is not None else range(1, len(values) + 1)
    trials = len(ordered)
    if any(not 1 <= count <= trials for count in wanted):
        raise ValueError(f"best after k trials: got k from {min(wanted)} to {max(wanted)}, need 1 to {trials}")
    places, below, found = np.arange(1, trials + 1), np.ones(trials), {}
    for count in range(1, max(wanted, default=0) + 1):
        below = below * np.maximum(places - count + 1, 0) / (trials - count + 1)
        if count in wanted:
            weights = np.diff(below, prepend=0.0)
            low, high = (ordered[np.searchsorted(below, share - 1e-12)] for share in _ends())
            found[count] = ExpectedBest(count, float(weights @ ordered), float(low), float(high))
    return [found[count] for count in wanted]


def best_with_replacement(values: Sequence[float], count: int) -> float:
    """Expected highest of `count` draws with replacement (Dodge et al. 2019), to compare with their figures:
    sum of v_i ((i / n)^k - ((i - 1) / n)^k) over the sorted values. Raises ValueError without values or draws."""
    ordered = _sorted(values)
    if count < 1:
        raise ValueError(f"best of k draws: got k = {count}, need at least 1")
    shares = (np.arange(len(ordered) + 1) / len(ordered)) ** count
    return float(np.diff(shares) @ ordered)


def best_after_epochs(trials: Sequence[Tried], moments: Sequence[float], *, seed: int = 0) -> list[ExpectedBest]:
    """The highest M-Recall of any validation when so many epochs were trained, one trial after another, over orders.

    The trial at work counts with what it has shown. All orders of up to 6 trials, some 400 drawn ones (`seed`) of
    more; an order of which all trials are over keeps its best. moments: epochs, at least 0. Raises ValueError without
    trials.
    """
    if not trials:
        raise ValueError("best after epochs: got no trials, need at least one")
    orders = _orders(len(trials), seed)
    ends = np.cumsum(np.array([trial.epochs for trial in trials])[orders], axis=1)
    bests = np.maximum.accumulate(np.array([trial.best for trial in trials])[orders], axis=1)
    epochs, so_far = _padded([trial.curve for trial in trials])
    lines = np.arange(len(orders))
    highest = np.empty((len(moments), len(orders)))
    for place, moment in enumerate(moments):
        over = (ends <= moment + SAME_EPOCH).sum(axis=1)
        whole = np.where(over > 0, bests[lines, over - 1], 0.0)
        at_work = orders[lines, np.minimum(over, len(trials) - 1)]
        spent = moment - np.where(over > 0, ends[lines, over - 1], 0.0)
        shown = (epochs[at_work] <= spent[:, None] + SAME_EPOCH).sum(axis=1)
        highest[place] = np.maximum(whole, np.where(over < len(trials), so_far[at_work, shown], 0.0))
    ordered, means = np.sort(highest, axis=1), highest.mean(axis=1)
    low, high = (ordered[:, math.ceil(share * len(orders) - 1e-9) - 1] for share in _ends())
    return [
        ExpectedBest(moment, float(means[place]), float(low[place]), float(high[place]))
        for place, moment in enumerate(moments)
    ]


def _ends() -> tuple[float, float]:
    return (1 - BAND) / 2, (1 + BAND) / 2


def _sorted(values: Sequence[float]) -> _Floats:
    if not len(values):
        raise ValueError("best of trials: got no trials, need at least one")
    return np.sort(np.asarray(values, dtype=np.float64))


def _orders(trials: int, seed: int) -> npt.NDArray[np.int64]:
    """(orders, trials): which trial comes when. Drawn orders are begun everywhere, so that every trial is as often the
    first, the second, ..., which leaves less to chance."""
    if trials <= _ALL_ORDERS_OF:
        return np.array(list(itertools.permutations(range(trials))))
    generator, begins = np.random.default_rng(seed), range(0, trials, -(-trials // _DRAWN_ORDERS))
    drawn = [generator.permutation(trials) for _ in range(-(-_DRAWN_ORDERS // len(begins)))]
    places = (np.arange(trials) + np.array(begins)[:, None]) % trials
    return np.concatenate([order[places] for order in drawn])


def _padded(curves: Sequence[Curve]) -> tuple[_Floats, _Floats]:
    """(trials, points) epochs of the validations, infinite beyond the last, and (trials, points + 1) the highest
    M-Recall after so many of them, 0 after none."""
    points = max(len(curve) for curve in curves)
    epochs, so_far = np.full((len(curves), points), math.inf), np.zeros((len(curves), points + 1))
    for line, curve in enumerate(curves):
        if curve:
            epochs[line, : len(curve)], recalls = np.array(curve).T
            so_far[line, 1 : len(curve) + 1] = np.maximum.accumulate(recalls)
    return epochs, so_far
