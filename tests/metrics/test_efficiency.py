"""Curves and epochs to a target: worked curves, censoring, restarts, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vsetune.metrics.curves import best_of_curve, check_same_cadence, resolution
from vsetune.metrics.efficiency import (
    Difference,
    SeedDifference,
    chance_m_recall,
    difference_of_curves,
    difference_over_seeds,
    difference_percent,
    epochs_to_best,
    epochs_to_target,
    is_collapsed,
)
from vsetune.metrics.seed_statistics import Epochs


def every_half(values: list[float]) -> list[tuple[float, float]]:
    return [(0.5 * (index + 1), value) for index, value in enumerate(values)]


BASELINE = every_half([30, 42, 50, 55, 58, 60.2, 60.1, 59.8])
NEW = every_half([38, 52, 59, 60.2, 61, 61.5, 61.2, 61.0])
curves = st.lists(st.floats(0, 100), min_size=1, max_size=20).map(every_half)


def test_best_point_of_the_worked_baseline() -> None:
    best = best_of_curve(BASELINE)
    assert (best.epoch, best.m_recall, best.is_last) == (3, 60.2, False)
    assert epochs_to_best(BASELINE, tolerance=0) == 3
    assert epochs_to_best(BASELINE, tolerance=2.2) == 2.5
    assert resolution(BASELINE) == 0.5


def test_difference_of_the_worked_curves() -> None:
    assert epochs_to_target(NEW, 60.2) == Epochs(2, censored=False)
    assert epochs_to_target(NEW, math.nextafter(60.2, 100)).value == 2.5
    assert difference_of_curves(NEW, BASELINE).percent == pytest.approx(-33.333333, abs=1e-6)
    assert difference_percent(Epochs(2.5, censored=False), 3).percent == pytest.approx(-16.666667, abs=1e-6)


def test_a_curve_that_stopped_early_gives_a_lower_bound() -> None:
    stopped = NEW[:3]
    assert epochs_to_target(stopped, 60.2) == Epochs(1.5, censored=True)
    assert difference_of_curves(stopped, BASELINE) == Difference(-50, censored=True)


def test_an_attempt_without_any_validation_is_censored_at_zero() -> None:
    assert difference_of_curves([], BASELINE) == Difference(-100, censored=True)


@given(curves)
def test_difference_of_a_curve_with_itself_is_zero(curve) -> None:
    assert difference_of_curves(curve, curve) == Difference(0, censored=False)


@given(curves, st.floats(0, 10))
def test_best_is_reached_first_where_it_says_and_tolerance_only_helps(curve, tolerance) -> None:
    best = best_of_curve(curve)
    assert best.m_recall == max(value for _, value in curve)
    assert all(value < best.m_recall for epoch, value in curve if epoch < best.epoch)
    assert epochs_to_best(curve, tolerance=0) == best.epoch
    assert epochs_to_best(curve, tolerance=tolerance) <= best.epoch


def test_swapping_two_curves_does_not_just_flip_the_sign() -> None:
    slow, fast = every_half([10, 30, 40, 50, 50]), every_half([20, 50, 50, 55, 50])
    assert difference_of_curves(fast, slow) == Difference(-50, censored=False)
    assert difference_of_curves(slow, fast) == Difference(25, censored=True)


def test_a_curve_collapsed_that_stays_below_half_of_the_best_of_any_loss() -> None:
    assert is_collapsed(every_half([29.9, 20]), best_of_any_loss=60, chance=None)
    assert not is_collapsed(every_half([30, 20]), best_of_any_loss=60, chance=None)
    assert is_collapsed(every_half([14.2, 14.9, 14.1]), best_of_any_loss=60, chance=None), "never left its start"
    assert is_collapsed(every_half([4.8, 13.7, 6.1]), best_of_any_loss=60, chance=None), "fell back to its start"


@pytest.mark.parametrize("recalls", [
    [4.8, 6.0, 8.1, 10.2, 13.7], [4.8, 9.0, 13.7, 13.1], [9.0, 11.0, 12.1, 13.7], [3.1],
    [9.0, 9.6, 10.0, 10.7, 11.1, 11.8, 12.1, 12.9, 13.3, 13.7, 13.6],
])
def test_a_slow_rise_is_no_collapse(recalls) -> None:
    assert not is_collapsed(every_half(recalls), best_of_any_loss=60, chance=0.53)
    assert is_collapsed(every_half([*recalls, 0.8]), best_of_any_loss=60, chance=0.53), "it then fell to chance"
    assert not is_collapsed(BASELINE, best_of_any_loss=61.5, chance=0.53)


def test_a_curve_collapsed_that_ends_where_a_random_order_is() -> None:
    assert is_collapsed(every_half([1.0, 1.05]), best_of_any_loss=1.05, chance=0.53)
    assert is_collapsed(every_half([30, 1.0]), best_of_any_loss=31, chance=0.53), "a warm-up that came to nothing"
    assert not is_collapsed(every_half([1.0, 1.06]), best_of_any_loss=1.06, chance=0.53)
    assert not is_collapsed(every_half([20, 51]), best_of_any_loss=52, chance=100 / 3), "of 16 images"
    assert not is_collapsed([(0.0, 1.0)], best_of_any_loss=60, chance=0.53), "it was not trained"


def test_chance_is_the_mean_recall_of_random_orders() -> None:
    assert chance_m_recall(1000, 5000) == pytest.approx(0.533, abs=0.001)
    assert chance_m_recall(5, 10) == pytest.approx((20 + 100 + 100 + 20 + 100 * (1 - 56 / 252) + 100) / 6)
    generator = np.random.default_rng(0)
    owner = np.repeat(np.arange(12), 3)
    found = []
    for _ in range(400):
        ranks = generator.permuted(np.tile(np.arange(36), (12, 1)), axis=1)
        first = [int(row[owner == image].min()) for image, row in enumerate(ranks)]
        single = generator.integers(12, size=36)
        found.append(np.mean([np.mean(np.array(each) < k) for each in (first, single) for k in (1, 5, 10)]))
    assert chance_m_recall(12, 36) == pytest.approx(100 * np.mean(found), abs=0.6)


def test_extra_points_at_epoch_ends_and_an_early_stop_do_not_change_the_cadence() -> None:
    step = 500 / 1133
    curve = [(step, 1), (2 * step, 2), (1.0, 3), (3 * step, 4), (4 * step, 5), (2.0, 6)]
    assert resolution(curve) == pytest.approx(step)
    check_same_cadence(curve, curve[:1])
    check_same_cadence(curve, curve[:4])


def shifted(epochs_to_sixty: int, length: int = 12) -> list[tuple[float, float]]:
    return [(float(epoch), 60.0 if epoch >= epochs_to_sixty else 10.0) for epoch in range(1, length + 1)]


def test_the_interval_over_five_seeds_is_their_range() -> None:
    result = difference_over_seeds([(shifted(new), shifted(10)) for new in (4, 5, 6, 7, 9)])
    assert result == SeedDifference(pytest.approx(-40), False, pytest.approx(-60), pytest.approx(-10), 5, 0.0)


@pytest.mark.parametrize("seeds", [1, 2, 3, 4])
def test_fewer_than_five_seeds_give_no_interval(seeds) -> None:
    result = difference_over_seeds([(NEW, BASELINE)] * seeds)
    assert result.percent == pytest.approx(-33.333333, abs=1e-6)
    assert (result.low, result.high) == (None, None)


def test_few_censored_seeds_leave_the_median_and_open_the_interval() -> None:
    pairs = [(shifted(new), shifted(10)) for new in (4, 5, 6)] + [(shifted(99), shifted(10))] * 2
    result = difference_over_seeds(pairs)
    assert result.percent == pytest.approx(-40)
    assert not result.is_lower_bound
    assert result.censored_share == pytest.approx(0.4)
    assert result.high == math.inf


def test_a_median_that_censored_seeds_could_move_is_a_lower_bound() -> None:
    pruned_early = shifted(99, length=2)
    pairs = [(shifted(4), shifted(10)), (shifted(6), shifted(10)), (pruned_early, shifted(10))]
    result = difference_over_seeds(pairs)
    assert (result.is_lower_bound, result.percent) == (True, None), "at least 60 % fewer epochs says nothing"
    mostly = [(shifted(4), shifted(2))] + [(shifted(99), shifted(2))] * 2
    found = difference_over_seeds(mostly)
    assert (found.is_lower_bound, found.percent > 0) == (True, True)
    assert difference_over_seeds(mostly[1:]).percent is None, "no seed arrived"
