"""Evolutionary samplers: covariance matrix adaptation (Hansen 2016) and the genetic algorithm of Deb et al. (2002)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import numpy as np
from optuna.trial import FrozenTrial

from vsetune.search.sampling.sampler import Draw, Notes, Sampler, SearchedSpace, UnitCube, Vector, learnt_from
from vsetune.search.trial_history import NOTES, TrialHistory, worth_of

S = TypeVar("S")

_GENERATION, _TOLD = "generation", "told"


@dataclass(frozen=True)
class Generation:
    """number: from 0. learnt_from: numbers of ended trials, each used by one generation only. is_new: the next draw is
    its first. members: its draws so far."""

    number: int
    learnt_from: tuple[int, ...]
    is_new: bool = False
    members: list[FrozenTrial] = field(default_factory=list)

    @property
    def notes(self) -> Notes:
        """Notes for the next draw."""
        return {_GENERATION: self.number} | ({_TOLD: list(self.learnt_from)} if self.is_new else {})


def generations_of(history: TrialHistory, *, size: int) -> list[Generation]:
    """All generations so far; the last one is that of the next draw. A generation ends when `size` of its trials have
    ended; trials that end later are not used. The first generation learns from all trials that had ended before it
    began.
    """
    found: list[Generation] = []
    for trial in history:
        notes = trial.user_attrs.get(NOTES, {})
        if _GENERATION not in notes:
            continue
        if _TOLD in notes:
            found.append(Generation(int(notes[_GENERATION]), tuple(notes[_TOLD])))
        if found:
            found[-1].members.append(trial)
    if not found:
        return [Generation(0, _ended(history), is_new=True)]
    ended = _ended(found[-1].members)
    if len(ended) >= size:
        found.append(Generation(found[-1].number + 1, ended, is_new=True))
    return found


def _ended(trials: Sequence[FrozenTrial]) -> tuple[int, ...]:
    return tuple(trial.number for trial in trials if trial.state.is_finished())


class _ByGenerations(Sampler, Generic[S]):
    """A sampler whose state is a fold over the generations. Known generations are not computed again."""

    def __init__(self) -> None:
        self._known: list[tuple[tuple[int, ...], S]] = []

    def _after(
        self, generations: Sequence[Generation], advance: Callable[[S | None, list[FrozenTrial]], S],
        history: TrialHistory,
    ) -> S:
        """The state after all generations. advance: the state before (None: none), the trials of a generation."""
        same = 0
        while same < min(len(self._known), len(generations)) and self._known[same][0] == generations[same].learnt_from:
            same += 1
        del self._known[same:]
        for generation in generations[same:]:
            trials = [trial for number in generation.learnt_from if (trial := history.numbered(number)) is not None]
            before = self._known[-1][1] if self._known else None
            self._known.append((generation.learnt_from, advance(before, trials)))
        return self._known[-1][1]


FIRST_SPREAD = 0.25
"""Standard deviation of the first generation, as a share of each range."""
_LEAST_SPREAD = 0.3
"""Smallest standard deviation of a stepped setting, in steps."""
_TRIES = 20


@dataclass(frozen=True)
class _State:
    """mean: (width,). spread: sigma. shape: covariance, (width, width). path, spread_path: of the steps of the mean."""

    mean: Vector
    spread: float
    shape: Vector
    path: Vector
    spread_path: Vector
    generation: int = 0


@dataclass(frozen=True)
class _Rates:
    """Hansen's recommended constants as a function of the number of coordinates. His bounds on `many` and `damping` are
    for larger generations; with these sizes they never apply."""

    size: int
    weights: Vector
    mass: float
    path: float
    spread: float
    one: float
    many: float
    damping: float
    length: float

    @classmethod
    def of(cls, width: int) -> _Rates:
        size = 4 + int(3 * math.log(width))
        raw = math.log((size + 1) / 2) - np.log(np.arange(1, size // 2 + 1))
        weights = raw / raw.sum()
        mass = float(1 / (weights**2).sum())
        spread = (mass + 2) / (width + mass + 5)
        return cls(
            size, weights, mass, path=(4 + mass / width) / (width + 4 + 2 * mass / width), spread=spread,
            one=2 / ((width + 1.3) ** 2 + mass), many=2 * (mass - 2 + 1 / mass) / ((width + 2) ** 2 + mass),
            damping=1 + spread,
            length=math.sqrt(width) * (1 - 1 / (4 * width) + 1 / (21 * width**2)),
        )


class CovarianceDraws(_ByGenerations[_State]):
    name = "cma-es"

    def draw(self, space: SearchedSpace, history: TrialHistory) -> Draw:
        cube = UnitCube(space.distributions)
        rates = _Rates.of(cube.width)
        generations = generations_of(history, size=rates.size)
        state = self._after(generations, lambda before, trials: (
            _first(_ranked(trials, cube, space), cube) if before is None
            else _moved(before, _ranked(trials, cube, space), rates)
        ), history)
        random = np.random.default_rng(space.seed_at(len(history)))
        now = generations[-1]
        return Draw(
            cube.configuration_at(_point(state, cube, random)),
            f"cma-es: generation {now.number + 1}, after {learnt_from(history)}", now.notes,
        )


def _ranked(trials: Sequence[FrozenTrial], cube: UnitCube, space: SearchedSpace) -> list[Vector]:
    """Trials, best first; trials without a value are left out."""
    useful = sorted((each for each in trials if math.isfinite(worth_of(each))), key=worth_of, reverse=True)
    return [cube.vector_of(space.filled(trial.params)) for trial in useful]


def _first(ranked: Sequence[Vector], cube: UnitCube) -> _State:
    """Around the best of the start; around the middle of the space when no result is known."""
    width = cube.width
    mean = ranked[0] if ranked else np.full(width, 0.5)
    return _State(mean, FIRST_SPREAD, np.eye(width), np.zeros(width), np.zeros(width))


def _moved(state: _State, ranked: Sequence[Vector], rates: _Rates) -> _State:
    """The state after one generation. With fewer useful trials than it needs, these share the weight; with none the
    Gaussian only narrows around the earlier good region."""
    state = replace(state, generation=state.generation + 1)
    if not ranked:
        return replace(state, spread=0.8 * state.spread)
    width = len(state.mean)
    weights = rates.weights[: len(ranked)] / rates.weights[: len(ranked)].sum()
    steps = (np.array(ranked[: len(weights)]) - state.mean) / state.spread
    step = weights @ steps
    values, axes = np.linalg.eigh(state.shape)
    inverse_root = axes @ np.diag(np.maximum(values, 1e-12) ** -0.5) @ axes.T
    spread_path = (1 - rates.spread) * state.spread_path + math.sqrt(
        rates.spread * (2 - rates.spread) * rates.mass
    ) * (inverse_root @ step)
    length = float(np.linalg.norm(spread_path))
    faded = math.sqrt(1 - (1 - rates.spread) ** (2 * state.generation))
    is_steady = length / faded < (1.4 + 2 / (width + 1)) * rates.length
    path = (1 - rates.path) * state.path
    if is_steady:
        path = path + math.sqrt(rates.path * (2 - rates.path) * rates.mass) * step
    lost = 0.0 if is_steady else rates.one * rates.path * (2 - rates.path)
    shape = (
        (1 - rates.one - rates.many + lost) * state.shape + rates.one * np.outer(path, path)
        + rates.many * (steps.T * weights) @ steps
    )
    spread = state.spread * math.exp(min(1.0, (rates.spread / rates.damping) * (length / rates.length - 1)))
    return replace(
        state, mean=np.clip(state.mean + state.spread * step, 0.0, 1.0), spread=float(np.clip(spread, 1e-6, 1.0)),
        shape=(shape + shape.T) / 2, path=path, spread_path=spread_path,
    )


def _point(state: _State, cube: UnitCube, random: np.random.Generator) -> Vector:
    values, axes = np.linalg.eigh(state.shape)
    root = axes * np.sqrt(np.maximum(values, 1e-12))
    own = state.spread * np.sqrt(np.maximum(np.diag(state.shape), 1e-12))
    missing = np.sqrt(np.maximum((_LEAST_SPREAD * cube.steps) ** 2 - own**2, 0.0))
    for _ in range(_TRIES):
        point = state.mean + state.spread * (root @ random.normal(size=cube.width)) + missing * random.normal(
            size=cube.width
        )
        if ((point >= 0) & (point <= 1))[cube.steps == 0].all():
            break
    return np.asarray(np.clip(point, 0.0, 1.0))


_MOST_PARENTS = 20
_SPREAD = 15.0
"""Distribution index of crossover and mutation: the larger, the closer children are to their parents."""
_CROSSED = 0.9


class GeneticDraws(_ByGenerations[list[FrozenTrial]]):
    name = "nsga-ii"

    def draw(self, space: SearchedSpace, history: TrialHistory) -> Draw:
        size = population_of(space.budget)
        generations = generations_of(history, size=size)
        parents = self._after(generations, lambda before, trials: survivors([*(before or []), *trials], size), history)
        random = np.random.default_rng(space.seed_at(len(history)))
        now, cube = generations[-1], UnitCube(space.distributions)
        child = _child([cube.vector_of(space.filled(trial.params)) for trial in parents], cube, random)
        why = f"nsga-ii: generation {now.number + 1} of {len(parents)} parents, after {learnt_from(history)}"
        return Draw(cube.configuration_at(child), why, now.notes)


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
