"""Which of some configurations of a cell is nearest to another one, in the unit cube of the cell's space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.spatial import KDTree

from vsetune.config.study.cells import Cell
from vsetune.config.study.domains import Value
from vsetune.search.drawing import distributions_of
from vsetune.search.even_points import even_point
from vsetune.search.sampling.sampler import UnitCube, Vector


class Nearest:
    """Distances are Euclidean: the two ends of a range are 1 apart (on a log scale where the range has one), two
    different choices the square root of 2. Settings without effect count with their defaults."""

    def __init__(self, cell: Cell, configurations: Sequence[Mapping[str, Value]]) -> None:
        """configurations: at least one, of the cell's space."""
        self._defaults, self._distributions = cell.all_defaults(), distributions_of(cell)
        self._cube = UnitCube(self._distributions)
        self._tree = KDTree([self._place(configuration) for configuration in configurations])

    def place_of(self, configuration: Mapping[str, Value]) -> int:
        """Which of the configurations is the nearest, counted from 0."""
        return int(self._tree.query(self._place(configuration))[1])

    def distances(self, count: int) -> Vector:
        """(count,): from evenly spread points of the space to the nearest configuration, ascending."""
        points = [self._place(even_point(self._distributions, number, seed=0)) for number in range(count)]
        return np.sort(self._tree.query(points)[0])

    def _place(self, configuration: Mapping[str, Value]) -> Vector:
        return self._cube.vector_of({name: configuration.get(name, self._defaults[name]) for name in self._defaults})
