"""Expected bests against every order of the trials, counted by hand."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from fractions import Fraction

import pytest

from vsetune.metrics.best_of_k import (
    _DRAWN_ORDERS,
    Tried,
    _orders,
    best_after_epochs,
    best_after_trials,
    best_with_replacement,
    in_order,
    tuning_curves,
)

VALUES = [61.0, 40.0, 58.5, 61.0, 0.0, 55.25]
TRIALS = [
    Tried([(1, 30.0), (2, 50.0), (3, 48.0)], 3.0), Tried([(0.5, 20.0), (1, 25.0)], 1.0), Tried([], 0.5),
    Tried([(1, 35.0), (2, 45.0), (3, 52.5)], 3.25), Tried([(1, 51.0)], 1.5),
]


def quantile(values, share):
    """The smallest value that at least this share of them does not exceed."""
    ordered = sorted(values)
    return next(value for place, value in enumerate(ordered, 1) if place / len(ordered) >= share - 1e-12)


@pytest.mark.parametrize("count", range(1, 7))
def test_the_expected_best_of_k_is_the_mean_over_every_choice_of_k_trials(count):
    bests = [max(chosen) for chosen in itertools.combinations(VALUES, count)]
    found = best_after_trials(VALUES)[count - 1]
    assert (found.at, found.mean) == (count, pytest.approx(statistics.fmean(bests), abs=1e-12))
    assert (found.low, found.high) == (quantile(bests, 0.05), quantile(bests, 0.95))


def test_three_trials_by_hand():
    """1, 2, 6: one gives 3 on average; of the pairs two have 6 and one has 2, 14 / 3; all three have 6."""
    assert [each.mean for each in best_after_trials([6, 1, 2])] == pytest.approx([3, 14 / 3, 6])
    assert [each.at for each in best_after_trials([6, 1, 2], [3, 1])] == [3, 1]


def test_the_best_of_k_of_a_thousand_trials_is_that_of_binomials_in_fractions():
    """The chance to be below most of them is less than a float can be."""
    values = random.Random(1).sample(range(10_000), 1000)
    counts = [1, 2, 30, 400, 999, 1000]
    for found, count in zip(best_after_trials(values, counts), counts, strict=True):
        below = [Fraction(math.comb(place, count), math.comb(1000, count)) for place in range(1001)]
        mean = sum(value * (high - low) for value, low, high in zip(sorted(values), below, below[1:], strict=False))
        assert found.mean == pytest.approx(float(mean), rel=1e-12)


def test_with_replacement_it_is_the_mean_over_every_draw_and_never_higher_than_without():
    for count in (1, 2, 3):
        draws = [max(drawn) for drawn in itertools.product(VALUES, repeat=count)]
        found = best_with_replacement(VALUES, count)
        assert found == pytest.approx(statistics.fmean(draws))
        assert found <= best_after_trials(VALUES)[count - 1].mean + 1e-12


def after(order, moment):
    """The best that one order of trials has shown, walked through validation by validation."""
    shown, begin = 0.0, 0.0
    for trial in order:
        for epoch, m_recall in trial.curve:
            if begin + epoch <= moment:
                shown = max(shown, m_recall)
        begin += trial.epochs
    return shown


@pytest.mark.parametrize("moment", [0, 1.75, 4, 6.25, 100])
def test_the_expected_best_after_epochs_is_the_mean_over_every_order(moment):
    bests = [after(order, moment) for order in itertools.permutations(TRIALS)]
    (found,) = best_after_epochs(TRIALS, [moment])
    assert found.mean == pytest.approx(statistics.fmean(bests))
    assert (found.low, found.high) == (quantile(bests, 0.05), quantile(bests, 0.95))


def many(count):
    """Trials of unequal lengths; some were validated never, or not at their end."""
    draw = random.Random(count)
    lengths = [draw.choice([0, 1, 3, 8]) for _ in range(count)]
    return [
        Tried([(step / 2, 60 * draw.random()) for step in range(1, points + 1)], points / 2 + draw.choice([0, 0.25]))
        for points in lengths
    ]


@pytest.mark.parametrize("count", [7, 401])
def test_of_many_trials_the_drawn_orders_are_walked_through_one_trial_after_another(count):
    trials = in_order(many(count))
    orders = [order for group in _orders(count, 5).tolist() for order in group]
    assert _DRAWN_ORDERS <= len(orders) < 2 * _DRAWN_ORDERS
    assert all(sorted(order) == list(range(count)) for order in orders)
    firsts = [order[0] for order in orders]
    if count <= _DRAWN_ORDERS:
        assert {firsts.count(trial) for trial in range(count)} == {len(orders) // count}
    whole = sum(trial.epochs for trial in trials)
    moments = [0, 1.5, whole / 3, whole - 0.25, whole]  # the last trial is still at work in the last but one
    for found, moment in zip(best_after_epochs(trials, moments, seed=5), moments, strict=True):
        bests = [after([trials[place] for place in order], moment) for order in orders]
        assert found.mean == pytest.approx(statistics.fmean(bests))
        assert (found.low, found.high) == (quantile(bests, 0.05), quantile(bests, 0.95))


@pytest.mark.parametrize("count", [4, 12])
def test_the_order_in_which_trials_are_given_changes_no_bit(count):
    drawn = random.Random(count)
    trials = [
        Tried([(epoch, 30 + 100 * drawn.random() / 7) for epoch in range(1, 4)], drawn.choice([2.9, 3.1]))
        for _ in range(count)
    ]
    expected = tuning_curves(trials)
    for _ in range(5):
        drawn.shuffle(trials)
        assert tuning_curves(trials) == expected


def test_the_curves_of_a_search_are_those_of_its_bests_and_of_its_epochs():
    trials = many(30)
    found = tuning_curves(trials, budget_epochs=90.0)
    bests = [max([m_recall for _, m_recall in trial.curve], default=0.0) for trial in trials]
    counts = [int(each.at) for each in found.after_trials]
    assert {1, 2, 3, 4, 6, 8, 11, 15, 16, 30} <= {*counts}
    assert len(counts) < len(trials) / 2
    assert list(found.after_trials) == best_after_trials(bests, counts)
    assert list(found.after_epochs) == best_after_epochs(trials, [each.at for each in found.after_epochs])


@pytest.mark.parametrize("count", [4, 5, 9])
def test_half_of_a_search_ends_lower_by_the_mean_over_every_half(count):
    trials = many(count)
    bests = [max([m_recall for _, m_recall in trial.curve], default=0.0) for trial in trials]
    halves = [max(half) for half in itertools.combinations(bests, count // 2)]
    assert tuning_curves(trials).lost_by_half == pytest.approx(max(bests) - sum(halves) / len(halves))
    assert tuning_curves(trials[:3]).lost_by_half is None
