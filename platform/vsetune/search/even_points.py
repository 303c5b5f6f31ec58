"""Points that cover a space more evenly than random ones: a scrambled Sobol sequence (Sobol 1967; Owen 1998)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from vsetune.config.study.domains import Value


def even_point(distributions: Mapping[str, BaseDistribution], number: int, *, seed: int) -> dict[str, Value]:
    """Point `number` (from 0) of the sequence with this seed; dimensions in the order of the names."""
    from scipy.stats import qmc  # takes 1.5 s, which commands and workers that ask for no point are spared

    names = sorted(distributions)
    sequence = qmc.Sobol(len(names), scramble=True, rng=np.random.default_rng(seed))
    if number:
        sequence.fast_forward(number)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # one point is no power of two
        place = sequence.random(1)[0]
    return {name: value_at(distributions[name], float(share)) for name, share in zip(names, place, strict=True)}


def value_at(distribution: BaseDistribution, share: float) -> Value:
    """share: in [0, 1), of the way from the low end to the high one, on a log scale where the range has one."""
    if isinstance(distribution, CategoricalDistribution):
        choices = distribution.choices
        chosen: Value = choices[min(int(share * len(choices)), len(choices) - 1)]  # type: ignore[assignment]
        return chosen
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    is_whole = isinstance(distribution, IntDistribution)
    low, high = (distribution.low - 0.5, distribution.high + 0.5) if is_whole else (distribution.low, distribution.high)
    if distribution.log:
        value = float(np.exp(np.log(low) + share * (np.log(high) - np.log(low))))
    else:
        value = low + share * (high - low)
    if is_whole:
        return int(np.clip(round(value), distribution.low, distribution.high))
    return float(np.clip(value, distribution.low, distribution.high))
