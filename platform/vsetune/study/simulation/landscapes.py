"""Synthetic trainings whose best configuration is known. They give the M-Recall of a configuration after every epoch.

Coordinates: every searched setting lies in [0, 1], 0 at the low end of its range and 1 at the high one (on a log scale
where the range has one); the first is the learning rate. progress: epochs trained / epochs of a whole trial, in (0, 1].
Each landscape has its optimum at a centre sampled from the seed. There a whole training ends at TOP, the maximum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import differential_evolution

from vsetune.config.spec.base import Range
from vsetune.storage.hashes import sha256_hex

Vector = NDArray[np.float64]
Curve = Callable[[Vector, Vector, Vector], Vector]
"""(coordinates, centre, progress) -> M-Recall in per cent at each progress, NaN from the point of divergence on."""

TOP, START, NOISE = 60.0, 2.0, 0.5
"""M-Recall in per cent: of the best configuration, of an untrained network, and the standard deviation of one
validation."""
_SLOWEST, _FASTEST = 0.2, 0.1
"""Pace of a training (see `_rise`) at the bottom and at the top of the range of the learning rate. The values are not
measured. Compared with an earlier simulation, early halving looked better with equal paces, and worse with a ratio of
six."""
STEPS_PER_EPOCH = 20
_COLLAPSES_AT, _DIVERGES_AT, _RATE_DROPS_AT = 0.15, 0.1, 0.55

SETTINGS: Mapping[str, Range] = {
    "training.learning_rate": Range(low=2e-5, high=2e-3, log=True),
    "loss.margin": Range(low=0.05, high=0.4),
    "loss.semantic_temperature": Range(low=0.005, high=0.1, log=True),
    "training.gradient_clip": Range(low=0.5, high=4.0),
    "training.learning_rate_step": Range(low=5.0, high=25.0),
    "training.learning_rate_drop": Range(low=0.05, high=0.5, log=True),
    "training.batch_size": Range(low=32, high=256, integer=True),
    "training.weight_decay": Range(low=0.0, high=0.1),
}
"""The searched settings; a landscape with n dimensions takes the first n. They are settings of LSEH, so that valid
trials are built."""


@dataclass(frozen=True)
class Landscape:
    """A family of synthetic trainings. says: the difficulty that it poses to a search. centre: per dimension, the
    bounds between which the optimum lies."""

    name: str
    says: str
    centre: tuple[tuple[float, float], ...]
    curve: Curve

    @property
    def space(self) -> dict[str, Range]:
        """The searched settings with their ranges."""
        return dict(list(SETTINGS.items())[: len(self.centre)])

    def surface(self, seed: int) -> Surface:
        """The landscape with its optimum at the centre sampled from this seed."""
        low, high = np.array(self.centre).T
        return Surface(self, generator_of(f"{self.name}/{seed}").uniform(low, high))


@dataclass(frozen=True)
class Surface:
    """A landscape with a fixed optimum. centre: coordinates of the optimum."""

    landscape: Landscape
    centre: Vector

    top: ClassVar[float] = TOP
    noise: ClassVar[float] = NOISE

    def curve_of(self, configuration: Mapping[str, Any], progress: Vector) -> Vector:
        """The M-Recall of a configuration (by dotted name) at each progress, without noise."""
        space = self.landscape.space
        coordinates = np.array([_coordinate(domain, configuration[name]) for name, domain in space.items()])
        return self.landscape.curve(coordinates, self.centre, progress)

    def truth(self, configuration: Mapping[str, Any], progress: Vector) -> float:
        """The highest M-Recall of the configuration at these points of progress, without noise; -inf if it diverges."""
        curve = self.curve_of(configuration, progress)
        return -math.inf if np.isnan(curve).any() else float(curve.max())

    def epochs_to(self, configuration: Mapping[str, Any], target: float, epochs: float) -> float:
        """The epoch at which a training of `epochs` epochs reaches the target without noise, to a twentieth of an
        epoch and independent of the validations; inf if it does not."""
        space = self.landscape.space
        at = np.array([_coordinate(domain, configuration[name]) for name, domain in space.items()])
        return self._epochs_at(at, target, epochs)

    def fewest_epochs(self, target: float, epochs: float) -> float:
        """The fewest epochs to the target of any configuration, by differential evolution over the whole space that
        starts with the optimum; inf if none reaches it."""

        def cost(at: Vector) -> float:
            return min(self._epochs_at(at, target, epochs), 2 * epochs)

        found = differential_evolution(
            cost, [(0.0, 1.0)] * len(self.centre), x0=self.centre, rng=0, popsize=12, maxiter=60, tol=0, polish=False,
        )
        return float(found.fun) if found.fun < 2 * epochs else math.inf

    def _epochs_at(self, at: Vector, target: float, epochs: float) -> float:
        steps = math.ceil(epochs * STEPS_PER_EPOCH)
        progress = np.arange(1, steps + 1) / steps
        reached = np.flatnonzero(self.landscape.curve(at, self.centre, progress) >= target)
        return float(progress[reached[0]] * epochs) if len(reached) else math.inf


def generator_of(name: str) -> np.random.Generator:
    """A random generator seeded by the name alone."""
    return np.random.default_rng(int(sha256_hex(name.encode())[:16], 16))


def validated_epochs(length: float) -> Vector:
    """Epochs of the validations: the end of every epoch, and of the training."""
    whole = np.arange(1.0, math.ceil(length))
    return np.append(whole, length)


def _coordinate(domain: Range, value: float) -> float:
    if domain.log:
        return math.log(value / domain.low) / math.log(domain.high / domain.low)
    return (value - domain.low) / (domain.high - domain.low)


def _bowl(offset: Vector, *curvatures: float) -> float:
    """Points below the top at this offset from the centre; curvatures: points lost at distance 1, by dimension."""
    return float(np.dot(curvatures, offset**2))


def _rise(progress: Vector, pace: float) -> Vector:
    """A saturating rise from 0 to 1, about two thirds of it after `pace`, a share of the training."""
    return (1 - np.exp(-progress / pace)) / (1 - math.exp(-1 / pace))


def _pace(at: Vector, slowest: float = _SLOWEST, fastest: float = _FASTEST) -> float:
    """Pace by learning rate: a higher learning rate needs fewer epochs, whatever its final M-Recall."""
    return float(slowest * (fastest / slowest) ** at[0])


def _climb(height: float, progress: Vector, pace: float) -> Vector:
    """A curve that ends at M-Recall `height`, or at START if that is higher."""
    return START + (max(height, START) - START) * _rise(progress, pace)


def _smooth(at: Vector, centre: Vector, progress: Vector) -> Vector:
    return _climb(TOP - _bowl(at - centre, 40, 15, 5), progress, _pace(at))


def _slow_starters(at: Vector, centre: Vector, progress: Vector) -> Vector:
    """Low learning rates are best, and they are slower here than in other landscapes."""
    return _climb(TOP - _bowl(at - centre, 25, 15, 5), progress, _pace(at, slowest=0.6, fastest=0.05))


def _ridge(at: Vector, centre: Vector, progress: Vector) -> Vector:
    """Learning rate and margin compensate each other: mainly their sum matters."""
    first, second, third = at - centre
    turned = np.array([first + second, first - second, third])
    return _climb(TOP - _bowl(turned, 75, 2, 8), progress, _pace(at))


def _collapse_edge(at: Vector, centre: Vector, progress: Vector) -> Vector:
    """M-Recall rises with the learning rate up to an edge, beyond which the embeddings collapse."""
    beyond, *others = at - centre
    curve = _climb(TOP - 10 * abs(beyond) - _bowl(np.array(others), 8, 4), progress, _pace(at))
    return np.where(progress < _COLLAPSES_AT, curve, START) if beyond > 0 else curve


def _many_dimensions(at: Vector, centre: Vector, progress: Vector) -> Vector:
    """Three of eight settings matter most."""
    return _climb(TOP - _bowl(at - centre, 30, 12, 6, 1, 0.5, 0.5, 0.25, 0.25), progress, _pace(at))


def _rate_drop(at: Vector, centre: Vector, progress: Vector) -> Vector:
    """A high learning rate gives lower M-Recall until the rate drops, and higher afterwards."""
    curve = _climb(TOP - _bowl(at - centre, 25, 12, 5), progress, _pace(at))
    since = np.maximum(progress - _RATE_DROPS_AT, 0)
    held_back = 12 * at[0] * np.exp(-since / 0.03) * _rise(progress, _pace(at))
    return np.where(progress < 1, np.maximum(curve - held_back, START), curve)


def _diverging_region(at: Vector, centre: Vector, progress: Vector) -> Vector:
    """Training diverges at learning rates a little above the best one."""
    curve = _climb(TOP - _bowl(at - centre, 30, 12, 5), progress, _pace(at))
    return np.where(progress < _DIVERGES_AT, curve, np.nan) if at[0] > centre[0] + 0.1 else curve


_MIDDLE = (0.2, 0.8)
LANDSCAPES: Mapping[str, Landscape] = {
    each.name: each for each in (
        Landscape("smooth", "one broad optimum", (_MIDDLE,) * 3, _smooth),
        Landscape("slow_starters", "what wins rises slowest", ((0.1, 0.35), _MIDDLE, _MIDDLE), _slow_starters),
        Landscape("ridge", "two settings make up for each other", (_MIDDLE,) * 3, _ridge),
        Landscape("collapse_edge", "the best is beside a collapse", ((0.4, 0.8), _MIDDLE, _MIDDLE), _collapse_edge),
        Landscape("many_dimensions", "three of eight settings count", (_MIDDLE,) * 8, _many_dimensions),
        Landscape("rate_drop", "the learning rate drops late", ((0.6, 0.85), _MIDDLE, _MIDDLE), _rate_drop),
        Landscape("diverging_region", "a third of it diverges", ((0.4, 0.7), _MIDDLE, _MIDDLE), _diverging_region),
    )
}
