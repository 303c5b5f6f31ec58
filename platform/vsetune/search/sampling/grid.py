"""Every combination of evenly spaced values, as fine as the budget allows; without randomness.

The grid contains all choices, and the ends of ranges with points between them, on a log scale where they have one. The
first grid has at most as many points as the budget has full-length trials, if possible; later trials go to the points
in between, of the next finer grids. Points are visited in long strides, so that a shortened search covers all regions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from vsetune.config.study.domains import Value
from vsetune.search.sampling.sampler import Draw, Sampler, SearchedSpace
from vsetune.search.trial_history import TrialHistory

_GOLDEN = (math.sqrt(5) - 1) / 2
_MOST_LEVELS = 10_000


class GridPoints(Sampler):
    name = "grid"
    learns = False

    def __init__(self) -> None:
        self._points: list[tuple[dict[str, Value], str]] = []
        self._rest: Iterator[tuple[dict[str, Value], str]] | None = None
        self._passed = self._heard = 0

    def draw(self, space: SearchedSpace, history: TrialHistory) -> Draw:
        """The first point that no earlier configuration has, given ones included; the last point of the finest grid
        where there is none."""
        if self._rest is None:
            self._rest = points_of(space)
        self._passed = self._passed if len(history) >= self._heard else 0
        self._heard = len(history)
        while True:
            if self._passed == len(self._points):
                self._points += islice(self._rest, 1)
            if self._passed == len(self._points):
                point, why = self._points[-1]
                return Draw(dict(point), f"grid: {why}")
            point, why = self._points[self._passed]
            if history.drawn_as(space.cell.applying(point)) is None:
                return Draw(dict(point), f"grid: {why}")
            self._passed += 1


def points_of(space: SearchedSpace) -> Iterator[tuple[dict[str, Value], str]]:
    """Points of finer and finer grids with a description, each once; points that differ only in settings without effect
    count as one. It ends with a space of choices and whole numbers, or at a grid finer than any search reaches."""
    seen: set[tuple[tuple[str, Value], ...]] = set()
    budget = max(1, space.budget - space.given)
    for finer in count():
        axes = axes_of(space.distributions, budget * 2**finer)
        total = math.prod(len(axis) for axis in axes.values())
        for number, place in enumerate(_strides(total)):
            point = _point(axes, place)
            key = tuple(space.cell.applying(point).items())
            if key not in seen:
                seen.add(key)
                yield point, _described(number, total, budget, finer)
        if all(len(axis) >= _most(space.distributions[name]) for name, axis in axes.items()):
            return


def uncovered(space: SearchedSpace) -> str:
    """Why the budget does not cover the coarsest grid, in one line; empty where it does."""
    budget = max(1, space.budget - space.given)
    total = math.prod(len(axis) for axis in axes_of(space.distributions, budget).values())
    if total <= budget:
        return ""
    return (
        f"the coarsest grid has {total} points and the budget lets {_trainings(budget)} try them, so parts of the "
        f"space are not seen; raise search.configurations to {total + space.given}, search less, or use another sampler"
    )


def axes_of(distributions: Mapping[str, BaseDistribution], most: int) -> dict[str, list[Value]]:
    """Values of every setting, with at most `most` combinations where that is possible: all choices, and at least two
    values of a range. The range with the fewest values gets the next one; of equal ranges the first by name."""
    levels = {name: _least(distribution) for name, distribution in sorted(distributions.items())}
    growing = {name for name, distribution in distributions.items() if levels[name] < _most(distribution)}
    while growing:
        name = min(sorted(growing), key=lambda each: levels[each])
        total = math.prod(levels.values())
        if total // levels[name] * (levels[name] + 1) > most:
            growing.discard(name)
            continue
        levels[name] += 1
        if levels[name] >= _most(distributions[name]):
            growing.discard(name)
    return {name: _values(distributions[name], levels[name]) for name in levels}


def _least(distribution: BaseDistribution) -> int:
    return min(2, _most(distribution)) if not isinstance(distribution, CategoricalDistribution) else _most(distribution)


def _most(distribution: BaseDistribution) -> int:
    if isinstance(distribution, CategoricalDistribution):
        return len(distribution.choices)
    if distribution.single():
        return 1
    return distribution.high - distribution.low + 1 if isinstance(distribution, IntDistribution) else _MOST_LEVELS


def _values(distribution: BaseDistribution, levels: int) -> list[Value]:
    if isinstance(distribution, CategoricalDistribution):
        return list(distribution.choices)  # type: ignore[arg-type]
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    low, high = distribution.low, distribution.high
    shares = [place / (levels - 1) for place in range(levels)] if levels > 1 else [0.0]
    if distribution.log:
        found = [math.exp(math.log(low) + share * (math.log(high) - math.log(low))) for share in shares]
    else:
        found = [low + share * (high - low) for share in shares]
    found = [low, *found[1:-1], high] if levels > 1 else [low]
    if isinstance(distribution, IntDistribution):
        whole = dict.fromkeys(round(value) for value in found)
        return list(range(round(low), round(high) + 1)) if levels >= _most(distribution) else list(whole)
    return list(found)


def _strides(total: int) -> Iterator[int]:
    """0 to total - 1, each once, such that neighbours in the order are far apart."""
    step = next(each for each in count(max(1, round(total * _GOLDEN))) if math.gcd(each, total) == 1)
    return (number * step % total for number in range(total))


def _point(axes: Mapping[str, Sequence[Value]], place: int) -> dict[str, Value]:
    point = {}
    for name, axis in axes.items():
        place, index = divmod(place, len(axis))
        point[name] = axis[index]
    return point


def _described(number: int, total: int, budget: int, finer: int) -> str:
    where = f"point {number + 1} of {total}"
    if finer:
        return f"{where} of a finer grid, with what the coarser one left over"
    return f"{where}, of which {_trainings(budget)} try a part" if total > budget else where


def _trainings(number: int) -> str:
    return f"{number} whole training{'' if number == 1 else 's'}"
