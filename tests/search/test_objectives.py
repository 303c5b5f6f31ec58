"""What a search maximises: hits before misses, near misses before far ones, and nothing that breaks a constraint."""

from __future__ import annotations

import pytest

from vsetune.config.study.study_spec import ConstraintSpec
from vsetune.search.objectives import Objective, broken_for_good, epochs_needed, share_above_limit

RISING = [(1.0, 20.0), (2.0, 40.0), (3.0, 50.0), (4.0, 52.0)]


def test_epochs_to_a_target_lie_between_the_validations_around_it() -> None:
    assert epochs_needed(RISING, 45.0, whole=10.0) == 2.5
    assert epochs_needed(RISING, 50.0, whole=10.0) == 3.0
    assert epochs_needed(RISING, 10.0, whole=10.0) == 1.0


def test_a_target_never_reached_costs_more_than_any_hit_and_the_more_the_further_it_is() -> None:
    """10 epochs, and for 2 of 54 points missing 2/54 of 10 more: 10.370; for 34 of 54: 16.296."""
    assert epochs_needed(RISING, 54.0, whole=10.0) == pytest.approx(10 * (1 + 2 / 54))
    assert epochs_needed(RISING[:1], 54.0, whole=10.0) == pytest.approx(10 * (1 + 34 / 54))
    last = [(1.0, 0.0), (10.0, 54.0)]
    assert epochs_needed(last, 54.0, whole=10.0) == 10.0


def test_area_under_the_curve_keeps_the_best_so_far_to_the_last_epoch() -> None:
    """0 until 1, 20 until 2, 40 until 4 (the 30 at 3 is no new best), of 5 epochs; then on at 40 to 5: 140 / 5."""
    curve = [(1.0, 20.0), (2.0, 40.0), (3.0, 30.0), (4.0, 35.0)]
    assert Objective("area_under_curve", 5.0).value(curve) == pytest.approx((20 + 3 * 40) / 5)


def test_area_under_a_curve_of_one_validation_and_of_one_beyond_the_planned_epochs() -> None:
    assert Objective("area_under_curve", 5.0).value([(2.0, 30.0)]) == pytest.approx(3 * 30 / 5)
    assert Objective("area_under_curve", 3.0).value([(1.0, 20.0), (4.0, 60.0)]) == pytest.approx(3 * 20 / 4)


def test_the_sampler_hears_the_curve_of_plain_m_recall_and_one_value_of_anything_else() -> None:
    assert Objective("best_m_recall", 10.0).sampler_curve(RISING, 0.0) == RISING
    assert Objective("epochs_to_target", 10.0, 45.0).sampler_curve(RISING, 0.0) == [(4.0, -2.5)]


@pytest.mark.parametrize(("kind", "worst"), [("best_m_recall", 0.0), ("epochs_to_target", -20.0)])
def test_a_trial_that_breaks_a_constraint_is_below_all_that_keep_them(kind, worst) -> None:
    objective = Objective(kind, 10.0, 45.0 if kind == "epochs_to_target" else None)
    slightly, badly = (objective.sampler_curve(RISING, excess)[0][1] for excess in (0.01, 0.5))
    assert badly < slightly < worst


@pytest.mark.parametrize(("excess", "recall", "epochs"), [
    (0.01, -0.1, -16.08), (0.5, -5.0, -20.0), (3.0, -10.0, -24.0),
])
def test_a_broken_constraint_costs_up_to_10_points_below_0_and_up_to_a_training_more_than_the_worst_miss(
    excess: float, recall: float, epochs: float
) -> None:
    assert Objective("best_m_recall", 8.0).sampler_curve(RISING, excess) == [(4.0, pytest.approx(recall))]
    assert Objective("epochs_to_target", 8.0, 45.0).sampler_curve(RISING, excess) == [(4.0, pytest.approx(epochs))]


def test_constraints_are_held_against_what_was_measured() -> None:
    limits = ConstraintSpec(seconds_per_epoch=10.0, peak_memory_gib=2.0)
    measured = {"seconds_per_epoch": 12.0, "peak_memory_bytes": 2.0**30}
    assert share_above_limit(limits, measured) == pytest.approx(0.2)
    assert share_above_limit(limits, {"seconds_per_epoch": 9.0}) < 0
    assert share_above_limit(limits, {"peak_memory_bytes": 3.0 * 1024**3}) == pytest.approx(0.5)
    assert share_above_limit(limits, {}) == 0.0


def test_seconds_of_an_epoch_are_known_after_the_first_whole_one_and_memory_at_once() -> None:
    limits = ConstraintSpec(seconds_per_epoch=10.0, peak_memory_gib=2.0)
    slow = {"seconds_per_epoch": 10.01, "peak_memory_bytes": 2.0**30}
    assert broken_for_good(limits, slow | {"epochs": 0.99}) == ""
    assert broken_for_good(limits, slow | {"epochs": 1.0}) == "constraint seconds_per_epoch: 10.01 > 10"
    assert broken_for_good(limits, {"peak_memory_bytes": 3.0 * 2**30}) == "constraint peak_memory_gib: 3 > 2"
    assert broken_for_good(limits, {}) == ""
