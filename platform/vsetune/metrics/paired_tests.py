"""Tests of a loss against the baseline, seed by seed, and their correction over many comparisons.

All are two-sided. One pair of seeds never decides: both tests give 1 for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy

from vsetune.metrics.seed_intervals import deviate


def paired_t(differences: Sequence[float]) -> float:
    """P-value of a mean difference of 0 (Student 1908): two-sided t of mean / (s / sqrt(n)) with n - 1 degrees.

    1 for a single difference, and for differences that are equal up to rounding, which have no deviation.
    """
    values = np.asarray(differences, dtype=np.float64)
    if len(values) < 2 or not deviate(values):
        return 1.0
    statistic = abs(values.mean()) * math.sqrt(len(values)) / values.std(ddof=1)
    return float(min(1.0, 2 * scipy.special.stdtr(len(values) - 1, -statistic)))


def sign_test(sooner: int, later: int) -> float:
    """P-value of both being equally likely: 2 P(Binomial(n, 1/2) <= the smaller count), n = their sum, at most 1.

    Ties are left out beforehand (Conover 1999, 3.4).
    """
    return float(min(1.0, 2 * scipy.special.bdtr(min(sooner, later), sooner + later, 0.5)))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for all comparisons together (Holm 1979), which controls the family-wise error rate.

    The k-th smallest of m is multiplied by m - k + 1, and is never below an earlier one and at most 1.
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    corrected, largest = [1.0] * len(p_values), 0.0
    for place, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[index]))
        corrected[index] = largest
    return corrected


def seeds_to_decide(comparisons: int, *, alpha: float) -> int:
    """The fewest seeds whose sign test can reach alpha as the first of so many comparisons: 2^(1 - n) m <= alpha."""
    return math.ceil(1 + math.log2(max(comparisons, 1) / alpha) - 1e-12)
