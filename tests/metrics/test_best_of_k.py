"""Expected bests against every order of the trials, counted by hand."""

from __future__ import annotations

import itertools
import statistics

import pytest

from vsetune.metrics.best_of_k import Tried, best_after_epochs, best_after_trials, best_with_replacement

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


@pytest.mark.parametrize("moment", [0, 0.5, 1, 1.75, 2.5, 4, 6.25, 9.25, 100])
def test_the_expected_best_after_epochs_is_the_mean_over_every_order(moment):
    bests = [after(order, moment) for order in itertools.permutations(TRIALS)]
    (found,) = best_after_epochs(TRIALS, [moment])
    assert found.mean == pytest.approx(statistics.fmean(bests))
    assert (found.low, found.high) == (quantile(bests, 0.05), quantile(bests, 0.95))


def test_of_many_trials_of_one_length_the_drawn_orders_agree_with_the_exact_choice_of_k():
    values = [50 + (7 * place) % 11 for place in range(11)]
    drawn = best_after_epochs([Tried([(2.0, value)], 2.0) for value in values], [2, 6, 22])
    one, three, every = best_after_trials(values, [1, 3, 11])
    assert drawn[0].mean == pytest.approx(one.mean), "every trial comes first as often"
    assert drawn[1].mean == pytest.approx(three.mean, abs=0.4)  # one deviation of 1.8 over sqrt(400) is 0.1
    assert (drawn[2].mean, drawn[2].low, drawn[2].high) == (every.mean, 60, 60)


def test_what_cannot_be_counted_is_refused():
    for refused in (
        lambda: best_after_trials([]), lambda: best_after_trials([1.0], [2]), lambda: best_after_epochs([], [1]),
        lambda: best_with_replacement([1.0], 0),
    ):
        with pytest.raises(ValueError, match="need"):
            refused()
