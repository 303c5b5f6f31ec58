"""Noise of curves: what is estimated, the best within it, and whether a curve still rises."""

from __future__ import annotations

import numpy as np
import pytest

from vsetune.metrics.efficiency import epochs_to_best
from vsetune.metrics.seed_statistics import curve_noise, noise_tolerance, still_rises


def curve(noise: float, *, seed: int = 0, epochs: float = 10.0, pace: float = 1.5, gap: float = 0.1):
    at = np.arange(1, round(epochs / gap) + 1) * gap
    recalls = 60 * (1 - np.exp(-at / pace)) + noise * np.random.default_rng(seed).normal(size=len(at))
    return list(zip(at.tolist(), recalls.tolist(), strict=True))


@pytest.mark.parametrize("noise", [0.1, 0.5, 2.0])
def test_the_noise_of_a_curve_is_found_whatever_its_course(noise) -> None:
    found = curve_noise([curve(noise, seed=seed) for seed in range(5)])
    assert found == pytest.approx(noise, rel=0.2)


def test_noise_by_hand_and_with_an_extra_point_between() -> None:
    """A parabola has no contrast; one point lifted by 1 has (1, 3, 3, 1) / sqrt(20) in the four around it."""
    parabola = [(epoch, 50 - (epoch - 4) ** 2) for epoch in (0.5, 1.0, 1.5, 2.0, 2.25, 2.5, 3.0, 3.5)]
    assert curve_noise([parabola]) == pytest.approx(0, abs=1e-12)
    lifted = [(float(epoch), float(epoch == 4)) for epoch in range(1, 8)]
    assert curve_noise([lifted, lifted]) == pytest.approx((1 + 3) / 2 / 20**0.5 / 0.67449, rel=1e-4)


def test_short_curves_have_no_noise_to_speak_of() -> None:
    assert curve_noise([curve(0.1)[:7]]) is None
    assert 0.03 < (curve_noise([curve(0.1, seed=seed)[:7] for seed in range(2)]) or 0.0) < 0.3


def test_within_its_noise_a_best_is_reached_when_the_curve_gets_level() -> None:
    """A curve that is level from epoch 6 on: the highest validation is anywhere, the first like it is not."""
    curves = [curve(0.3, seed=seed, epochs=30) for seed in range(20)]
    tolerance = noise_tolerance(0.3)
    first = [epochs_to_best(each, tolerance=tolerance) for each in curves]
    papers = [epochs_to_best(each, tolerance=0) for each in curves]
    assert np.std(first) < 1.0 < 5.0 < np.std(papers)
    assert 5 < np.median(first) < 8.5


def test_a_curve_still_rises_if_its_best_is_last_or_its_end_slopes_up() -> None:
    assert still_rises([[(0.5, 10.0), (1.0, 20.0)]])
    assert not still_rises([[(0.5, 10.0), (1.0, 20.0), (1.5, 19.0)]])
    rising = [curve(0.5, seed=seed, epochs=4)[:-1] for seed in range(20)]
    assert all(still_rises([each]) for each in rising), "whichever validation happens to be the highest"
    level = [curve(0.3, seed=seed, epochs=40) for seed in range(40)]
    assert sum(still_rises([each]) for each in level) <= 6, "a twentieth of them by chance"


def test_a_rise_within_the_noise_of_a_validation_is_none_however_many_seeds_show_it() -> None:
    nearly_level = [curve(0.5, seed=seed, epochs=11) for seed in range(60)]
    assert sum(still_rises(nearly_level[start:start + 10]) for start in range(0, 60, 10)) <= 1


def test_a_seed_that_ended_early_does_not_make_a_baseline_rise() -> None:
    level = [(0.5 * step, 60.0 - 0.1 * step) for step in range(1, 12)]
    assert not still_rises([level, [(0.5, 20.0), (1.0, 40.0)]])
