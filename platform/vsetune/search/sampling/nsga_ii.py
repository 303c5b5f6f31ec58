"""The genetic algorithm of Deb et al. (2002): children of the best trials so far, crossed and mutated. Made for several
objectives at once, of which it keeps every compromise; with one it is a plain search by breeding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

import numpy as np
from optuna.trial import FrozenTrial, TrialState

from vsetune.search.sampling.generations import Generation, generations_of
from vsetune.search.sampling.sampler import Draw, Sampler, SearchedSpace, learnt_from
from vsetune.search.sampling.unit_cube import UnitCube, Vector
from vsetune.search.trial_history import TrialHistory, worth_of

_MOST_PARENTS = 20
_SPREAD = 15.0
"""Distribution index of crossing and mutation: the larger, the closer children are to their parents."""
_CROSSED = 0.9

Objectives = tuple[float, ...]


class GeneticDraws(Sampler):
    name = "nsga-ii"

    def __init__(self) -> None:
        self._known: list[tuple[tuple[int, ...], list[FrozenTrial]]] = []

    def draw(self, space: SearchedSpace, history: TrialHistory) -> Draw:
        size = population_of(space.budget)
        generations = generations_of(history, size=size)
        parents = self._parents(generations, history, size)
        random = np.random.default_rng(space.seed_at(len(history)))
        now, cube = generations[-1], UnitCube(space.distributions)
        child = _child([cube.vector_of(space.filled(trial.params)) for trial in parents], cube, random)
        why = f"nsga-ii: generation {now.number + 1} of {len(parents)} parents, after {learnt_from(history)}"
        return Draw(cube.configuration_at(child), why, now.notes)

    def _parents(self, generations: Sequence[Generation], history: TrialHistory, size: int) -> list[FrozenTrial]:
        """Of the next draw. What is known of the first generations is not reckoned again."""
        same = 0
        while same < min(len(self._known), len(generations)) and self._known[same][0] == generations[same].told:
            same += 1
        del self._known[same:]
        for generation in generations[same:]:
            told = [trial for number in generation.told if (trial := history.numbered(number)) is not None]
            before = self._known[-1][1] if self._known else []
            self._known.append((generation.told, survivors([*before, *told], size)))
        return self._known[-1][1]


def population_of(budget: int) -> int:
    """Parents kept, so that a budget comes to several generations."""
    return max(4, min(_MOST_PARENTS, budget // 5))


def survivors(trials: Sequence[FrozenTrial], count: int) -> list[FrozenTrial]:
    """The best, front by front; of the front that does not fit, those that stand farthest from their neighbours. What
    reached nothing breeds only where nothing else has ended."""
    useful = [trial for trial in trials if all(map(math.isfinite, objectives_of(trial)))] or list(trials)
    found: list[FrozenTrial] = []
    for front in fronts([objectives_of(trial) for trial in useful]):
        room = count - len(found)
        if room <= 0:
            break
        members = [useful[place] for place in front]
        if len(members) > room:
            away = _crowding([objectives_of(trial) for trial in members])
            members = [members[place] for place in sorted(range(len(members)), key=lambda place: -away[place])[:room]]
        found += members
    return found


def objectives_of(trial: FrozenTrial) -> Objectives:
    """All to be maximised."""
    if trial.state == TrialState.COMPLETE and trial.values and len(trial.values) > 1:
        return tuple(float(value) for value in trial.values)
    return (worth_of(trial),)


def fronts(points: Sequence[Objectives]) -> list[list[int]]:
    """Places of the points that no other one beats in everything, then of those that only these beat, and so on. One
    that was stopped, of which a single objective is known, is compared by that."""
    if all(len(point) == 1 for point in points):
        ranked = sorted(range(len(points)), key=lambda place: -points[place][0])
        return [list(front) for _, front in groupby(ranked, key=lambda place: points[place])]
    left, found = list(range(len(points))), []
    while left:
        front = [a for a in left if not any(_dominates(points[b], points[a]) for b in left if b != a)]
        front = front or list(left)
        found.append(front)
        taken = set(front)
        left = [place for place in left if place not in taken]
    return found


def _dominates(one: Objectives, other: Objectives) -> bool:
    pairs = list(zip(one, other, strict=False))
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


def _crowding(points: Sequence[Objectives]) -> list[float]:
    """How far the neighbours of each point are, over all objectives; the ends of a front have none."""
    away = [0.0] * len(points)
    for axis in range(min(len(point) for point in points)):
        order = sorted(range(len(points)), key=lambda place: points[place][axis])
        span = points[order[-1]][axis] - points[order[0]][axis]
        if not span > 0:
            continue
        away[order[0]] = away[order[-1]] = math.inf
        for before, place, after in zip(order, order[1:], order[2:], strict=False):
            away[place] += (points[after][axis] - points[before][axis]) / span
    return away


def _child(parents: Sequence[Vector], cube: UnitCube, random: np.random.Generator) -> Vector:
    """Of two winners of tournaments; parents come in the order of their fronts, so the earlier one wins."""
    if not parents:
        return random.random(cube.width)
    first, second = (parents[min(random.integers(len(parents), size=2))] for _ in range(2))
    child = np.array(first)
    if random.random() < _CROSSED:
        for block in cube.blocks:
            if block.stop - block.start > 1:
                child[block] = (first if random.random() < 0.5 else second)[block]
            elif random.random() < 0.5:
                child[block] = _crossed(first[block.start], second[block.start], random)
    for block in cube.blocks:
        if random.random() >= 1 / len(cube.blocks):
            continue
        if block.stop - block.start > 1:
            child[block] = random.random(block.stop - block.start)
        else:
            child[block] = _mutated(child[block.start], random)
    return np.asarray(np.clip(child, 0.0, 1.0))


def _crossed(first: float, second: float, random: np.random.Generator) -> float:
    """Simulated binary crossover (Deb and Agrawal 1995)."""
    share = random.random()
    beta = (2 * share) ** (1 / (_SPREAD + 1)) if share <= 0.5 else (1 / (2 * (1 - share))) ** (1 / (_SPREAD + 1))
    sign = 1 if random.random() < 0.5 else -1
    return float(0.5 * (first + second) + sign * 0.5 * beta * (first - second))


def _mutated(value: float, random: np.random.Generator) -> float:
    """Polynomial mutation (Deb and Goyal 1996), in the unit interval."""
    share = random.random()
    if share < 0.5:
        return float(value + (2 * share) ** (1 / (_SPREAD + 1)) - 1)
    return float(value + 1 - (2 * (1 - share)) ** (1 / (_SPREAD + 1)))
