"""Grids by hand: how many values each setting gets, which ones, and in which order points are visited."""

from __future__ import annotations

import itertools

import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from tiny_studies import tiny_cell

from vsetune.search.sampling.grid import _point, _strides, axes_of, points_of, uncovered
from vsetune.search.sampling.sampler import SearchedSpace, distributions_of

UNIT = FloatDistribution(0.0, 1.0)


def sizes(space: dict[str, BaseDistribution], most: int) -> dict[str, int]:
    return {name: len(axis) for name, axis in axes_of(space, most).items()}


def space_of(budget: int, *, given: int = 0) -> SearchedSpace:
    """margin has 3 choices, the learning rate a range: at least 6 points."""
    _, cell = tiny_cell(
        "lmh", {"margin": {"choices": [0.1, 0.2, 0.3]}}, training={"learning_rate": "default"}, sampler="grid",
    )
    return SearchedSpace(cell, distributions_of(cell), cell.all_defaults(), "0/test", "0/test", budget, given)


@pytest.mark.parametrize(("most", "expected"), [
    (1, {"a": 2, "b": 2}), (4, {"a": 2, "b": 2}), (5, {"a": 2, "b": 2}), (6, {"a": 3, "b": 2}),
    (8, {"a": 4, "b": 2}), (9, {"a": 3, "b": 3}), (12, {"a": 4, "b": 3}), (16, {"a": 4, "b": 4}),
])
def test_ranges_grow_in_turns_and_one_goes_on_where_the_other_no_longer_fits(
    most: int, expected: dict[str, int]
) -> None:
    assert sizes({"b": UNIT, "a": UNIT}, most) == expected


def test_all_choices_are_in_the_grid_and_only_ranges_grow() -> None:
    space = {"decay": CategoricalDistribution(["x", "y", "z"]), "fixed": FloatDistribution(0.2, 0.2), "margin": UNIT}
    assert sizes(space, 1) == {"decay": 3, "fixed": 1, "margin": 2}
    assert sizes(space, 14) == {"decay": 3, "fixed": 1, "margin": 4}
    assert axes_of(space, 14)["decay"] == ["x", "y", "z"]
    assert axes_of(space, 14)["fixed"] == [0.2]


def test_values_are_the_ends_of_a_range_and_evenly_between_them_on_its_scale() -> None:
    assert axes_of({"a": FloatDistribution(0.1, 0.5)}, 5)["a"] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])
    log = axes_of({"a": FloatDistribution(1e-4, 1e-2, log=True)}, 3)["a"]
    assert log == pytest.approx([1e-4, 1e-3, 1e-2])
    assert (log[0], log[-1]) == (1e-4, 1e-2)
    assert axes_of({"a": IntDistribution(1, 100, log=True)}, 3)["a"] == [1, 10, 100]


@pytest.mark.parametrize("low", [0, 3])
@pytest.mark.parametrize("width", [1, 2, 5, 6, 9])
def test_whole_numbers_of_a_grid_are_no_more_than_the_budget_and_all_of_them_where_it_allows(
    low: int, width: int
) -> None:
    for most in range(2, 12):
        values = axes_of({"f": IntDistribution(low, low + width - 1)}, most)["f"]
        assert len(values) == min(width, most)
        assert values == sorted(set(values))
        assert (values[0], values[-1]) == (low, low + width - 1)


@pytest.mark.parametrize("total", [1, 2, 3, 8, 12, 30, 100])
def test_points_are_visited_once_each_and_the_first_few_lie_everywhere(total: int) -> None:
    order = list(_strides(total))
    assert sorted(order) == list(range(total))
    for count in range(2, total):
        places = sorted(order[:count])
        gaps = [later - earlier for earlier, later in itertools.pairwise([*places, places[0] + total])]
        assert max(gaps) <= 2.7 * total / count + 1


def test_every_place_is_another_point() -> None:
    axes = {"a": [1, 2, 3], "b": ["x", "y"]}
    points = [tuple(_point(axes, place).items()) for place in range(6)]
    assert set(points) == {(("a", a), ("b", b)) for a, b in itertools.product([1, 2, 3], "xy")}


@pytest.mark.parametrize(("budget", "given", "why"), [
    (6, 0, "point 1 of 6"), (7, 1, "point 1 of 6"), (5, 0, "point 1 of 6, of which 5 whole trainings try a part"),
    (6, 1, "point 1 of 6, of which 5 whole trainings try a part"),
    (2, 1, "point 1 of 6, of which 1 whole training try a part"), (9, 0, "point 1 of 9"),
])
def test_a_point_says_of_how_many_it_is_and_whether_the_budget_covers_them(budget: int, given: int, why: str) -> None:
    space = space_of(budget, given=given)
    assert next(iter(points_of(space)))[1] == why
    assert bool(uncovered(space)) == ("a part" in why)


def test_a_finer_grid_has_twice_the_points_and_leaves_out_those_of_the_coarser_one() -> None:
    found = list(itertools.islice(points_of(space_of(6)), 12))
    assert [why.partition(" of ")[2] for _, why in found] == ["6"] * 6 + [
        "12 of a finer grid, with what the coarser one left over"
    ] * 6
    assert len({tuple(point.items()) for point, _ in found}) == 12


def test_a_grid_of_choices_and_whole_numbers_ends_with_the_space() -> None:
    _, cell = tiny_cell("lmh", {"margin": {"choices": [0.1, 0.2, 0.3]}}, sampler="grid")
    space = SearchedSpace(cell, distributions_of(cell), cell.all_defaults(), "0/test", "0/test", 2)
    assert sorted(point["loss.margin"] for point, _ in points_of(space)) == [0.1, 0.2, 0.3]
