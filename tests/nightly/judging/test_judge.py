"""What is told of a night, and what is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from vsetune.nightly.judging.judge import Judgement, judge, judgements
from vsetune.nightly.judging.noise import Floats, Streams
from vsetune.nightly.judging.scores import Tolerance
from vsetune.nightly.judging.watch import Watch
from vsetune.nightly.night import BY_NAME, Measure

RECALL, TIME, RATE, MEMORY, START, EPOCHS = (BY_NAME[name] for name in (
    "best_m_recall", "epoch_time", "pair_rate", "peak_memory", "start_time", "epochs_to_target",
))
TOLERANCE = Tolerance()


def quiet_nights(measures: list[Measure], nights: int, *, seed: int = 0, noise: float = 0.02) -> Floats:
    """(nights, streams): ratios around 100 with this relative noise, linear ones around 50 with half a point."""
    normal = np.random.default_rng(seed).normal(size=(nights, len(measures)))
    ratio = np.array([measure.scale == "ratio" for measure in measures])
    return np.where(ratio, 100 * np.exp(noise * normal), 50 + 0.5 * normal)


def verdicts(found: list[Judgement]) -> list[str]:
    return [one.verdict for one in found]


def test_a_night_like_the_others_is_quiet_and_inside_its_band() -> None:
    measures = [RECALL, TIME, RATE]
    nights = quiet_nights(measures, 20)
    for found, value in zip(judge(nights, np.median(nights, axis=0), measures, TOLERANCE), (50, 100, 100), strict=True):
        assert (found.verdict, found.found_by, found.since) == ("quiet", "", None)
        assert found.low is not None
        assert found.high is not None
        assert found.centre is not None
        assert found.low < found.centre < found.high
        assert found.centre == pytest.approx(value, rel=0.02)


@pytest.mark.parametrize(
    ("measure", "factor", "verdict"),
    [(TIME, 1.2, "regression"), (TIME, 0.8, "improvement"), (RATE, 0.8, "regression"), (RATE, 1.25, "improvement"),
     (RECALL, 0.9, "regression"), (RECALL, 1.1, "improvement")],
)
def test_a_large_change_is_told_the_first_night_in_its_direction(measure: Measure, factor: float, verdict: str) -> None:
    nights = quiet_nights([measure] * 4, 20)
    tonight = np.median(nights, axis=0)
    tonight[1] *= factor
    found = judge(nights, tonight, [measure] * 4, TOLERANCE)
    assert verdicts(found) == ["quiet", verdict, "quiet", "quiet"]
    assert (found[1].found_by, found[1].since) == ("band", 20)
    expected = factor - 1 if measure.scale == "ratio" else 50 * (factor - 1)
    assert found[1].change == pytest.approx(expected, rel=0.15)
    assert found[1].score is not None
    assert (found[1].score > 0) == (verdict == "regression")


def test_a_small_change_that_stays_is_found_by_its_sum_and_says_since_when() -> None:
    measures = [TIME] * 4
    nights = quiet_nights(measures, 40, seed=1)
    nights[30:, 2] *= 1.05
    told = [judge(nights[:night], nights[night], measures, TOLERANCE)[2] for night in range(30, 40)]
    first = next(one for one in told if one.verdict == "regression")
    assert first.found_by == "drift"
    assert first.since is not None
    assert 27 <= first.since <= 32
    assert first.change == pytest.approx(0.05, abs=0.03)
    assert told.index(first) < 7


def test_a_change_smaller_than_what_matters_is_quiet_however_clear() -> None:
    nights = quiet_nights([TIME] * 3, 60, noise=0.0005)
    nights[30:] *= 1.02
    for night in (30, 40, 59):
        assert verdicts(judge(nights[:night], nights[night], [TIME] * 3, TOLERANCE)) == ["quiet"] * 3
    narrow = Tolerance(smallest_change={"epoch_time": 0.01})
    assert verdicts(judge(nights[:30], nights[30], [TIME] * 3, narrow)) == ["regression"] * 3


def test_a_history_without_noise_alarms_only_on_what_matters() -> None:
    nights = np.full((10, 2), 64.0)
    assert verdicts(judge(nights, np.array([64.0, 63.5]), [RECALL] * 2, TOLERANCE)) == ["quiet", "quiet"]
    assert verdicts(judge(nights, np.array([64.0, 62.5]), [RECALL] * 2, TOLERANCE)) == ["quiet", "regression"]
    assert judge(nights, np.array([64.0, 64.0]), [RECALL] * 2, TOLERANCE)[0].score == 0


def test_a_change_goes_on_being_told_until_it_is_repaired() -> None:
    nights = quiet_nights([TIME] * 3, 40)
    nights[20:30, 0] *= 1.25
    told = [judge(nights[:night], nights[night], [TIME] * 3, TOLERANCE)[0] for night in range(18, 40)]
    assert verdicts(told) == ["quiet"] * 2 + ["regression"] * 10 + ["quiet"] * 10
    assert {one.since for one in told[2:12]} == {20}
    assert told[11].change == pytest.approx(0.25, abs=0.03)
    assert told[-1].centre == pytest.approx(100, rel=0.03)


def test_nights_that_were_alarmed_do_not_teach() -> None:
    nights = quiet_nights([TIME] * 2, 30)
    nights[15:, 0] *= 1.15
    alarmed = np.zeros(nights.shape, dtype=np.bool_)
    alarmed[15:, 0] = True
    found = judge(nights, np.array([115.0, 100.0]), [TIME] * 2, TOLERANCE, alarmed=alarmed)
    assert verdicts(found) == ["regression", "quiet"]
    assert found[0].centre == pytest.approx(100, rel=0.02)
    assert found[0].since == 15
    assert verdicts(judge(nights, np.array([100.0, 100.0]), [TIME] * 2, TOLERANCE, alarmed=alarmed)) == ["quiet"] * 2


def test_what_was_told_and_what_is_found_anew_are_one() -> None:
    nights = quiet_nights([TIME, RECALL, RATE] * 2, 40, seed=3)
    nights[20:, 0] *= 1.2
    nights[25:29, 1] -= 6
    alarmed = np.array([
        [one.verdict in ("regression", "improvement") for one in judge(nights[:night], nights[night],
                                                                       [TIME, RECALL, RATE] * 2, TOLERANCE)]
        for night in range(39)
    ])
    assert judge(nights[:39], nights[39], [TIME, RECALL, RATE] * 2, TOLERANCE, alarmed=alarmed) == judge(
        nights[:39], nights[39], [TIME, RECALL, RATE] * 2, TOLERANCE)


def test_one_night_that_was_noise_does_not_change_the_centre_but_makes_us_slower_to_cry() -> None:
    nights = quiet_nights([TIME] * 3, 30)
    spiked = nights.copy()
    spiked[15, 0] *= 1.6
    calm, wary = (judge(each, nights[-1], [TIME] * 3, TOLERANCE)[0] for each in (nights, spiked))
    assert calm.centre == pytest.approx(wary.centre, rel=0.01)
    assert calm.high is not None
    assert wary.high is not None
    assert wary.high > calm.high


def test_before_the_baseline_is_built_nothing_is_judged() -> None:
    nights = quiet_nights([TIME] * 2, 7)
    nights[3, 1] = np.nan
    found = judge(nights[:6], np.array([500.0, np.nan]), [TIME] * 2, TOLERANCE)
    assert verdicts(found) == ["baseline", "missing"]
    assert found[0] == Judgement("baseline", None, None, None, None, None, "", None)
    assert verdicts(judge(nights, nights[0] * 3, [TIME] * 2, TOLERANCE)) == ["regression", "baseline"]


@pytest.mark.parametrize(("measure", "centre"), [(START, 0.3), (TIME, 100.0), (EPOCHS, 4.0)])
def test_a_band_that_could_not_notice_half_as_much_again_is_not_judged_and_says_what_it_takes(
    measure: Measure, centre: float
) -> None:
    """Sixteen nights of which every other is several times as much as the one before."""
    past = centre * np.array([[0.4, 2.5, 1.0, 1.7] * 4]).T
    (found,) = judge(past, np.array([1.53 * centre]), [measure], TOLERANCE)
    assert (found.verdict, found.low, found.high) == ("baseline", None, None)
    assert found.quiet_nights is not None
    assert found.quiet_nights > 0
    quiet = np.full((found.quiet_nights + 10, 1), float(found.centre or 0.0))
    (then,) = judge(np.concatenate([past, quiet]), quiet[0], [measure], TOLERANCE)
    assert (then.verdict, then.quiet_nights) == ("quiet", None)
    assert then.high is not None
    assert then.high <= 1.5 * (then.centre or 0.0) * (1 + 1e-6) or measure.smallest_change >= 0.5 * centre


@pytest.mark.parametrize("count", [0, 1, 2])
def test_fewer_nights_than_tell_any_noise_are_no_trouble(count: int) -> None:
    nights = quiet_nights([TIME], count)
    (found,) = judge(nights, np.array([100.0]), [TIME], Tolerance(baseline_nights=2))
    assert (found.verdict, found.low, found.high) == ("baseline", None, None)
    assert (found.centre is None) == (count < 2)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.0, -3.0, 1e200])
def test_what_is_no_value_is_missing_and_teaches_nothing(value: float) -> None:
    nights = quiet_nights([TIME] * 3, 21)
    nights[12, 0] = value
    found = judge(nights[:20], np.array([100.0, value, 100.0]), [TIME] * 3, TOLERANCE)
    assert verdicts(found) == ["quiet", "missing", "quiet"]
    assert (found[1].change, found[1].score) == (None, None)
    assert found[1].centre == pytest.approx(100, rel=0.05)
    nights[12, 0] = np.nan
    assert judge(nights[:20], np.array([100.0, np.nan, 100.0]), [TIME] * 3, TOLERANCE) == found


def test_a_missing_night_does_not_end_a_regression() -> None:
    nights = quiet_nights([TIME] * 2, 24)
    nights[20:, 0] *= 1.3
    nights[21, 0] = np.nan
    told = [judge(nights[:night], nights[night], [TIME] * 2, TOLERANCE)[0] for night in range(20, 24)]
    assert verdicts(told) == ["regression", "missing", "regression", "regression"]
    assert told[-1].since == 20


def test_a_measure_without_any_value_is_missing_and_does_not_disturb_the_others() -> None:
    nights = quiet_nights([TIME, RECALL], 20)
    empty = np.column_stack([nights, np.full(20, np.nan)])
    found = judge(empty[:19], empty[19], [TIME, RECALL, MEMORY], TOLERANCE)
    assert verdicts(found)[2] == "missing"
    assert found[:2] == judge(nights[:19], nights[19], [TIME, RECALL], TOLERANCE)


@pytest.mark.parametrize("size", [1e-90, 1e-12, 1e12, 1e90])
def test_huge_and_tiny_values_are_judged(size: float) -> None:
    nights = quiet_nights([TIME] * 3, 20) * size
    found = judge(nights, np.array([100.0, 130.0, 75.0]) * size, [TIME] * 3, TOLERANCE)
    assert verdicts(found) == ["quiet", "regression", "improvement"]


def test_the_unit_of_a_ratio_does_not_matter() -> None:
    nights = quiet_nights([TIME, RATE], 25)
    nights[20:] *= [1.12, 0.9]
    plain = judge(nights[:-1], nights[-1], [TIME, RATE], TOLERANCE)
    scaled = judge(nights[:-1] * 1024, nights[-1] * 1024, [TIME, RATE], TOLERANCE)
    for one, other in zip(plain, scaled, strict=True):
        assert (one.verdict, one.since, one.found_by) == (other.verdict, other.since, other.found_by)
        assert one.change == pytest.approx(other.change)
        assert one.centre is not None
        assert other.centre == pytest.approx(1024 * one.centre)


def test_the_order_of_streams_does_not_matter() -> None:
    measures = [TIME, RECALL, TIME, RATE, RECALL, TIME]
    nights = quiet_nights(measures, 30)
    nights[22:, 2] *= 1.1
    order = np.random.default_rng(5).permutation(6)
    found = judge(nights[:-1], nights[-1], measures, TOLERANCE)
    permuted = judge(nights[:-1, order], nights[-1, order], [measures[one] for one in order], TOLERANCE)
    for place, one in enumerate(order):
        assert permuted[place].verdict == found[one].verdict
        assert permuted[place].high == pytest.approx(found[one].high)


def test_more_streams_make_each_band_wider() -> None:
    nights = quiet_nights([TIME] * 40, 20)
    few, many = (judge(nights[:, :count], nights[0, :count], [replace(TIME, name=str(one)) for one in range(count)],
                       TOLERANCE)[0] for count in (1, 40))
    assert few.high is not None
    assert many.high is not None
    assert few.high < many.high


def test_histories_judged_at_once_are_judged_as_one_by_one() -> None:
    measures = [TIME, RECALL, TIME, RATE, TIME]
    streams = Streams.of(measures, [TOLERANCE.change_that_matters(measure) for measure in measures])
    nights = np.stack([quiet_nights(measures, 26, seed=seed) for seed in range(5)])
    nights[1, 20:, 0] *= 1.06
    nights[2, 20:23, 1] -= 5
    nights[3, 15:22, 3] *= 0.7
    nights[4, 5:18, 4] = np.nan
    watch = Watch(streams, 5, false_alarms=1 / 30, baseline_nights=7)
    for night in range(26):
        seen = watch.night(streams.judged(nights[:, night]))
        for history in range(5):
            alone = judge(nights[history, :night], nights[history, night], measures, TOLERANCE)
            assert judgements(seen, streams, history) == alone


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"got past \(5, 2\)"):
        judge(np.ones((5, 2)), np.ones(2), [TIME], TOLERANCE)
    with pytest.raises(ValueError, match=r"got alarmed \(4, 1\)"):
        judge(np.ones((5, 1)), np.ones(1), [TIME], TOLERANCE, alarmed=np.zeros((4, 1), dtype=np.bool_))
    assert judge(np.empty((5, 0)), np.empty(0), [], TOLERANCE) == []


def test_a_night_ten_times_slower_is_told_whatever_another_measure_has_taught() -> None:
    """Epochs that jump between two values have a heavy tail; the band of times must not grow without end from it."""
    drawn = np.random.default_rng(3)
    times = np.exp(0.08 * drawn.normal(size=(12, 15)))
    past = np.column_stack([times, np.where(drawn.random((12, 60)) < 0.1, 1.0, 2.0)])
    measures = [BY_NAME["epoch_time"]] * 15 + [BY_NAME["epochs_to_target"]] * 60
    tonight = past[-1].copy()
    tonight[0] = 10.0
    assert judge(past, tonight, measures, Tolerance())[0].verdict == "regression"
