"""Stopping by prediction: the fit is plain least squares, slow starters are not ruled out, errors of the past count."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vsetune.config.study.study_spec import SchedulerSpec
from vsetune.search.stopping.predicted import MIDDLE, SHAPES, USUAL_NOISE, WIDTH, ChanceToWin, CurveFit, shapes_at
from vsetune.search.stopping.rules import stopping_rule

EPOCHS = 27
EVEN = np.full(SHAPES, -math.log(SHAPES))
Recalls = list[float]


def rule(**settings: object) -> ChanceToWin:
    plain = {"kind": "predicted", "grace_epochs": 1, **settings}
    made = stopping_rule(SchedulerSpec.model_validate(plain), epochs=EPOCHS)
    assert isinstance(made, ChanceToWin)
    return made


def rising(end: float, pace: float, *, seed: int, noise: float = 0.5) -> Recalls:
    """From 2 to `end`, two thirds of it after `pace` of the training, one validation an epoch."""
    share = np.arange(1, EPOCHS + 1) / EPOCHS
    level = 2 + (end - 2) * -np.expm1(-share / pace) / -math.expm1(-1 / pace)
    return [float(each) for each in level + np.random.default_rng(seed).normal(0, noise, EPOCHS)]


def straight(end: float, *, seed: int) -> Recalls:
    return rising(end, 50.0, seed=seed)


def train(made: ChanceToWin, name: str, recalls: Recalls) -> str:
    """What is said when it is stopped; empty where it comes to its end."""
    return next((why for n, recall in enumerate(recalls) if (why := made.note(name, n + 1.0, recall))), "")


def fast_cell(made: ChanceToWin, *ends: float) -> None:
    """Whole trials that rise at once."""
    for n, end in enumerate(ends or (50, 55, 52, 58, 54, 57)):
        made.replay(f"f{n}", list(enumerate(rising(end, 0.12, seed=n), start=1)))


@pytest.mark.parametrize("count", [1, 2, 9])
def test_the_fit_of_every_shape_is_plain_least_squares_with_a_prior(count: int) -> None:
    recalls, noise, fit = rising(50, 0.3, seed=1)[:count], 0.7, CurveFit()
    for n, recall in enumerate(recalls):
        fit.add((n + 1) / EPOCHS, recall)
    ends = fit.ends(noise, EVEN)
    shapes = np.array([shapes_at((n + 1) / EPOCHS) for n in range(count)])
    logs = []
    for k in range(SHAPES):
        rows = np.stack([1 - shapes[:, k], shapes[:, k]], axis=1)
        precision = rows.T @ rows / noise**2 + np.eye(2) / WIDTH**2
        values = np.array(recalls) - MIDDLE
        best = np.linalg.solve(precision, rows.T @ values / noise**2)
        assert ends.means[k] == pytest.approx(best[1] + MIDDLE, rel=1e-6)
        assert ends.variances[k] == pytest.approx(np.linalg.inv(precision)[1, 1], rel=1e-6)
        spread = noise**2 * np.eye(count) + WIDTH**2 * rows @ rows.T
        logs.append(-0.5 * (np.linalg.slogdet(spread)[1] + values @ np.linalg.solve(spread, values)))
    weights = np.exp(np.array(logs) - max(logs))
    assert ends.weights == pytest.approx(weights / weights.sum(), rel=1e-5, abs=1e-9)


def test_all_shapes_rise_from_nothing_to_all_and_some_set_out_slowly() -> None:
    shapes = np.array([shapes_at(share) for share in np.linspace(0, 1, 50)])
    assert shapes[0] == pytest.approx(0)
    assert shapes[-1] == pytest.approx(1)
    assert (np.diff(shapes, axis=0) >= 0).all()
    assert (shapes[10] < 10 / 49).any()


@pytest.mark.parametrize(("end", "pace"), [(58, 0.12), (40, 0.25), (30, 0.6)])
def test_half_a_curve_tells_about_where_it_ends(end: float, pace: float) -> None:
    made = rule()
    for n, recall in enumerate(rising(end, pace, seed=3)[:16]):
        made.note("new", n + 1.0, recall)
    assert made.prediction("new").mean == pytest.approx(end, abs=2.0)
    assert made.prediction("new").chance_above(end + 5, noise=1.0) < 0.05
    assert made.prediction("new").chance_above(end - 5, noise=1.0) > 0.95


def test_a_trial_that_levels_off_far_below_the_best_stops_soon_and_says_why() -> None:
    made = rule()
    fast_cell(made)
    why = train(made, "low", rising(35, 0.12, seed=9))
    assert len(made.courses["low"].epochs) < 10
    assert ", predicted to end at " in why
    assert why.endswith(" to beat the 59.0 of f3")


def test_one_that_may_be_the_best_goes_on_to_its_end() -> None:
    made = rule()
    fast_cell(made)
    assert [train(made, f"high {n}", rising(59, 0.12, seed=20 + n)) for n in range(5)] == [""] * 5


@pytest.mark.parametrize("seed", range(6))
def test_a_slow_starter_that_will_win_is_never_stopped_while_it_rises(seed: int) -> None:
    late = [61 * ((n + 1) / EPOCHS) ** 1.5 for n in range(EPOCHS)]
    for recalls in (straight(61, seed=seed), rising(61, 0.5, seed=seed), rising(61, 0.3, seed=seed), late):
        made = rule()
        fast_cell(made, *[50, 55, 52, 58, 54, 57] * 3)
        assert train(made, "slow", recalls) == ""


def test_where_curves_jump_late_predictions_before_the_jump_stop_nobody() -> None:
    """As when a learning rate drops: what was predicted before it was wrong, and that is remembered."""
    made, level = rule(), rule()
    jumps = [rising(40, 0.1, seed=n)[:15] + [recall + 15 for recall in rising(40, 0.1, seed=n)[15:]] for n in range(6)]
    for n, recalls in enumerate(jumps):
        made.replay(f"j{n}", list(enumerate(recalls, start=1)))
    fast_cell(level, *[55] * 6)
    low = rising(42, 0.1, seed=8)[:14]
    assert train(made, "new", low) == ""
    assert train(level, "new", low) != ""


def test_without_whole_trials_to_be_held_against_and_in_the_grace_nobody_is_stopped() -> None:
    few, graceful = rule(fewest_trials=4), rule(grace_epochs=20)
    fast_cell(few, 55, 55, 55)
    fast_cell(graceful, 55, 55, 55, 55)
    low = rising(20, 0.1, seed=5)
    assert train(few, "low", low) == ""
    assert train(graceful, "low", low).startswith("best 2")
    assert len(graceful.courses["low"].epochs) == 20


def test_trials_count_as_whole_though_rules_are_not_told_of_last_validations() -> None:
    made, told = rule(), rule()
    for n in range(6):
        curve = list(enumerate(rising(55, 0.12, seed=n), start=1))
        made.replay(f"f{n}", curve[:-1])
        told.replay(f"f{n}", curve)
    low = rising(35, 0.12, seed=9)
    assert train(made, "low", low).endswith(" to beat the 55.8 of f4")
    assert len(told.courses["f0"].epochs) == EPOCHS
    assert made.excess_at(5.0) == pytest.approx(told.excess_at(5.0))


def test_a_smaller_chance_stops_later_and_the_same_curves_the_same_way() -> None:
    said = []
    for chance in (0.2, 0.01, 0.01):
        made = rule(least_chance=chance)
        fast_cell(made)
        said.append((train(made, "low", rising(48, 0.15, seed=4)), len(made.courses["low"].epochs)))
    assert said[1] == said[2]
    assert said[0][1] < said[1][1]


def test_the_noise_of_a_cell_is_learnt_from_its_whole_trials() -> None:
    made = rule()
    assert made.noise == USUAL_NOISE
    for n in range(5):
        made.replay(f"t{n}", list(enumerate(rising(50, 0.12, seed=n, noise=2.0), start=1)))
    assert made.noise == pytest.approx(2.0, rel=0.4)


def test_no_chance_at_all_and_certainty_are_refused() -> None:
    for chance in (0.0, 1.0):
        with pytest.raises(ValueError, match=r"prediction: got least chance .* need one between 0 and 1"):
            ChanceToWin(grace_epochs=1, least_chance=chance, fewest_trials=4, epochs=9)
