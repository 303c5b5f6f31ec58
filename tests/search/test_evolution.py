"""Evolutionary samplers by hand: constants of the papers, steps that should change nothing, and spreads of children."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

from vsetune.search.sampling.evolution import (
    FIRST_SPREAD,
    _child,
    _crossed,
    _first,
    _moved,
    _mutated,
    _point,
    _Rates,
    _State,
    population_of,
    survivors,
)
from vsetune.search.sampling.sampler import UnitCube, Vector

PLANE = UnitCube({"margin": FloatDistribution(0.0, 1.0), "rate": FloatDistribution(0.0, 1.0)})


def state_of(width: int, **changes: object) -> _State:
    plain = _State(np.full(width, 0.5), 0.01, np.eye(width), np.zeros(width), np.zeros(width))
    return replace(plain, **changes)  # type: ignore[arg-type]


def all_at(step: Vector, state: _State, rates: _Rates) -> list[Vector]:
    """A generation whose members have all made the same step, in units of the spread."""
    return [state.mean + state.spread * step] * rates.size


@pytest.mark.parametrize(("width", "size", "parents", "mass", "first_percent"), [
    (2, 6, 3, 2.0, 64), (5, 8, 4, 2.6, 53), (10, 10, 5, 3.2, 46),
])
def test_generations_and_weights_are_those_that_the_paper_recommends(
    width: int, size: int, parents: int, mass: float, first_percent: int
) -> None:
    rates = _Rates.of(width)
    assert (rates.size, len(rates.weights), round(rates.mass, 1)) == (size, parents, mass)
    assert (round(100 * rates.weights[0]), rates.weights.sum()) == (first_percent, pytest.approx(1))
    assert (np.diff(rates.weights) < 0).all()


def test_rates_of_ten_coordinates_are_those_of_table_1_of_hansen() -> None:
    rates = _Rates.of(10)
    found = (rates.path, rates.spread, rates.one, rates.many, rates.damping)
    assert found == pytest.approx((0.2950, 0.2844, 0.01528, 0.02015, 1.2844), rel=2e-3)


@pytest.mark.parametrize("width", [1, 2, 5, 20])
def test_the_usual_length_is_that_of_a_gaussian_vector(width: int) -> None:
    exact = math.sqrt(2) * math.gamma((width + 1) / 2) / math.gamma(width / 2)
    assert _Rates.of(width).length == pytest.approx(exact, rel=2e-3)


def test_a_step_across_a_path_of_the_usual_length_keeps_its_length_and_the_spread() -> None:
    rates = _Rates.of(2)
    usual = np.array([rates.length, 0.0])
    state = state_of(2, generation=40, path=usual, spread_path=usual)
    moved = _moved(state, all_at(np.array([0.0, rates.length / math.sqrt(rates.mass)]), state, rates), rates)
    assert np.linalg.norm(moved.path) == pytest.approx(rates.length)
    assert np.linalg.norm(moved.spread_path) == pytest.approx(rates.length)
    assert moved.spread == pytest.approx(state.spread)
    assert moved.path[1] > 0 < moved.spread_path[1]


def test_the_path_of_the_spread_counts_steps_relative_to_the_shape() -> None:
    rates = _Rates.of(2)
    turned = np.array([[1.0, -1.0], [1.0, 1.0]]) / math.sqrt(2)
    long, short = turned.T
    state = state_of(2, shape=turned @ np.diag([9.0, 0.25]) @ turned.T)
    paths = [_moved(state, all_at(step, state, rates), rates).spread_path for step in (3 * long, 0.5 * short)]
    unit = math.sqrt(rates.spread * (2 - rates.spread) * rates.mass)
    assert paths[0] == pytest.approx(unit * long)
    assert paths[1] == pytest.approx(unit * short)


@pytest.mark.parametrize("is_stalled", [False, True])
def test_generations_without_selection_keep_the_shape_on_average(is_stalled: bool) -> None:
    rates, random = _Rates.of(2), np.random.default_rng(0)
    shapes = []
    for _ in range(3000):
        state = state_of(
            2, generation=40, path=random.normal(size=2), spread_path=np.array([9.0 * is_stalled, 0.0])
        )
        steps = random.normal(size=(rates.size, 2))
        shapes.append(_moved(state, list(state.mean + state.spread * steps), rates).shape)
    assert np.mean(shapes, axis=0) == pytest.approx(np.eye(2), abs=0.02)


@pytest.mark.parametrize(("longer", "is_steady"), [(1.85, True), (1.95, False)])
def test_steps_much_longer_than_chance_makes_them_stall_the_path_from_the_first_generation_on(
    longer: float, is_steady: bool
) -> None:
    """Steps across each other, as long as those of chance times `longer`; the bound for 3 coordinates is 1.9."""
    rates = _Rates.of(3)
    state = state_of(3)
    for place in range(3):
        step = longer * rates.length / math.sqrt(rates.mass) * np.eye(3)[place]
        state = replace(_moved(state, all_at(step, state, rates), rates), spread=0.01, shape=np.eye(3))
        assert (state.path[place] > 0) == is_steady
        assert state.generation == place + 1


def test_the_spread_grows_with_steps_in_one_direction_and_shrinks_without_any() -> None:
    rates = _Rates.of(2)
    still = _moved(state_of(2), all_at(np.zeros(2), state_of(2), rates), rates)
    assert still.spread == pytest.approx(0.01 * math.exp(-rates.spread / rates.damping))
    for spread, bound in ((0.01, 0.01 * math.e), (0.9, 1.0)):
        far = state_of(2, spread=spread, generation=40, spread_path=np.array([99.0, 0.0]))
        assert _moved(far, all_at(np.zeros(2), far, rates), rates).spread == pytest.approx(bound)


def test_few_useful_trials_share_the_weight_and_the_better_have_more_of_it() -> None:
    rates, state = _Rates.of(2), state_of(2)
    one = _moved(state, [np.array([0.52, 0.5])], rates)
    assert one.mean == pytest.approx([0.52, 0.5])
    two = _moved(state, [np.array([0.52, 0.5]), np.array([0.5, 0.52])], rates)
    assert two.mean.sum() == pytest.approx(1.02)
    assert 0.51 < two.mean[0] < 0.52


def test_the_first_generation_is_around_the_best_of_the_start() -> None:
    assert _first([np.array([0.7, 0.1]), np.array([0.2, 0.2])], PLANE).mean.tolist() == [0.7, 0.1]
    nothing_known = _first([], PLANE)
    assert (nothing_known.mean.tolist(), nothing_known.spread) == ([0.5, 0.5], FIRST_SPREAD)
    assert nothing_known.shape.tolist() == [[1.0, 0.0], [0.0, 1.0]]


@pytest.mark.parametrize(("shape", "spread_of_steps"), [(0.01, 0.075), (0.5625, 0.075), (4.0, 0.12)])
def test_points_spread_as_the_shape_says_but_a_whole_number_by_no_less_than_a_third_of_a_step(
    shape: float, spread_of_steps: float
) -> None:
    """Of 4 whole numbers a step is 0.25 of the range, and 0.3 of it 0.075."""
    cube = UnitCube({"f": IntDistribution(1, 4), "margin": FloatDistribution(0.0, 1.0)})
    random = np.random.default_rng(0)
    state = state_of(2, spread=0.06, shape=np.diag([shape, shape]))
    points = np.array([_point(state, cube, random) for _ in range(2000)])
    assert points.mean(axis=0) == pytest.approx([0.5, 0.5], abs=0.02)
    assert points.std(axis=0) == pytest.approx([spread_of_steps, 0.06 * math.sqrt(shape)], rel=0.06)


def test_points_spread_along_the_directions_of_the_shape() -> None:
    shape = np.array([[1.0, 0.8], [0.8, 1.0]])
    random = np.random.default_rng(0)
    points = np.array([_point(state_of(2, spread=0.05, shape=shape), PLANE, random) for _ in range(2000)])
    assert np.cov(points.T) == pytest.approx(0.05**2 * shape, rel=0.1)


def test_points_beyond_a_range_are_drawn_again_and_do_not_heap_up_at_its_end() -> None:
    random = np.random.default_rng(0)
    points = np.array([
        _point(state_of(2, mean=np.array([0.98, 0.02]), spread=0.1), PLANE, random) for _ in range(300)
    ])
    assert ((points > 0) & (points < 1)).all()


def test_every_setting_is_mutated_equally_often_one_a_child() -> None:
    cube, random = UnitCube({
        "a": FloatDistribution(0.0, 1.0), "b": CategoricalDistribution(["x", "y", "z"]),
        "c": FloatDistribution(0.0, 1.0), "d": FloatDistribution(0.0, 1.0),
    }), np.random.default_rng(0)
    parent = cube.vector_of({"a": 0.5, "b": "y", "c": 0.5, "d": 0.5})
    children = np.array([_child([parent, parent], cube, random) for _ in range(2000)])
    changed = [(children[:, block] != parent[block]).any(axis=1).mean() for block in cube.blocks]
    assert changed == pytest.approx([0.25] * 4, abs=0.03)


def test_a_quarter_of_settings_comes_from_the_worse_of_two_parents_and_an_eighth_of_children_mix_them() -> None:
    """A tournament of two picks the better in 3 of 4 cases, so the parents differ in 3 of 8. Of those children 0.9 are
    crossed; each setting then changes sides with probability 1/4, and exactly one of two does with 3/8."""
    random, parents = np.random.default_rng(0), [np.array([0.2, 0.2]), np.array([0.8, 0.8])]
    children = np.array([_child(parents, PLANE, random) for _ in range(4000)])
    is_worse = children > 0.5
    assert is_worse.mean() == pytest.approx(1 / 4, abs=0.02)
    assert (is_worse[:, 0] != is_worse[:, 1]).mean() == pytest.approx(0.9 * 3 / 8 * 3 / 8, abs=0.01)


def test_half_of_crossed_children_are_about_as_far_apart_as_their_parents_and_half_lie_between_them() -> None:
    """Index 15: the ratio of the distances has its quartiles at (1/2) ** (1/16) and 2 ** (1/16)."""
    random = np.random.default_rng(0)
    children = np.array([_crossed(0.2, 0.8, random) for _ in range(40_000)])
    ratio = np.abs(children - 0.5) / 0.3
    assert np.quantile(ratio, [0.25, 0.5, 0.75]) == pytest.approx([0.5 ** (1 / 16), 1.0, 2 ** (1 / 16)], abs=0.0015)
    assert children.mean() == pytest.approx(0.5, abs=0.005)


def test_mutations_are_small_and_as_often_up_as_down() -> None:
    random = np.random.default_rng(0)
    moves = np.array([_mutated(0.4, random) for _ in range(40_000)]) - 0.4
    quarter = 1 - 0.5 ** (1 / 16)
    assert np.quantile(moves, [0.25, 0.5, 0.75]) == pytest.approx([-quarter, 0.0, quarter], abs=0.0015)


def test_a_budget_gives_several_generations() -> None:
    assert [population_of(budget) for budget in (1, 20, 24, 25, 60, 100, 900)] == [4, 4, 4, 5, 12, 20, 20]


def test_trials_without_a_value_are_parents_only_where_nothing_else_has_ended() -> None:
    failed = create_trial(state=TrialState.PRUNED, user_attrs={"at": 0})
    stopped = create_trial(state=TrialState.PRUNED, intermediate_values={1: 30.0, 2: 20.0}, user_attrs={"at": 1})
    finished = create_trial(value=25.0, state=TrialState.COMPLETE, user_attrs={"at": 2})
    assert [trial.user_attrs["at"] for trial in survivors([failed, finished, stopped], 3)] == [1, 2]
    assert [trial.user_attrs["at"] for trial in survivors([failed, failed], 1)] == [0]
