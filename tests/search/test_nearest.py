"""Which recorded configuration is nearest, and how far from them a space goes."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_studies import tiny_cell

from vsetune.search.sampling.sampler import distributions_of, even_point
from vsetune.study.simulation.recorded_curves import Nearest


def test_distances_are_those_of_a_plain_loop() -> None:
    """Of a margin from 0.1 to 0.5: as shares of the range."""
    _, cell = tiny_cell("lmh", {"margin": {"low": 0.1, "high": 0.5}})
    recorded = [{"loss.margin": margin} for margin in (0.1, 0.2, 0.5)]
    nearest = Nearest(cell, recorded)
    assert [nearest.place_of({"loss.margin": margin}) for margin in (0.14, 0.16, 0.34, 0.36)] == [0, 1, 1, 2]
    points = [even_point(distributions_of(cell), number, seed_name="0")["loss.margin"] for number in range(16)]
    looped = [min(abs(float(point) - each["loss.margin"]) / 0.4 for each in recorded) for point in points]
    assert np.asarray(nearest.distances(16)) == pytest.approx(sorted(looped))
