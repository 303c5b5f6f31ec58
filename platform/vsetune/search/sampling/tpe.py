"""The tree-structured Parzen estimator of Bergstra et al. (2011), with its density."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import TPESampler
from scipy.special import ndtr

from vsetune.config.study.domains import Value
from vsetune.search.sampling.optuna_asking import asked
from vsetune.search.sampling.sampler import Draw, Sampler, SearchedSpace, learnt_from
from vsetune.search.trial_history import COMPLETE, IGNORED, PRUNED, TrialColumns, TrialHistory

FROM_ARRAYS_FROM = 200
"""Number of trials of a cell from which draws are computed from arrays."""
_CANDIDATES = 24

Places = npt.NDArray[np.intp]


class ParzenDraws(Sampler):
    name = "tpe"

    def draw(self, space: SearchedSpace, history: TrialHistory) -> Draw:
        seed, columns = space.seed_at(len(history)), history.columns
        sampler = TPESampler(seed=seed, n_startup_trials=0, constant_liar=True)
        if len(history) >= FROM_ARRAYS_FROM and columns.is_plain and _is_known(sampler):
            drawn = _from_arrays(sampler, space.distributions, columns)
        else:
            drawn = asked(sampler, space.distributions, history)
        return Draw(drawn, f"tpe: model of {learnt_from(history)}")


def _is_known(sampler: TPESampler) -> bool:
    """Whether this version of Optuna has the parts that are used here; otherwise Optuna's slower sampler is used."""
    parts = ("_parzen_estimator_cls", "_parzen_estimator_parameters", "_rng")
    return optuna.__version__.startswith("5.") and all(hasattr(sampler, part) for part in parts)


def _from_arrays(
    sampler: TPESampler, distributions: Mapping[str, BaseDistribution], columns: TrialColumns
) -> dict[str, Value]:
    """As `asked`: the settings that every ended trial has are sampled jointly, each of the others among the trials that
    have it."""
    good, others = _split(columns)
    joint = [name for name in columns.in_all_ended() if name in distributions and not distributions[name].single()]
    found: dict[str, Any] = _sampled(sampler, {name: distributions[name] for name in joint}, columns, good, others)
    drawn: dict[str, Value] = {}
    for name, distribution in distributions.items():
        if distribution.single():
            drawn[name] = distribution.to_external_repr(distribution.to_internal_repr(_only_value(distribution)))
        elif name in found:
            drawn[name] = found[name]
        else:
            drawn[name] = _sampled(sampler, {name: distribution}, columns, good, others)[name]
    return drawn


def _only_value(distribution: Any) -> Any:
    return distribution.choices[0] if hasattr(distribution, "choices") else distribution.low


def _split(columns: TrialColumns) -> tuple[Places, Places]:
    """Places of the good trials and of all others, in order. Complete trials are ranked by value, then stopped ones by
    their last epoch and their value there; running ones are assumed to be bad."""
    states = columns.states
    complete, pruned = np.flatnonzero(states == COMPLETE), np.flatnonzero(states == PRUNED)
    count = min(math.ceil(0.1 * (len(complete) + len(pruned))), 25)
    good = complete[_first(-columns.values[complete], count)]
    if len(good) < count:
        steps, last = columns.last_steps[pruned], columns.last_values[pruned]
        rank = np.where(np.isnan(last), math.inf, -last)
        order = np.lexsort((np.where(steps < 0, 0.0, rank), np.where(steps < 0, 1.0, -steps)))
        good = np.concatenate([good, pruned[order[: count - len(good)]]])
    is_other = states != IGNORED
    is_other[good] = False
    return np.sort(good), np.flatnonzero(is_other)


def _first(keys: npt.NDArray[np.float64], count: int) -> Places:
    """Places of the smallest keys, the earlier one of equal keys."""
    if count >= len(keys):
        return np.arange(len(keys))
    limit = np.partition(keys, count - 1)[count - 1]
    below = np.flatnonzero(keys < limit)
    return np.concatenate([below, np.flatnonzero(keys == limit)[: count - len(below)]])


def _sampled(
    sampler: TPESampler, space: Mapping[str, BaseDistribution], columns: TrialColumns, good: Places, others: Places
) -> dict[str, Any]:
    """The best candidate sampled from the density of the good trials, in Optuna's external representation."""
    if not space:
        return {}
    near: Any = sampler._parzen_estimator_cls(
        dict(zip(space, _observed(space, columns, good), strict=True)), dict(space),
        sampler._parzen_estimator_parameters,
    )
    candidates = near.sample(sampler._rng.rng, _CANDIDATES)
    points = np.array([candidates[name] for name in space])
    gain = near.log_pdf(candidates) - log_density(points, _observed(space, columns, others), list(space.values()))
    best = int(np.argmax(gain))
    return {
        name: distribution.to_external_repr(candidates[name][best].item()) for name, distribution in space.items()
    }


def _observed(
    space: Mapping[str, BaseDistribution], columns: TrialColumns, places: Places
) -> Sequence[npt.NDArray[np.float64]]:
    """Values of each setting in the trials at these places that have all of them."""
    values = [columns.setting(name)[places] for name in space]
    has_all = ~np.isnan(values).any(axis=0)
    return values if has_all.all() else [each[has_all] for each in values]


Floats = npt.NDArray[np.float64]
_FULL_WEIGHT = 25
"""Number of latest observations with full weight; the weight of older ones falls with their age."""

_NOTHING = -60.0
"""Logarithm of a share too small to change a sum; computing with smaller ones takes ten times as long."""
_NARROW = 0.2
"""Width of an interval, in standard deviations, up to which three points give its mass to ten digits."""


def log_density(points: Floats, observations: Sequence[Floats], distributions: Sequence[BaseDistribution]) -> Floats:
    """Log density of each point, (points,). points: (settings, points) and observations: (settings, observations), in
    Optuna's internal representation; at least one observation. A uniform or wide prior is added, with the weight of
    one.
    """
    count = len(observations[0])
    kernels = np.log(_weights(count))
    terms = np.zeros((points.shape[1], count + 1))
    left: list[Floats] = []
    right: list[Floats] = []
    for at, seen, distribution in zip(points, observations, distributions, strict=True):
        if isinstance(distribution, CategoricalDistribution):
            _add_choices(terms, at, seen, len(distribution.choices))
            continue
        assert isinstance(distribution, FloatDistribution | IntDistribution)
        low, high, step = _bounds(distribution)
        turn = np.log if distribution.log else np.asarray
        middles, widths = _kernels(turn(seen), low, high)
        kernels -= np.log(ndtr((high - middles) / widths) - ndtr((low - middles) / widths))
        if step:
            _add_steps(terms, turn(at - step / 2), turn(at + step / 2), middles, widths)
            continue
        kernels -= np.log(widths) + 0.5 * math.log(2 * math.pi)
        place, middles = (turn(at) - low) / (high - low), (middles - low) / (high - low)
        narrow = ((high - low) / widths) ** 2
        left += [place**2, place]
        right += [-0.5 * narrow, middles * narrow]
        kernels -= 0.5 * middles**2 * narrow
    if left:  # not `@`: threads that wait for one another take longer than the product of so few points
        terms += np.einsum("fp,fo->po", np.array(left), np.array(right), optimize=False)
    terms += kernels
    top = terms.max(axis=1)
    terms -= top[:, None]
    np.maximum(terms, _NOTHING, out=terms)
    np.exp(terms, out=terms)
    return np.asarray(np.log(terms.sum(axis=1)) + top)


def _weights(count: int) -> Floats:
    """Weights of the observations in order, and of the prior; they sum to 1."""
    if count < _FULL_WEIGHT:
        weights = np.ones(count + 1)
    else:
        weights = np.concatenate([np.linspace(1.0 / count, 1.0, num=count - _FULL_WEIGHT), np.ones(_FULL_WEIGHT + 1)])
    return np.asarray(weights / weights.sum())


def _bounds(distribution: FloatDistribution | IntDistribution) -> tuple[float, float, float]:
    """Ends on the scale of the range, and the step; 0 for none. Whole numbers extend the range by half a step at each
    end."""
    step = float(distribution.step or 0.0)
    low, high = distribution.low - step / 2, distribution.high + step / 2
    return (math.log(low), math.log(high), step) if distribution.log else (low, high, step)


def _kernels(seen: Floats, low: float, high: float) -> tuple[Floats, Floats]:
    """Means and widths, the prior's last. A kernel is as wide as the distance to the farther of its neighbours."""
    order = np.argsort(seen)
    ends = np.concatenate([[low], seen[order], [high]])
    gaps = np.diff(ends)
    wide = np.maximum(gaps[:-1], gaps[1:])
    if len(ends) >= 4:
        wide[0], wide[-1] = gaps[1], gaps[-2]
    widths = np.empty(len(seen) + 1)
    widths[order] = wide
    widths[-1] = high - low
    narrowest = (high - low) / min(100.0, 2.0 + len(seen))
    return np.append(seen, 0.5 * (low + high)), np.clip(widths, narrowest, high - low)


def _add_choices(terms: Floats, at: Floats, seen: Floats, choices: int) -> None:
    """terms: (points, observations + 1). The density is high at an observation's own choice and low at the others."""
    count = len(seen) + 1
    low = 1 / count / (1 + choices / count)
    high = low + 1 / (1 + choices / count)
    terms[:, :-1] += (at[:, None] == seen) * math.log(high / low) + math.log(low)
    terms[:, -1] -= math.log(choices)


def _add_steps(terms: Floats, low: Floats, high: Floats, middles: Floats, widths: Floats) -> None:
    """Mass between two ends around each whole number. Equal kernels are computed once: there are few whole numbers."""
    places, which = np.unique(low, return_inverse=True)
    ends = high[np.unique(low, return_index=True)[1]]
    kernels, whose = np.unique(middles + 1j * widths, return_inverse=True)
    below = (places[:, None] - kernels.real) / kernels.imag
    above = (ends[:, None] - kernels.real) / kernels.imag
    terms += _log_mass(below, above)[np.ix_(which, whose)]


def _log_mass(below: Floats, above: Floats) -> Floats:
    """Log mass of the normal distribution between the two ends. For a narrow interval by three-point Gauss-Legendre
    quadrature, otherwise from its ends, mirrored in the upper tail."""
    wide = above - below
    if wide.max() < _NARROW:
        at = 0.5 * (below + above)
        outer = np.exp(-0.075 * wide**2) * np.cosh(math.sqrt(0.15) * at * wide)
        return np.asarray(np.log(wide * (4 + 5 * outer) / 9) - 0.5 * at**2 - 0.5 * math.log(2 * math.pi))
    is_upper = below + above > 0
    below, above = np.where(is_upper, -above, below), np.where(is_upper, -below, above)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(ndtr(above) - ndtr(below)))
