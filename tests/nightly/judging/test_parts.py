"""The pieces of a verdict against plain loops and known distributions."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from vsetune.nightly.judging import scores
from vsetune.nightly.judging.judge import all_cells, judge
from vsetune.nightly.judging.noise import (
    CLIP,
    DOUBT,
    IMAGINED_NIGHTS,
    SMALLEST_SHARE,
    WINSORISED_VARIANCE,
    Floats,
    Streams,
    autocorrelation,
    noise,
    of_all_cells,
)
from vsetune.nightly.judging.scores import Tail, Tolerance, normal_score, students_t
from vsetune.nightly.judging.watch import Watch
from vsetune.nightly.night import BY_NAME, MEASURES

TIME = BY_NAME["epoch_time"]


def plain_noise(nights: list[float], smallest: float) -> tuple[float, float]:
    """Centre and scale of one stream that shares nothing."""
    known = [value for value in nights if not math.isnan(value)]
    middle = statistics.median(known)
    spread = 1.4826 * (1 + 1 / len(known)) * statistics.median(abs(value - middle) for value in known)
    reach = CLIP * max(spread, SMALLEST_SHARE * smallest)
    inside = [min(max(value, middle - reach), middle + reach) for value in known]
    return statistics.mean(inside), max(
        math.sqrt(statistics.variance(inside) / WINSORISED_VARIANCE), SMALLEST_SHARE * smallest)


@pytest.mark.parametrize("nights", [2, 3, 8, 31])
def test_noise_is_that_of_a_plain_loop(nights: int) -> None:
    rng = np.random.default_rng(nights)
    quiet = rng.standard_t(3, size=(4, 2, nights))
    quiet[1, 0, 1:-1:3] = np.nan
    found = noise(quiet, np.array([0.1, 2.0]), np.eye(2))
    for history in range(4):
        for stream, smallest in enumerate((0.1, 2.0)):
            centre, scale = plain_noise(list(quiet[history, stream]), smallest)
            assert found.centre[history, stream] == pytest.approx(centre)
            if nights > 2 or np.isfinite(quiet[history, stream]).all():
                assert found.scale[history, stream] == pytest.approx(scale)


def test_cells_that_are_alike_share_their_scale_and_unlike_ones_keep_theirs() -> None:
    rng = np.random.default_rng(0)
    alike = rng.normal(size=(1, 12, 7))
    shared = noise(alike, np.full(12, 1e-6), np.ones((12, 1)))
    alone = noise(alike, np.full(12, 1e-6), np.eye(12))
    assert shared.scale.std() < 0.6 * alone.scale.std()
    assert (shared.freedom > alone.freedom).all()
    unlike = alike * 10.0 ** (np.arange(-6, 6) / 2)[:, None]
    assert noise(unlike, np.full(12, 1e-9), np.ones((12, 1))).scale[0, 1:] == pytest.approx(
        noise(unlike, np.full(12, 1e-9), np.eye(12)).scale[0, 1:], rel=0.1)


@pytest.mark.parametrize("freedom", [3.0, 6.0, 20.0, 200.0])
def test_scores_are_as_unusual_as_students_t(freedom: float) -> None:
    t = stats.t.isf(np.array([0.3, 0.05, 1e-3, 1e-5]), freedom)
    assert normal_score(t, np.array(freedom)) == pytest.approx(stats.norm.isf([0.3, 0.05, 1e-3, 1e-5]), rel=0.035)
    assert students_t(normal_score(t, np.array(freedom)), np.array(freedom)) == pytest.approx(t)
    assert (normal_score(-t, np.array(freedom)) == -normal_score(t, np.array(freedom))).all()


def test_the_limit_of_normal_scores_comes_close_to_the_normal_quantile_and_heavy_tails_raise_it() -> None:
    rng = np.random.default_rng(1)
    probability = np.array([[1e-4]])
    normal, heavy = (Tail.unseen((1, 1)).with_scores(scores[None], np.ones((20_000, 1))).limit(probability).item()
                     for scores in (rng.normal(size=20_000), rng.standard_t(4, size=20_000)))
    assert stats.norm.isf(1e-4) <= normal < 4.1
    assert heavy == pytest.approx(stats.t.isf(1e-4, 4), rel=0.3)
    assert Tail.unseen((1, 1)).limit(probability).item() > normal


@pytest.mark.parametrize("step", [0.25, 0.5, 1.0])
def test_quiet_sums_pass_their_limit_as_rarely_as_asked(step: float) -> None:
    rng = np.random.default_rng(2)
    limit = scores.limit(np.array(step), np.array(50.0))
    total, waited, length = np.zeros(2000), np.zeros(2000), np.zeros(2000)
    for night in range(1, 500):
        total = np.maximum(total + rng.normal(size=2000) - step, 0)
        length = np.where((total >= limit) & (waited == 0), night, length)
        waited = np.maximum(waited, total >= limit)
    assert np.where(waited > 0, length, 500).mean() == pytest.approx(50, rel=0.12)


def test_a_cell_that_is_missing_does_not_move_the_mean_of_all_cells() -> None:
    past = np.exp(np.random.default_rng(3).normal(size=(12, 3)) * 0.001) * [1.0, 10.0, 100.0]
    past[5, 2] = np.nan
    found = all_cells(past, np.array([1.0, np.nan, 100.0]), [TIME] * 3, Tolerance(smallest_change={"epoch_time": 0.02}))
    assert [one.name for one in found.measures] == ["epoch_time of all cells"]
    assert (found.measures[0].smallest_change, found.of) == (0.02, [TIME])
    assert np.append(found.past, found.tonight) == pytest.approx(np.full(13, 10.0), rel=0.005)
    nobody = all_cells(past[:, :1], past[0, :1], [TIME], Tolerance())
    assert (nobody.past.shape, nobody.tonight.shape, nobody.measures) == ((12, 0), (0,), [])


def test_a_little_slower_everywhere_is_found_in_the_mean_of_all_cells_first() -> None:
    rng = np.random.default_rng(4)
    nights = 10 * np.exp(0.03 * rng.normal(size=(31, 12)))
    nights[30] *= 1.08
    together = all_cells(nights[:30], nights[30], [TIME] * 12, Tolerance())
    found = judge(np.hstack([nights[:30], together.past]), np.append(nights[30], together.tonight),
                  [TIME] * 12 + together.measures, Tolerance())
    assert [one.verdict for one in found].count("regression") <= 3
    assert found[-1].verdict == "regression"


def quiet_noise(kind: str, rng: np.random.Generator) -> Floats:
    """(nights, histories, streams), 60 nights of 40 histories of six cells; half of the variance is common to cells.
    alike: autocorrelation 0.6. clusters: one night in 20 begins three on average with three slower measures."""
    common, own = (rng.normal(size=(60, 40, len(MEASURES) * share)) for share in (1, 6))
    normal = common.repeat(6, axis=2) + own
    if kind == "alike":
        for night in range(1, 60):
            normal[night] = 0.6 * normal[night - 1] + 0.8 * normal[night]
    if kind == "clusters":
        slow = np.zeros(40)
        is_slowed = np.repeat([measure.name in ("step_time", "epoch_time", "pair_rate") for measure in MEASURES], 6)
        for night in range(60):
            chance = rng.random(40)
            slow = np.where(slow > 0, slow * (chance < 2 / 3), (chance < 1 / 20) * rng.uniform(2, 5, size=40))
            normal[night] += slow[:, None] * is_slowed
    return normal


@pytest.mark.parametrize("kind", ["white", "alike", "clusters"])
def test_the_promise_holds_over_a_whole_report(kind: str) -> None:
    measures = [measure for measure in MEASURES for _ in range(6)]
    measures += [replace(measure, name=of_all_cells(measure.name)) for measure in MEASURES]
    streams = Streams.of(measures, [Tolerance().change_that_matters(measure) for measure in measures])
    watch = Watch(streams, 40, false_alarms=1 / 30, baseline_nights=7)
    before, alarms = np.zeros((40, len(measures))), 0
    for normal in quiet_noise(kind, np.random.default_rng(5)):
        means = normal.reshape(40, len(MEASURES), 6).mean(axis=2)
        side = watch.night(streams.smallest * 0.6 * np.hstack([normal, means])).side
        alarms += ((side > 0) & (before <= 0)).any(axis=1).sum()
        before = side
    assert alarms <= 40 * 53 / 30


@pytest.mark.parametrize("alike", [0.0, 0.4, 0.7])
def test_autocorrelation_is_that_of_a_plain_loop_and_grows_with_the_true_one(alike: float) -> None:
    rng = np.random.default_rng(7)
    away = rng.normal(size=(1, 3, 200))
    for night in range(1, 200):
        away[..., night] = alike * away[..., night - 1] + math.sqrt(1 - alike**2) * away[..., night]
    away[0, 1, 50] = np.nan
    pairs = [(one, other) for stream in away[0] for one, other in pairwise(stream) if one == one and other == other]
    known = [value for value in away.ravel() if not math.isnan(value)]
    seen = statistics.mean(one * other for one, other in pairs) / statistics.mean(value**2 for value in known)
    count = len(pairs) / 3
    expected = (count * seen + 1) / (count - 3) * count / (count + IMAGINED_NIGHTS) - DOUBT / math.sqrt(count)
    assert autocorrelation(away, np.ones((3, 1))) == pytest.approx(max(expected, 0.0))
    assert max(expected, 0.0) == pytest.approx(alike, abs=0.12)


def test_what_is_told_of_all_cells_is_not_told_again_of_cells_that_drift_with_it() -> None:
    rng = np.random.default_rng(8)
    nights = 10 * np.exp(0.02 * rng.normal(size=(34, 6)))
    nights[28:] *= 1.06
    told: list[int] = []
    for night in range(28, 34):
        together = all_cells(nights[:night], nights[night], [TIME] * 6, Tolerance())
        found = judge(np.hstack([nights[:night], together.past]), np.append(nights[night], together.tonight),
                      [TIME] * 6 + together.measures, Tolerance())
        told.append([one.verdict for one in found[:6]].count("regression"))
    assert found[-1].verdict == "regression"
    assert max(told) <= 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"false_alarm_nights": 1}, "false_alarm_nights: got 1, need"), ({"baseline_nights": 1}, "baseline_nights: got 1"),
     ({"smallest_change": {"epoch_time": 0.0}}, "smallest_change.epoch_time: got 0.0"),
     ({"false_alarm_nights": float("nan")}, "false_alarm_nights: got nan")],
)
def test_a_tolerance_that_cannot_be_kept_is_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Tolerance(**settings)  # type: ignore[arg-type]
