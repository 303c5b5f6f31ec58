"""The line of seconds per epoch over pairs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vsetune.metrics.efficiency import fit_seconds

SIZES = [0.2, 0.4, 0.6, 0.8, 1.0]


def test_the_worked_line() -> None:
    fit = fit_seconds(SIZES, [10, 18.5, 28, 37, 45.5])
    assert fit.slope == pytest.approx(44.75, abs=1e-9)
    assert fit.intercept == pytest.approx(0.95, abs=1e-9)
    assert fit.r_squared == pytest.approx(0.999657, abs=1e-6)
    assert fit.largest_residual == pytest.approx(0.35)


@given(
    st.lists(st.integers(1, 10**6), min_size=3, max_size=12, unique=True), st.floats(-10, 10), st.integers(0, 2**31)
)
def test_the_line_is_that_of_numpy(sizes, slope, seed) -> None:
    seconds = slope * np.array(sizes) + np.random.default_rng(seed).normal(0, 100, len(sizes))
    fit = fit_seconds(sizes, seconds.tolist())
    centered = np.array(sizes) - np.mean(sizes)
    expected_slope, expected_middle = np.polyfit(centered, seconds, 1)
    assert fit.slope == pytest.approx(expected_slope, rel=1e-6, abs=1e-6)
    assert fit.slope * np.mean(sizes) + fit.intercept == pytest.approx(expected_middle, rel=1e-6, abs=1e-4)
    assert -1e-9 <= fit.r_squared <= 1
    line = fit.slope * np.array(sizes) + fit.intercept
    assert fit.largest_residual == pytest.approx(np.abs(seconds - line).max(), rel=1e-6, abs=1e-4)


def test_times_on_a_line_are_explained_completely() -> None:
    fit = fit_seconds([100, 200, 300], [1, 2, 3])
    assert (fit.slope, fit.r_squared) == (pytest.approx(0.01), pytest.approx(1))
    assert fit.largest_residual == pytest.approx(0, abs=1e-12)
    assert fit_seconds([1, 2], [5, 5]).r_squared == 1


@pytest.mark.parametrize(
    ("sizes", "seconds", "message"),
    [
        ([1, 2], [1], "got 2 sizes, 2 different, and 1 times"),
        ([3, 3], [1, 2], "got 2 sizes, 1 different"),
        ([], [], "got 0 sizes"),
        ([1, 2], [1, float("nan")], "got 1 numbers that are not finite"),
    ],
)
def test_a_line_needs_two_sizes_and_finite_times(sizes, seconds, message) -> None:
    with pytest.raises(ValueError, match=message):
        fit_seconds(sizes, seconds)
