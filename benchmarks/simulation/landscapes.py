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

from vsetune.config.spec.base import Choices, Domain, Range
from vsetune.home.hashes import sha256_hex

Vector = NDArray[np.float64]
Curve = Callable[[Vector, Vector, Vector], Vector]
"""(coordinates, centre, progress) -> M-Recall in per cent at each progress, NaN from the point of divergence on."""

TOP, START, NOISE, DEVIATION = 60.0, 2.0, 0.5, 0.5
"""M-Recall in per cent: of the best configuration, of an untrained network, the standard deviation of one validation
and that of whole trainings which differ in their seed. Recorded trainings on Flickr8k deviate by 0.14 to 1.39."""
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

_CHOSEN = "training.batch_size"
_BATCH_SIZES: list[bool | int | float | str] = [32, 64, 128, 256]


@dataclass(frozen=True)
class Landscape:
    """A family of synthetic trainings. says: the difficulty that it poses to a search. centre: per dimension, the
    bounds between which the optimum lies. noise, deviation: of a validation and of whole trainings, in points.
    diverging: share of trainings that diverge, whatever their configuration. choices: a last dimension of as many
    values, in whose coordinates 0 is the first and 1 the last."""

    name: str
    says: str
    centre: tuple[tuple[float, float], ...]
    curve: Curve
    noise: float = NOISE
    deviation: float = DEVIATION
    diverging: float = 0.0
    choices: int = 0

    @property
    def space(self) -> dict[str, Domain]:
        """The searched settings with their ranges."""
        ranges: dict[str, Domain] = dict(list(SETTINGS.items())[: len(self.centre) - bool(self.choices)])
        return ranges | ({_CHOSEN: Choices(choices=_BATCH_SIZES[: self.choices])} if self.choices else {})

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

    def curve_of(self, configuration: Mapping[str, Any], progress: Vector) -> Vector:
        """The M-Recall of a configuration (by dotted name) at each progress, without noise."""
        space = self.landscape.space
        coordinates = np.array([_coordinate(domain, configuration[name]) for name, domain in space.items()])
        return self.landscape.curve(coordinates, self.centre, progress)

    def training_of(self, configuration: Mapping[str, Any], progress: Vector, chance: np.random.Generator) -> Vector:
        """The M-Recall that one training reports at each progress: its curve, stretched by the deviation of its seed,
        with the noise of each validation; NaN from the point of divergence on."""
        curve = self.curve_of(configuration, progress)
        noise = chance.normal(0.0, self.landscape.noise, size=len(curve))
        stretch = 1 + self.landscape.deviation * chance.standard_normal() / TOP
        if chance.random() < self.landscape.diverging:
            curve = np.where(progress < chance.random(), curve, np.nan)
        return curve * stretch + noise

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


def _coordinate(domain: Domain, value: float) -> float:
    if isinstance(domain, Choices):
        return domain.choices.index(value) / (len(domain.choices) - 1)
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


def _late_crossing(at: Vector, centre: Vector, progress: Vector) -> Vector:
    """The best are behind until three quarters of the training, and seem to stand still before."""
    loss = _bowl(at - centre, 30, 12, 5)
    early, late = 42 + 0.8 * loss, 18 - 1.8 * loss
    curve: Vector = early * _rise(progress, 0.12) + max(late, -early) * _step(progress, at=0.75)
    return np.clip(curve, START, None)


def _plateau_then_jump(at: Vector, centre: Vector, progress: Vector) -> Vector:
    """All reach a plateau early; near the optimum a jump follows, the later the nearer."""
    loss = _bowl(at - centre, 30, 12, 5)
    jump: Vector = max(TOP - 40 - 2 * loss, 0.0) * _step(progress, at=0.7)
    return _climb(40 - loss, progress, 0.1) + jump


def _late_drop(at: Vector, centre: Vector, progress: Vector) -> Vector:
    """The learning rate drops at three quarters; until then the best, which have a high one, stand still below."""
    curve = _climb(TOP - _bowl(at - centre, 30, 12, 5), progress, 0.1)
    held_back = 18 * at[0] * (1 - _step(progress, at=0.75))
    return np.where(progress < 1, np.maximum(curve - held_back * _rise(progress, 0.1), START), curve)


def _cliff(at: Vector, centre: Vector, progress: Vector) -> Vector:
    """M-Recall rises with the margin up to a cliff, beyond which it is 25 points lower."""
    rate, beyond, other = at - centre
    fall = 25.0 if beyond > 0 else 12 * abs(beyond)
    return _climb(TOP - _bowl(np.array([rate, other]), 25, 5) - fall, progress, _pace(at))


def _two_basins(at: Vector, centre: Vector, progress: Vector) -> Vector:
    """A broad basin 3 points below the narrow one of the optimum."""
    opposite = np.where(centre > 0.5, centre - 0.45, centre + 0.45)
    narrow, broad = TOP - _bowl(at - centre, 150, 60, 15), TOP - 3 - _bowl(at - opposite, 25, 10, 3)
    return _climb(max(narrow, broad), progress, _pace(at))


def _categorical(at: Vector, centre: Vector, progress: Vector) -> Vector:
    """Each of four choices has an optimum of its own; three of them end 2, 4 and 6 points lower."""
    choice = round(3 * at[-1])
    shift = np.array([0.0, 0.25, -0.25, 0.15])[choice] * np.array([1.0, -1.0])
    best = round(3 * centre[-1])
    lower = 2.0 * ((choice - best) % 4)
    height = TOP - lower - _bowl(at[:2] - np.clip(centre[:2] + (shift if choice != best else 0), 0, 1), 40, 15)
    return _climb(height, progress, _pace(at))


def _step(progress: Vector, at: float, width: float = 0.02) -> Vector:
    """A step from 0 to 1 at a share of the training, 1 at its end."""
    return np.where(progress < 1, 1 / (1 + np.exp(-(progress - at) / width)), 1.0)


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
        Landscape("late_crossing", "what wins is behind until late", (_MIDDLE,) * 3, _late_crossing),
        Landscape("plateau_then_jump", "what wins jumps off a plateau", (_MIDDLE,) * 3, _plateau_then_jump),
        Landscape("late_drop", "the rate drops at three quarters", ((0.5, 0.85), _MIDDLE, _MIDDLE), _late_drop),
        Landscape("cliff", "the best is beside a cliff", (_MIDDLE,) * 3, _cliff),
        Landscape("two_basins", "the better basin is narrow", (_MIDDLE,) * 3, _two_basins),
        Landscape("categorical", "each choice has its own optimum", (_MIDDLE, _MIDDLE, (0.0, 1.0)), _categorical,
                  choices=4),
        Landscape("heavy_noise", "validations and seeds are noisy", (_MIDDLE,) * 3, _smooth, noise=1.5, deviation=1.4),
        Landscape("random_divergence", "one training in six diverges", (_MIDDLE,) * 3, _smooth, diverging=1 / 6),
    )
}
HARD = tuple(LANDSCAPES)[7:]
"""Landscapes on which a search that compares unfinished curves, or trusts single results, goes wrong."""
