"""Performance profiles against the definition of Dolan and More, worked by hand and by plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vsetune.metrics.performance_profiles import performance_profiles, time_for_share
from vsetune.metrics.seed_statistics import Epochs

INF = math.inf


def test_the_target_is_hit_when_the_stated_share_of_the_runs_has_it():
    runs = [Epochs(2, False), Epochs(6, True), Epochs(3, False), Epochs(5, False), Epochs(1, True)]
    assert [time_for_share(runs, share) for share in (0.2, 0.4, 0.5, 0.6, 0.8)] == [2, 3, 5, 5, INF]
    assert time_for_share([Epochs(4, False)]) == 4


def test_profiles_by_hand():
    """Three tasks, fastest 2, 3 and 5: lmh takes 2, 1 and 1 times as long; lseh 1, 2 and never.

    Up to tau = 4: lmh (3 - 1 + 3 + 3) / 9, lseh (3 + 2) / 9.
    """
    found = performance_profiles({"lmh": [4, 3, 5], "lseh": [2, 6, INF], "top_f": [INF, INF, INF]})
    assert found["lmh"].factors == (2, 1, 1)
    assert [found["lmh"].share(tau) for tau in (1, 1.99, 2)] == pytest.approx([2 / 3, 2 / 3, 1])
    assert [found["lseh"].share(tau) for tau in (1, 2, 100)] == pytest.approx([1 / 3, 2 / 3, 2 / 3])
    assert (found["lmh"].score, found["lseh"].score) == pytest.approx((8 / 9, 5 / 9))
    assert (found["top_f"].share(1e9), found["top_f"].score) == (0, 0)


def test_the_score_is_the_mean_height_of_the_profile():
    times = np.random.default_rng(3).uniform(1, 9, (3, 5))
    taus = np.linspace(1, 4, 30001)
    for found in performance_profiles(dict(zip("abc", times.tolist(), strict=True))).values():
        assert found.score == pytest.approx(np.mean([found.share(tau) for tau in taus]), abs=1e-3)


def test_a_task_that_nobody_got_to_counts_against_all():
    found = performance_profiles({"a": [INF, 1], "b": [INF, 2]})
    assert (found["a"].share(10), found["b"].share(10)) == (0.5, 0.5)


def test_what_has_no_profile_is_refused():
    for times in ({}, {"a": []}, {"a": [1], "b": [1, 2]}, {"a": [0.0]}):
        with pytest.raises(ValueError, match="need"):
            performance_profiles(times)
    with pytest.raises(ValueError, match="need"):
        time_for_share([], 0.5)
