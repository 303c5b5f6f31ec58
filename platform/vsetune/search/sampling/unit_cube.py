"""A space as coordinates from 0 to 1, for samplers that compute with vectors: one per range, and one per choice."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from functools import cached_property

import numpy as np
import numpy.typing as npt
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from vsetune.config.study.domains import Value
from vsetune.search.even_points import value_at

Vector = npt.NDArray[np.float64]


class UnitCube:
    """Settings in the order of their names. The choice with the largest coordinate is selected."""

    def __init__(self, distributions: Mapping[str, BaseDistribution]) -> None:
        self._distributions = dict(sorted(distributions.items()))

    @cached_property
    def width(self) -> int:
        return sum(_width(each) for each in self._distributions.values())

    @cached_property
    def blocks(self) -> list[slice]:
        """The coordinates of each setting."""
        ends = np.cumsum([0, *(_width(each) for each in self._distributions.values())]).tolist()
        return [slice(start, end) for start, end in itertools.pairwise(ends)]

    @cached_property
    def steps(self) -> Vector:
        """About how far a coordinate must move to change its value; 0 where every move does."""
        found = np.zeros(self.width)
        for block, distribution in zip(self.blocks, self._distributions.values(), strict=True):
            if isinstance(distribution, CategoricalDistribution):
                found[block] = 0.5
            elif isinstance(distribution, IntDistribution):
                found[block] = 1 / (distribution.high - distribution.low + 1)
        return found

    def vector_of(self, configuration: Mapping[str, Value]) -> Vector:
        """configuration: with every setting."""
        found = np.zeros(self.width)
        for block, (name, distribution) in zip(self.blocks, self._distributions.items(), strict=True):
            if isinstance(distribution, CategoricalDistribution):
                found[block.start + int(distribution.to_internal_repr(configuration[name]))] = 1.0
            else:
                assert isinstance(distribution, FloatDistribution | IntDistribution)
                found[block] = _place(float(configuration[name]), distribution)
        return found

    def configuration_at(self, vector: Vector) -> dict[str, Value]:
        """Coordinates outside 0 to 1 count as the nearer end."""
        found: dict[str, Value] = {}
        for block, (name, distribution) in zip(self.blocks, self._distributions.items(), strict=True):
            if isinstance(distribution, CategoricalDistribution):
                found[name] = distribution.choices[int(np.argmax(vector[block]))]  # type: ignore[assignment]
            else:
                found[name] = value_at(distribution, float(np.clip(vector[block.start], 0.0, 1.0)))
        return found


def _width(distribution: BaseDistribution) -> int:
    return len(distribution.choices) if isinstance(distribution, CategoricalDistribution) else 1


def _place(value: float, distribution: FloatDistribution | IntDistribution) -> float:
    """The inverse of `value_at`; whole numbers stand in the middle of their share."""
    half = 0.5 if isinstance(distribution, IntDistribution) else 0.0
    low, high = distribution.low - half, distribution.high + half
    if distribution.log:
        value, low, high = math.log(value), math.log(low), math.log(high)
    return min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.5
