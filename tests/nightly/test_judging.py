"""Bands of quiet nights: what lies outside, what is not judged, how often they are wrong and what they find."""

from __future__ import annotations

import numpy as np
import pytest
from nightly_band import false_alarms, found_within, noise, regressions

from vsetune.nightly.judging import Floats, Judgement, judge
from vsetune.nightly.night import BY_NAME, CHANGES, Measure
from vsetune.nightly.nightly_spec import Tolerances

RECALL, TIME, RATE, START, EPOCHS = (BY_NAME[name] for name in (
    "best_m_recall", "epoch_time", "pair_rate", "start_time", "epochs_to_target",
))
USUAL = Tolerances()
RARE = Tolerances(false_alarms="one in 3000 nights")


def quiet(measure: Measure, nights: int, *, spread: float = 0.01, seed: int = 0) -> Floats:
    """(nights, 1): around 40 points or 100 products, spread as a share."""
    centre = 40.0 if measure.scale == "linear" else 100.0
    return centre * np.exp(np.random.default_rng(seed).normal(0, spread, (nights, 1)))


def judged(past: Floats, tonight: Floats, measures: list[Measure], tolerances: Tolerances = USUAL) -> list[Judgement]:
    """Tonight's judgements, where every night before was judged as well."""
    alarmed = np.zeros(past.shape, np.bool_)
    for night in range(len(past)):
        before = judge(past[:night], past[night], measures, tolerances, alarmed[:night])
        alarmed[night] = [each.verdict in CHANGES for each in before]
    return judge(past, tonight, measures, tolerances, alarmed)


def last(past: Floats, tonight: float, measure: Measure, tolerances: Tolerances = USUAL) -> Judgement:
    (found,) = judged(past, np.array([tonight]), [measure], tolerances)
    return found


@pytest.mark.parametrize(("measure", "tonight", "verdict"), [
    (TIME, 101.0, "quiet"), (TIME, 150.0, "regression"), (TIME, 50.0, "improvement"), (RATE, 150.0, "improvement"),
    (RATE, 60.0, "regression"), (RECALL, 34.0, "regression"), (RECALL, 46.0, "improvement"), (RECALL, 39.5, "quiet"),
    (TIME, float("nan"), "missing"), (TIME, float("inf"), "missing"), (TIME, -1.0, "missing"),
    (TIME, 104.0, "quiet"),  # less than the smallest change that matters
])
def test_a_value_outside_the_band_is_a_change_towards_worse_or_better(measure, tonight, verdict) -> None:
    found = last(quiet(measure, 20), tonight, measure)
    assert found.verdict == verdict
    assert found.low is not None
    assert found.high is not None
    assert found.low < float(found.centre or 0) < found.high
    if verdict in ("regression", "improvement"):
        assert found.since == 20
        assert not found.low <= tonight <= found.high


def test_a_band_is_wider_after_few_nights_and_none_is_made_before_the_baseline() -> None:
    assert [last(quiet(TIME, nights), 100.0, TIME).verdict for nights in (0, 1, 6)] == ["baseline"] * 3
    few, many = (
        sum(float(found.high or 0) - float(found.low or 0) for found in (
            last(quiet(TIME, nights, spread=0.03, seed=seed), 100.0, TIME, RARE) for seed in range(10)
        )) for nights in (7, 50)
    )
    assert few > 1.5 * many


def test_two_nights_together_show_a_change_that_neither_shows_alone() -> None:
    past = quiet(TIME, 40, spread=0.03)
    high = float(last(past, 100.0, TIME, RARE).high or 0) - 0.5
    assert last(past, high, TIME, RARE).verdict == "quiet"
    both = last(np.vstack([past, [[high]]]), high, TIME, RARE)
    assert (both.verdict, both.since) == ("regression", 40)
    assert last(np.vstack([past, [[high]]]), 100.0, TIME, RARE).verdict == "quiet"


def test_a_change_is_reported_until_the_values_are_back_and_its_nights_make_no_band() -> None:
    past = np.vstack([quiet(TIME, 20), np.full((30, 1), 140.0)])
    assert (last(past, 140.0, TIME).verdict, last(past, 140.0, TIME).since) == ("regression", 20)
    assert last(past, 100.0, TIME).verdict == "quiet"
    assert float(last(past, 100.0, TIME).high or 0) < 110


def test_a_change_that_was_over_soon_widens_the_band_of_the_measure_in_every_cell() -> None:
    past = np.hstack([quiet(TIME, 30, seed=seed) for seed in range(2)])
    past[20, 0] = 115.0
    seen = judged(past, np.array([100.0, 114.0]), [TIME, TIME])
    assert [each.verdict for each in seen] == ["quiet", "quiet"]
    past[20, 0] = 300.0  # far beyond noise: half as much again is noticed all the same
    seen = judged(past, np.array([100.0, 160.0]), [TIME, TIME])
    assert [each.verdict for each in seen] == ["quiet", "regression"]


@pytest.mark.parametrize(("measure", "centre"), [(START, 0.3), (TIME, 100.0), (EPOCHS, 4.0)])
def test_a_band_that_could_not_notice_half_as_much_again_is_not_judged(measure, centre) -> None:
    past = centre * np.array([[0.4, 2.5, 1.0, 1.7] * 4]).T
    found = last(past, 1.53 * centre, measure)
    assert (found.verdict, found.low, found.high) == ("baseline", None, None)
    quiet_nights = np.full((40, 1), float(found.centre or 0.0))
    assert last(np.concatenate([past, quiet_nights]), quiet_nights[0, 0], measure).verdict == "quiet"
    assert last(past, 1e6 * centre, measure).verdict == "regression", "beyond any band it is a change all the same"


def test_equal_nights_make_a_band_of_the_smallest_change_that_matters() -> None:
    found = last(np.full((10, 1), 40.0), 40.0, RECALL)
    assert (found.low, found.high) == (39.0, 41.0)
    assert last(np.zeros((10, 1)), 0.0, BY_NAME["data_wait"]).verdict == "quiet"


@pytest.mark.parametrize("kind", ["white", "ar1"])
def test_quiet_nights_raise_at_most_one_false_alarm_in_30_over_all_measures(kind) -> None:
    often = false_alarms(regressions(noise(kind, 8, 100, 12, np.random.default_rng(3))))
    assert often.mean() <= 1 / 30


def test_half_as_much_again_is_found_the_first_night_and_a_drop_of_recall_in_all_cells_in_two_or_three() -> None:
    values = noise("white", 40, 44, 6, np.random.default_rng(4))
    assert found_within("epoch_time", float(np.log(1.5)), [0], values)[0] == 1.0
    assert found_within("best_m_recall", 3.0, range(6), values, deviations=True)[2] > 0.7
