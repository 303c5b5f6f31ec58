"""Comparison by repeated searches: against scipy, hand cases, and the false claims of the simulated worlds."""

from __future__ import annotations

import math
from dataclasses import astuple
from typing import cast

import claim_sizes
import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from vsetune.metrics.repeated_searches import (
    FEWEST_REPEATS,
    NO_EFFECT,
    Effect,
    Spread,
    collapse_bound,
    detectable,
    log_ratio,
    paired_log_ratio,
    spread,
    welch,
)
from vsetune.metrics.seed_statistics import Epochs, holm

RECALLS = st.lists(st.floats(0, 100).map(lambda value: round(value, 3)), min_size=FEWEST_REPEATS, max_size=8)


@given(RECALLS, RECALLS)
def test_welch_is_that_of_scipy(ours: list[float], theirs: list[float]) -> None:
    effect = welch(ours, theirs)
    if min(np.ptp(ours), np.ptp(theirs)) < 0.01:
        return  # scipy warns of equal values
    expected = scipy.stats.ttest_ind(ours, theirs, equal_var=False)
    freedom = min(expected.df, 2 * (min(len(ours), len(theirs)) - 1))
    p = 2 * scipy.stats.t.sf(abs(expected.statistic), freedom)
    assert effect.p == pytest.approx(p, rel=1e-6, abs=1e-9)
    if effect.difference:
        half = scipy.stats.t.ppf(0.975, freedom) * abs(effect.difference / expected.statistic)
        assert effect.high - effect.difference == pytest.approx(half, rel=1e-6, abs=1e-9)
    if len(ours) == len(theirs):
        low, high = expected.confidence_interval()
        assert (effect.p, effect.low, effect.high) == pytest.approx((expected.pvalue, low, high), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("few", "many"), [(3, 10), (3, 20), (5, 10)])
def test_few_searches_against_many_seeds_are_seldom_told_apart(few: int, many: int) -> None:
    """Three equal losses by searches against a baseline by seeds. Satterthwaite's degrees alone: 9.9, 11.9, 5.5 %."""
    chance, false = np.random.default_rng(0), 0
    for _ in range(1000):
        baseline = chance.normal(0, 0.5, many)
        false += min(holm([welch(chance.normal(0, 0.7, few), baseline).p for _ in range(3)])) < 0.05
    assert false / 1000 <= 0.085


def test_fewer_than_three_searches_claim_nothing() -> None:
    assert welch([40.0, 41.0], [10.0, 11.0, 12.0]) == NO_EFFECT


def test_equal_repeats_have_no_interval() -> None:
    effect = welch([40.0] * 3, [30.0] * 3)
    assert (effect.difference, effect.low, effect.high, effect.p) == (10.0, None, None, 1.0)


def of(*epochs: float, censored: bool = False) -> list[Epochs]:
    return [Epochs(each, censored) for each in epochs]


def test_half_the_epochs_are_a_log_ratio_of_log_two() -> None:
    effect = log_ratio([of(2, 8), of(4), of(4.4)], [of(8), of(4, 16), of(8.8)])
    assert effect.difference == pytest.approx(-math.log(2))
    assert effect.p < 0.001


def test_a_loss_with_a_censored_seed_is_never_faster() -> None:
    ours, theirs = [of(1.0), of(1.1), of(1.2, censored=True)], [of(9), of(10), of(11)]
    assert log_ratio(ours, theirs).p == 1.0
    assert log_ratio(theirs, ours).p == 1.0
    late = [of(12, censored=True), of(12, censored=True), of(12.5, censored=True)]
    assert log_ratio([of(1.0), of(1.1), of(1.2)], late).p < 0.01


def test_spread_by_hand() -> None:
    """Means 1, 5, 9: variance 16. Within: 2, 2, 2, mean 2; a half of it is in the means, so 15 are between searches."""
    assert astuple(cast("Spread", spread([[0, 2], [4, 6], [8, 10]]))) == pytest.approx((math.sqrt(15), math.sqrt(2)))
    two = spread([[0, 2], [8, 10]])  # means 1 and 9: variance 32
    assert astuple(cast("Spread", two)) == pytest.approx((math.sqrt(31), math.sqrt(2)))
    assert spread([[1, 2]]) is None
    assert spread([[1], [2], [3]]) is None


def test_spread_between_equal_searches_is_zero() -> None:
    assert astuple(cast("Spread", spread([[0, 4], [1, 3], [2, 2]]))) == (0.0, pytest.approx(math.sqrt(10 / 3)))


def test_the_detectable_difference_is_found_four_times_in_five() -> None:
    deviations, chance = Spread(search=0.6, seed=0.5), np.random.default_rng(0)
    size = detectable(deviations, repeats=5, seeds=2)

    def means() -> list[float]:
        search = chance.normal(0, deviations.search, 5)
        return list(search + chance.normal(0, deviations.seed, (2, 5)).mean(0))

    found = np.mean([welch([size + each for each in means()], means()).p <= 0.05 for _ in range(2000)])
    assert 0.75 < found < 0.85
    assert detectable(deviations, repeats=2, seeds=9) == math.inf


@pytest.mark.parametrize(("collapsed", "of", "bound"), [(0, 9, 0.2831), (0, 29, 0.0981), (1, 10, 0.3942), (3, 3, 1.0)])
def test_share_that_may_collapse(collapsed: int, of: int, bound: float) -> None:
    """The binomial probability of so few collapses at the bound is 5 %."""
    assert collapse_bound(collapsed, of) == pytest.approx(bound, abs=5e-5)
    if collapsed < of:
        assert scipy.stats.binom.cdf(collapsed, of, bound) == pytest.approx(0.05, abs=1e-4)


def test_paired_ratios_are_the_t_test_of_their_logarithms() -> None:
    ours, theirs = of(4, 5, 6, 4), of(8, 9, 9, 7)
    logs = [math.log(one.value) - math.log(other.value) for one, other in zip(ours, theirs, strict=True)]
    expected = scipy.stats.ttest_1samp(logs, 0)
    effect = paired_log_ratio(ours, theirs)
    assert (effect.difference, effect.p) == pytest.approx((sum(logs) / 4, expected.pvalue))
    assert (effect.low, effect.high) == pytest.approx(tuple(expected.confidence_interval()))
    assert paired_log_ratio(of(4), of(8)) == Effect(math.log(0.5), None, None, 1.0)
    assert paired_log_ratio(of(4, 2), of(8, 4)) == Effect(math.log(0.5), None, None, 1.0), "equal ratios"


@pytest.mark.parametrize(("ours", "theirs", "claims"), [
    (of(4, 5, 6), of(9, 11, 12), True), (of(4, 5) + of(6, censored=True), of(9, 11, 12), False),
    (of(9, 11) + of(12, censored=True), of(4, 5, 6), True), (of(9, 11, 12), of(4, 5) + of(6, censored=True), False),
])
def test_a_censored_seed_keeps_its_loss_from_being_faster_in_pairs(ours, theirs, claims) -> None:
    assert (paired_log_ratio(ours, theirs).p < 0.05) == claims


@pytest.mark.parametrize("world", claim_sizes.WORLDS)
def test_equal_losses_are_seldom_told_apart(world: str) -> None:
    """In the worlds of benchmarks/claim_sizes.py at most 6 % of boards have a false claim, of M-Recall or of epochs."""
    assert max(claim_sizes.sizes_of(world, claim_sizes.REPEATED[0], studies=500, losses=4)) <= 6.0


@pytest.mark.slow
@pytest.mark.parametrize("world", claim_sizes.WORLDS)
@pytest.mark.parametrize("design", [*claim_sizes.REPEATED, *claim_sizes.EQUAL], ids=lambda design: design.name)
def test_equal_losses_are_seldom_told_apart_whatever_the_design(world: str, design: claim_sizes.Design) -> None:
    """Two standard errors of 2,000 boards are 1.1 %."""
    assert max(claim_sizes.sizes_of(world, design, studies=2000, losses=4)) <= 6.0 + 1.1
