"""The interface of every sampler, a space as coordinates from 0 to 1, and points that cover it evenly."""

from __future__ import annotations

import itertools
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from vsetune.config.spec.base import Choices, Domain
from vsetune.config.study.cells import Cell
from vsetune.config.study.domains import Value
from vsetune.home.hashes import sha256_hex
from vsetune.search.trial_history import TrialHistory


@dataclass(frozen=True)
class SearchedSpace:
    """The search space of a cell. seed_name: of the search and the cell; draws under different names are independent.
    shared_seed_name: of the search, the network and the repeat; even points of all losses come from it.

    defaults: of every setting, for settings that a trial lacks because they had no effect in it.
    """

    cell: Cell
    distributions: Mapping[str, BaseDistribution]
    defaults: Mapping[str, Value]
    seed_name: str
    shared_seed_name: str

    def seed_at(self, number: int) -> int:
        """The seed of the draw that follows `number` draws."""
        return seed_of(f"{self.seed_name}/{number}")

    def filled(self, configuration: Mapping[str, Value]) -> dict[str, Value]:
        """The configuration with defaults for the settings that it lacks, in the order of the space."""
        return {name: configuration.get(name, self.defaults[name]) for name in self.distributions}


Sample = tuple[dict[str, Value], str]
"""A configuration, and which sampler chose it from which history, in one line for people."""


class Sampler(ABC):
    """Draws are pure functions of the history and of the seed: a killed study continues like an uninterrupted one.

    State that an instance keeps between draws is a cache, and is checked against the history. One instance per cell.
    learns: whether draws depend on earlier outcomes; such a sampler needs a start phase. insists: whether it looks for
    one best point, so that another seed gives the same.
    """

    name: ClassVar[str]
    learns: ClassVar[bool] = True
    insists: ClassVar[bool] = False

    @abstractmethod
    def draw(self, space: SearchedSpace, history: TrialHistory) -> Sample:
        """The next configuration, with a value for every setting; the caller removes settings without effect.

        history: every trial of the cell in order, refused draws included. Not modified.
        """


def learnt_from(history: TrialHistory) -> str:
    """How many outcomes a sampler that learns has received, in words."""
    ended = history.ended - history.refused
    running = len(history) - history.ended
    return f"{ended} trial{'' if ended == 1 else 's'}" + (f", {running} running" if running else "")


def seed_of(name: str) -> int:
    return int(sha256_hex(name.encode())[:8], 16)


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


def even_point(distributions: Mapping[str, BaseDistribution], number: int, *, seed_name: str) -> dict[str, Value]:
    """Point `number` (from 0) of a Sobol sequence, shifted by a random step in every dimension (Cranley and Patterson
    1976).

    Dimensions are in the order of the names, those of training first. A step depends on seed and name alone. So two
    losses have the same values of every training setting that they share, and mostly of a margin.
    """
    from scipy.stats import qmc  # takes 1.5 s, which commands and workers that ask for no point are spared

    names = sorted(distributions, key=lambda name: (not name.startswith("training."), name))
    sequence = qmc.Sobol(len(names), scramble=False)
    if number:
        sequence.fast_forward(number)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # one point is no power of two
        place = sequence.random(1)[0]
    shifts = [np.random.default_rng(seed_of(f"{seed_name}/{name}")).random() for name in names]
    shares = (place + shifts) % 1
    return {name: value_at(distributions[name], float(share)) for name, share in zip(names, shares, strict=True)}


def value_at(distribution: BaseDistribution, share: float) -> Value:
    """share: in [0, 1), of the way from the low end to the high one, on a log scale where the range has one."""
    if isinstance(distribution, CategoricalDistribution):
        choices = distribution.choices
        chosen: Value = choices[min(int(share * len(choices)), len(choices) - 1)]  # type: ignore[assignment]
        return chosen
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    is_whole = isinstance(distribution, IntDistribution)
    low, high = (distribution.low - 0.5, distribution.high + 0.5) if is_whole else (distribution.low, distribution.high)
    if distribution.log:
        value = float(np.exp(np.log(low) + share * (np.log(high) - np.log(low))))
    else:
        value = low + share * (high - low)
    if is_whole:
        return int(np.clip(round(value), distribution.low, distribution.high))
    return float(np.clip(value, distribution.low, distribution.high))


def distributions_of(cell: Cell) -> dict[str, BaseDistribution]:
    """Optuna's form of the domains of a cell."""
    return {name: distribution_of(domain) for name, domain in cell.domains.items()}


def distribution_of(domain: Domain) -> BaseDistribution:
    """Optuna's form of a domain."""
    if isinstance(domain, Choices):
        return CategoricalDistribution(domain.choices)
    if domain.integer:
        return IntDistribution(int(domain.low), int(domain.high), log=domain.log)
    return FloatDistribution(domain.low, domain.high, log=domain.log)
