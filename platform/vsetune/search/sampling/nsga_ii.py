"""The genetic algorithm of Deb et al. (2002) with one objective: children of the best trials, crossed and mutated."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from optuna.trial import FrozenTrial

from vsetune.search.sampling.generations import Generation, generations_of
from vsetune.search.sampling.sampler import Draw, Sampler, SearchedSpace, UnitCube, Vector, learnt_from
from vsetune.search.trial_history import TrialHistory, worth_of

_MOST_PARENTS = 20
_SPREAD = 15.0
"""Distribution index of crossover and mutation: the larger, the closer children are to their parents."""
_CROSSED = 0.9


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
        """The parents of the next draw. Known generations are not computed again."""
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
    """Number of parents, such that a budget gives several generations."""
    return max(4, min(_MOST_PARENTS, budget // 5))


def survivors(trials: Sequence[FrozenTrial], count: int) -> list[FrozenTrial]:
    """The best trials. Trials without a value become parents only where no other has ended."""
    useful = [trial for trial in trials if math.isfinite(worth_of(trial))] or trials
    return sorted(useful, key=worth_of, reverse=True)[:count]


def _child(parents: Sequence[Vector], cube: UnitCube, random: np.random.Generator) -> Vector:
    """A child of two tournament winners; parents are sorted best first, so the earlier one wins."""
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
