"""Possible rest of a learning curve: a family of shapes, each fitted by least squares and weighted by its fit.

A curve goes from its start to its end along a shape: (1 - g) * start + g * end, where g rises from 0 at the beginning
of a training to 1 at its end. Kinds of g, each from fast to so slow that it does not level off within a training: 1 -
exp(-(t/s)**d), an exponential for d = 1 and with a slow start for d = 1.5 and 2; and a power law, 1 - (1 + t/s)**-0.5.
t: epochs / epochs of a full-length trial. They are among the families of Domhan et al. (2015).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

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
        """The probability that a validation at the end is above a level; the mean over several levels. noise: of a
        validation, points, > 0."""
        apart = self.means - np.reshape(levels, (-1, 1))
        return float((ndtr(apart / np.sqrt(self.variances + noise**2)) @ self.weights).mean())


@dataclass
class CurveFit:
    """Least-squares sums of one curve for every shape; adding a validation takes constant time. For a shape with values
    g the regression is unweighted: rows (1 - g, g) against the M-Recall minus MIDDLE."""

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
        """Start and end of every shape less MIDDLE, the logarithm of its evidence, the variance of its end."""
        precision, before = 1 / noise**2, 1 / WIDTH**2
        first, both, second = self._starts * precision + before, self._both * precision, self._ends * precision + before
        start_values, end_values = self._start_values * precision, self._end_values * precision
        determinant = first * second - both**2
        start = (second * start_values - both * end_values) / determinant
        end = (first * end_values - both * start_values) / determinant
        explained = start * start_values + end * end_values
        evidence = 0.5 * (explained - np.log(determinant))  # less what is the same for every shape
        return start, end, evidence, first / determinant
