"""The even start of a search."""

from __future__ import annotations

import numpy as np
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from vsetune.search.sampling.sampler import even_point, value_at

SPACE = {
    "rate": FloatDistribution(1e-5, 1e-2, log=True), "margin": FloatDistribution(0.1, 0.5),
    "size": IntDistribution(1, 3), "direction": CategoricalDistribution(["both", "image", "text"]),
}


def test_every_quarter_of_every_range_is_met_within_sixteen_points() -> None:
    points = [even_point(SPACE, number, seed_name="3") for number in range(16)]
    rates = np.log10([point["rate"] for point in points])  # type: ignore[arg-type]
    assert np.histogram(rates, bins=4, range=(-5, -2))[0].tolist() == [4, 4, 4, 4]
    assert np.histogram([point["margin"] for point in points], bins=4, range=(0.1, 0.5))[0].tolist() == [4, 4, 4, 4]
    assert {point["size"] for point in points} == {1, 2, 3}
    assert {point["direction"] for point in points} == {"both", "image", "text"}


def test_a_point_depends_on_its_number_and_the_seed_alone() -> None:
    assert even_point(SPACE, 5, seed_name="3") == even_point(dict(reversed(SPACE.items())), 5, seed_name="3")
    assert even_point(SPACE, 5, seed_name="3") != even_point(SPACE, 5, seed_name="4")
    assert even_point(SPACE, 5, seed_name="3") != even_point(SPACE, 6, seed_name="3")


def test_ends_of_the_way_are_ends_of_the_range() -> None:
    last = 1 - 1e-12
    assert [value_at(SPACE["size"], share) for share in (0.0, 0.5, last)] == [1, 2, 3]
    assert [value_at(SPACE["direction"], share) for share in (0.0, last)] == ["both", "text"]
    assert value_at(SPACE["rate"], 0.0) == 1e-5
    assert np.isclose(value_at(SPACE["rate"], 0.5), 10**-3.5)  # type: ignore[arg-type]


def test_losses_share_the_values_of_the_settings_that_they_share() -> None:
    rate, margin = {"training.learning_rate": FloatDistribution(1e-4, 1e-2, log=True)}, FloatDistribution(0.1, 0.5)
    spaces = [
        {"loss.margin": margin, **rate}, {"loss.semantic_temperature": margin, "loss.margin": margin, **rate},
        {"loss.softmax_temperature": margin, **rate},
    ]
    for number in range(5):
        lmh, lseh, info_nce = (even_point(space, number, seed_name="0/vsepp/1") for space in spaces)
        assert len({point["training.learning_rate"] for point in (lmh, lseh, info_nce)}) == 1
        assert lmh["loss.margin"] == lseh["loss.margin"]


def test_a_point_is_its_coordinates_of_the_unshifted_sequence_and_a_step_for_every_name() -> None:
    one = {"a": FloatDistribution(0.0, 1.0), "b": FloatDistribution(0.0, 1.0)}
    first, second, third = ([*even_point(one, number, seed_name="3").values()] for number in range(3))
    moved = [[(after - before) % 1 for after, before in zip(point, first, strict=True)] for point in (second, third)]
    assert np.allclose(moved, [[0.5, 0.5], [0.75, 0.25]])  # points 1 and 2 of the sequence; point 0 is the origin
