"""A trial stops when its curve, extrapolated by a family of shapes, has little chance to exceed the best."""

from __future__ import annotations

import math
from bisect import insort
from collections import deque
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from vsetune.metrics.curves import SAME_EPOCH
from vsetune.search.stopping.rule import Course, StoppingRule

Vector = npt.NDArray[np.float64]

MIDDLE, WIDTH = 50.0, 50.0
"""Prior for starts and ends of curves: mean and standard deviation, M-Recall in per cent."""
_PACES = np.geomspace(0.04, 16.0, 16)
_POWERS = (1.0, 1.5, 2.0)
SHAPES = (len(_POWERS) + 1) * len(_PACES)


def shapes_at(progress: float) -> Vector:
    """(SHAPES,): g of every shape at this share of a whole training; 0 at 0 and 1 at 1."""
    share = progress / _PACES
    whole = 1 / _PACES
    return np.concatenate([
        *(np.expm1(-(share**power)) / np.expm1(-(whole**power)) for power in _POWERS),
        (1 - (1 + share) ** -0.5) / (1 - (1 + whole) ** -0.5),
    ])


@dataclass(frozen=True)
class Ends:
    """Possible ends of a curve, M-Recall in per cent without noise: one normal distribution for every shape.

    weights, means, variances: (SHAPES,); the weights sum to 1.
    """

    weights: Vector
    means: Vector
    variances: Vector

    @property
    def mean(self) -> float:
        return float(self.weights @ self.means)

    def chance_above(self, levels: Vector | float, *, noise: float) -> float:
        """The probability that the last validation is above a level; for several levels, the mean. noise: standard
        deviation of one validation, points, > 0."""
        apart = self.means - np.reshape(levels, (-1, 1))
        return float((ndtr(apart / np.sqrt(self.variances + noise**2)) @ self.weights).mean())


@dataclass
class CurveFit:
    """Least-squares sums of one curve for every shape; adding a validation takes constant time.

    A shape with value g at a validation predicts (1 - g) start + g end. Start and end are fitted to the M-Recalls minus
    MIDDLE. All validations have the same weight.
    """

    count: int = 0
    squares: float = 0.0
    _starts: Vector = field(default_factory=lambda: np.zeros(SHAPES))
    _both: Vector = field(default_factory=lambda: np.zeros(SHAPES))
    _ends: Vector = field(default_factory=lambda: np.zeros(SHAPES))
    _start_values: Vector = field(default_factory=lambda: np.zeros(SHAPES))
    _end_values: Vector = field(default_factory=lambda: np.zeros(SHAPES))

    def add(self, progress: float, m_recall: float) -> None:
        """progress: share of a whole training, in (0, 1]."""
        g, value = shapes_at(progress), m_recall - MIDDLE
        self.count += 1
        self.squares += value**2
        self._starts += (1 - g) ** 2
        self._both += (1 - g) * g
        self._ends += g**2
        self._start_values += (1 - g) * value
        self._end_values += g * value

    def ends(self, noise: float, log_prior: Vector) -> Ends:
        """noise: standard deviation of one validation, points, > 0. log_prior: (SHAPES,), of the shapes' weights."""
        _, end, evidence, variances = self._solved(noise)
        weights = np.exp((logs := log_prior + evidence) - logs.max())
        return Ends(weights / weights.sum(), end + MIDDLE, variances)

    def residual(self, noise: float) -> float:
        """Standard deviation of the validations around the best-fitting shape, points; three degrees of freedom are
        subtracted: two ends and the shape. inf where none is left."""
        if self.count < 4:
            return math.inf
        start, end, *_ = self._solved(noise)
        left = (
            self.squares - 2 * (start * self._start_values + end * self._end_values)
            + start**2 * self._starts + 2 * start * end * self._both + end**2 * self._ends
        )
        return math.sqrt(max(0.0, float(left.min())) / (self.count - 3))

    def _solved(self, noise: float) -> tuple[Vector, Vector, Vector, Vector]:
        """(start, end, evidence, variance of the end), each (SHAPES,). Start and end are relative to MIDDLE; the
        evidence is a logarithm."""
        precision, before = 1 / noise**2, 1 / WIDTH**2
        first, both, second = self._starts * precision + before, self._both * precision, self._ends * precision + before
        start_values, end_values = self._start_values * precision, self._end_values * precision
        determinant = first * second - both**2
        start = (second * start_values - both * end_values) / determinant
        end = (first * end_values - both * start_values) / determinant
        explained = start * start_values + end * end_values
        evidence = 0.5 * (explained - np.log(determinant))  # without the terms that all shapes share
        return start, end, evidence, first / determinant


USUAL_NOISE = 0.5
"""Standard deviation of one validation in points of M-Recall, used until the cell has its own estimate."""
_LEAST_NOISE = 0.05
_PARTS = 20
"""Number of parts of a training; predictions made in the same part are compared."""
_REMEMBERED = 100
"""Number of most recent full-length trials whose excess is stored, so that the cost of a decision does not grow."""


@dataclass
class _Followed:
    """A trial. guesses: part of the training -> final M-Recall last predicted in that part."""

    fit: CurveFit = field(default_factory=CurveFit)
    guesses: dict[int, float] = field(default_factory=dict)
    is_whole: bool = False


class ChanceToWin(StoppingRule):
    """Stops a trial at a validation at or after `grace_epochs` when its chance to end above the best M-Recall of all
    other trials is below `least_chance`. It stops no trial before `fewest_trials` full-length trials were predicted in
    the same part of their training.

    Two thirds of the prior weight are spread evenly over the shapes; full-length trials decide on the last third. So a
    slow starter unlike all others is stopped only on the evidence of its own curve.
    """

    def __init__(self, *, grace_epochs: float, least_chance: float, fewest_trials: int, epochs: float) -> None:
        """least_chance: in (0, 1)."""
        if not 0 < least_chance < 1:
            raise ValueError(f"prediction: got least chance {least_chance}, need one between 0 and 1")
        super().__init__(epochs)
        self._grace, self._least, self._fewest = grace_epochs, least_chance, fewest_trials
        self._trials: dict[str, _Followed] = {}
        self._noises = [USUAL_NOISE]
        self._leaders: list[tuple[float, str]] = []
        """The best two trials and their best M-Recall, the best first."""
        self._shapes = np.zeros(SHAPES)
        self._excess: list[deque[float]] = [deque(maxlen=_REMEMBERED) for _ in range(_PARTS)]
        """Part of the training -> points by which each full-length trial exceeded its predicted M-Recall, >= 0."""

    @property
    def noise(self) -> float:
        """Standard deviation of one validation in this cell, points: the median of USUAL_NOISE and the estimates from
        full-length trials."""
        return max(_LEAST_NOISE, self._noises[len(self._noises) // 2])

    def prediction(self, trial: str) -> Ends:
        """Where the curve of a trial may end. KeyError for one without a validation."""
        spread = np.full(SHAPES, 1 / SHAPES)
        pooled = (spread + self._shapes) / len(self._noises)
        return self._trials[trial].fit.ends(self.noise, np.log((2 * spread + pooled) / 3))

    def excess_at(self, epoch: float) -> Vector:
        """Points by which each full-length trial exceeded the M-Recall predicted in this part of its training. A trial
        that fell short counts as 0, because a shortfall of others is no reason to stop this one."""
        return np.array(self._excess[self._part(epoch)])

    def chance(self, trial: str, level: float) -> float | None:
        """The chance that a trial ends above a level, assuming that it exceeds its prediction by as much as one of the
        full-length trials did, each with equal probability. None with fewer than `fewest_trials` such trials."""
        excess = self.excess_at(self.courses[trial].epoch)
        if len(excess) < self._fewest:
            return None
        return self.prediction(trial).chance_above(level - excess, noise=self.noise)

    def decide(self, trial: str, course: Course) -> str:
        followed = self._trials.setdefault(trial, _Followed())
        followed.fit.add(min(course.epoch / self.epochs, 1.0), course.last)
        self._rank(trial, course.best)
        why = "" if followed.is_whole else self._verdict(trial, followed, course)
        if not why and not followed.is_whole and _comes_to_its_end(course, self.epochs):
            self._learn(followed, course)
        return why

    def _verdict(self, trial: str, followed: _Followed, course: Course) -> str:
        ends = self.prediction(trial)
        followed.guesses[self._part(course.epoch)] = max(ends.mean, course.best)
        if course.epoch < self._grace - SAME_EPOCH or len(self._leaders) < 2:
            return ""
        best, name = next(leader for leader in self._leaders if leader[1] != trial)
        chance = None if course.best >= best else self.chance(trial, best)
        if chance is None or chance >= self._least:
            return ""
        return (
            f"best {course.best:.1f} at epoch {course.epoch:g}, predicted to end at {ends.mean:.1f}; "
            f"{100 * chance:.2g} % to beat the {best:.1f} of {name}"
        )

    def _learn(self, followed: _Followed, course: Course) -> None:
        """Learn shape, noise and prediction errors from a full-length trial. One that collapsed gives no shape."""
        followed.is_whole = True
        if course.last > course.best / 2:
            residual = followed.fit.residual(self.noise)
            self._shapes += followed.fit.ends(self.noise, np.zeros(SHAPES)).weights
            insort(self._noises, residual if math.isfinite(residual) else USUAL_NOISE)
        for part, mean in followed.guesses.items():
            self._excess[part].append(max(0.0, course.best - mean))

    def _rank(self, trial: str, best: float) -> None:
        others = [leader for leader in self._leaders if leader[1] != trial]
        self._leaders = sorted([*others, (best, trial)], key=lambda leader: -leader[0])[:2]

    def _part(self, epoch: float) -> int:
        return min(_PARTS - 1, int(epoch / self.epochs * _PARTS + SAME_EPOCH))


def _comes_to_its_end(course: Course, epochs: float) -> bool:
    """Whether only the last validation is left. Rules do not receive the last validation, since no trial is stopped
    there."""
    gap = course.epoch - (course.epochs[-2] if len(course.epochs) > 1 else 0.0)
    return course.epoch + gap >= epochs - SAME_EPOCH
