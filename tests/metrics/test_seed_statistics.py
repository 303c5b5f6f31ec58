"""Intervals, tests and medians over few seeds, against scipy and cases worked by hand; coverage by simulation."""

from __future__ import annotations

import math

import interval_coverage
import numpy as np
import pytest
from scipy import stats

from vsetune.metrics.seed_statistics import (
    Epochs,
    epochs_over_seeds,
    holm,
    improvement_interval,
    kaplan_meier,
    kaplan_meier_median,
    mean_interval,
    median_interval,
    paired_t,
)

RECALLS = [61.2, 60.4, 61.9, 60.8, 61.5]


def hit(value: float) -> Epochs:
    return Epochs(value, censored=False)


def ended(value: float) -> Epochs:
    return Epochs(value, censored=True)


def test_the_interval_of_a_mean_is_scipys_t_interval() -> None:
    low, high = mean_interval(RECALLS)
    expected = stats.t.interval(0.95, 4, loc=np.mean(RECALLS), scale=stats.sem(RECALLS))
    assert (float(low), float(high)) == pytest.approx(expected)


def test_the_interval_of_a_mean_by_hand() -> None:
    """60, 61, 62: mean 61, s = 1, t(2) = 4.3027, 4.3027 / sqrt(3) = 2.4842."""
    low, high = mean_interval([60, 61, 62])
    assert (float(low), float(high)) == pytest.approx((61 - 2.4841, 61 + 2.4841), abs=1e-4)


EQUAL = [36.333333333333336 - 36.66666666666667, 38.66666666666667 - 39.0]
"""Of the same number of hits, they differ by 7e-15."""


@pytest.mark.parametrize("values", [[61.0], [61.0, 61.0, 61.0], EQUAL, [100 / 3, 100 / 3 + 7e-15]])
@pytest.mark.timeout(60)
def test_one_seed_and_seeds_that_are_equal_but_for_rounding_have_no_interval_and_no_test(values) -> None:
    for interval in (mean_interval, improvement_interval):
        assert np.isnan(interval(values)).all()
    assert paired_t(values) == 1


@pytest.mark.parametrize(("seeds", "cover"), [(5, 0.9375), (6, 0.95), (7, 0.95), (8, 0.95), (9, 0.95), (10, 0.95)])
def test_the_interval_of_a_median_lies_between_the_order_statistics_of_scipy(seeds, cover) -> None:
    """scipy's quantile_test inverts the sign test: of all intervals of two values, the smallest that covers enough."""
    values = np.sort(np.random.default_rng(seeds).normal(size=seeds))
    low, high = map(float, median_interval(values))
    if seeds == 5:
        assert (low, high) == (values[0], values[-1])
        return
    outer = stats.quantile_test(values, q=0, p=0.5).confidence_interval(confidence_level=cover)
    assert outer.low <= low <= values[1 if seeds < 9 else 2]
    assert values[-2 if seeds < 9 else -3] <= high <= outer.high


def test_the_interval_of_a_median_of_seven_by_hand() -> None:
    """1 to 7: the range covers 1 - 2/128 = 98.44 %, 2 to 6 cover 1 - 16/128 = 87.5 %; (.9844 - .95) / .1094 = .3143;
    6 x .3143 / (1 + 5 x .3143) = .7334 of the way from 1 to 2."""
    low, high = median_interval(np.arange(1, 8))
    assert (float(low), float(high)) == pytest.approx((1.7333, 6.2667), abs=1e-3)


def test_four_seeds_have_no_interval_of_a_median_and_a_censored_one_leaves_its_end_open() -> None:
    assert np.isnan(median_interval([1, 2, 3, 4])).all()
    low, high = median_interval([1, 2, 3, 4, 5], [1, 2, 3, 4, math.inf])
    assert (float(low), float(high)) == (1, math.inf)
    low, high = median_interval(np.arange(1, 11), [*range(1, 10), math.inf])
    assert np.isfinite(high), "of ten seeds the second largest limits it"


def test_the_interval_of_the_probability_of_improvement_inverts_the_non_central_t() -> None:
    values = np.array([0.9, 0.1, 1.4, -0.2, 0.8])
    low, high = map(float, improvement_interval(values))
    statistic = math.sqrt(5) * values.mean() / values.std(ddof=1)
    for bound, tail in ((low, 0.98125), (high, 0.01875)):
        assert stats.nct.cdf(statistic, 4, math.sqrt(5) * stats.norm.ppf(bound)) == pytest.approx(tail, abs=1e-4)
    assert 0 < low < stats.norm.cdf(values.mean() / values.std(ddof=1)) < high < 1


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("values", [[20.0, 20.00001], [20.0, 20.0, 20.0, 20.0000001], [100.0] * 99 + [100.0001]])
@pytest.mark.timeout(60)
def test_seeds_that_hardly_differ_improve_with_certainty(values, sign) -> None:
    low, high = improvement_interval(sign * np.array(values))
    assert (low, high) == pytest.approx((0.5 + sign / 2, 0.5 + sign / 2), abs=1e-12)


def test_the_tests_are_those_of_scipy() -> None:
    assert paired_t(RECALLS) == pytest.approx(stats.ttest_1samp(RECALLS, 0).pvalue)
    differences = [0.9, 0.1, 1.4, -0.2, 0.8]
    assert paired_t(differences) == pytest.approx(stats.ttest_1samp(differences, 0).pvalue)


def test_holm_by_hand() -> None:
    """Three: 0.01 x 3, 0.02 x 2, 0.04 x 1; the third is not below the second."""
    assert holm([0.04, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([0.5, 0.6]) == [1, 1]
    assert holm([]) == []


def test_a_kaplan_meier_curve_by_hand() -> None:
    """Freireich's treated patients to week 13: of 21 at risk three relapse in week 6, one each in 7, 10, 13."""
    weeks = [hit(6)] * 3 + [ended(6), hit(7), ended(9), hit(10), ended(10), ended(11), hit(13), *[ended(35)] * 11]
    expected = [(6, 18 / 21), (7, 18 / 21 * 16 / 17)]
    expected += [(10, expected[-1][1] * 14 / 15), (13, expected[-1][1] * 14 / 15 * 11 / 12)]
    steps = kaplan_meier(weeks)
    assert [moment for moment, _ in steps] == [6, 7, 10, 13]
    assert [left for _, left in steps] == pytest.approx([left for _, left in expected])
    assert [round(left, 4) for _, left in steps] == [0.8571, 0.8067, 0.7529, 0.6902]


def test_kaplan_meier_agrees_with_scipy() -> None:
    times, censored = [1, 2, 2, 3, 4, 4, 6], [False, False, True, False, True, False, True]
    ours = kaplan_meier([Epochs(*each) for each in zip(times, censored, strict=True)])
    data = stats.CensoredData.right_censored(times, censored)
    theirs = stats.ecdf(data).sf
    assert [left for _, left in ours] == pytest.approx([float(theirs.evaluate(moment)) for moment, _ in ours])


@pytest.mark.parametrize(
    ("values", "median"),
    [
        ([hit(2)], hit(2)),
        ([hit(1), hit(2), ended(30)], hit(2)),
        ([hit(1), hit(2)], hit(1.5)),
        ([hit(1), ended(30), ended(30)], ended(30)),
        ([hit(2), ended(30)], ended(16)),
        ([hit(1), hit(2), ended(0.5)], hit(1.5)),
    ],
)
def test_a_median_of_kaplan_and_meier_is_a_bound_where_ended_seeds_leave_it_open(values, median) -> None:
    assert kaplan_meier_median(values) == median


def test_epochs_over_seeds_tell_median_interval_and_share_censored() -> None:
    found = epochs_over_seeds([hit(1), hit(2), hit(3), hit(4), ended(9)])
    assert (found.median, found.bounds, found.seeds, found.censored_share) == (hit(3), (1, math.inf), 5, 0.2)
    six = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert epochs_over_seeds([hit(epoch) for epoch in six]).bounds == median_interval(six, six, 0.95)
    assert epochs_over_seeds([hit(1)] * 4).bounds is None


@pytest.mark.parametrize("world", [interval_coverage.WORLDS[0], interval_coverage.WORLDS[3]], ids=str)
def test_intervals_cover_what_they_state(world, monkeypatch) -> None:
    """1,000 studies: a share of 95 % is known to 2 points in 99.6 of 100 cases, hence the wider limits."""
    monkeypatch.setattr(interval_coverage, "POPULATION", 20_000)
    found = interval_coverage.coverage(world, studies=1000, quantities=interval_coverage.QUANTITIES)
    for quantity, shares in found.items():
        first = next(index for index, share in enumerate(shares) if not math.isnan(share)) + 1
        assert first == (5 if quantity in ("epochs to target", "Difference") else 2), quantity
        assert all(0.915 <= share <= 0.985 for share in shares[first - 1:]), (quantity, shares)


def test_boards_of_equal_losses_call_none_different_by_chance() -> None:
    for share in interval_coverage.false_calls(comparisons=3, studies=400):
        assert share <= 0.05 + 0.035
