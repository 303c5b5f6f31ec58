"""Page's (1954) cumulative sum over self-starting scores (Hawkins 1987); it finds small changes that last.

Scores are winsorised (Lucas & Crosier 1982): a single bad night is left to the band.
"""

from __future__ import annotations

import numpy as np

from vsetune.nightly.judging.arrays import Floats

LEAST_ALLOWANCE, MOST_ALLOWANCE = 0.25, 1.0


def allowance(smallest: Floats, scale: Floats) -> Floats:
    """Half the change that matters, in scores, which finds a change of that size fastest (Moustakides 1986)."""
    return np.clip(smallest / (2 * scale), LEAST_ALLOWANCE, MOST_ALLOWANCE)


def limit(allowance: Floats, nights: Floats) -> Floats:
    """Limit of the sum that one stream of quiet nights exceeds once in `nights` on average.

    Siegmund (1985), "Sequential Analysis", eq. 2.57: nights = (exp(2 k b) - 2 k b - 1) / (2 k^2), b = limit + 1.166.
    """
    target = 2 * allowance**2 * nights
    exponent = np.log1p(target)
    for _ in range(12):
        exponent = np.log1p(exponent + target)
    height: Floats = np.maximum(exponent / (2 * allowance) - 1.166, 0.0)
    return height
