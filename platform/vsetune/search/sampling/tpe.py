"""The tree-structured Parzen estimator of Bergstra et al. (2011): samples where good trials are dense and others are
not.

The draw equals that of Optuna's sampler. Optuna makes it up to hundreds of trials; beyond, its loops over trial objects
take a tenth of a second, and the same draw is computed here from arrays.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import TPESampler

from vsetune.config.study.domains import Value
from vsetune.search.sampling.optuna_asking import asked
from vsetune.search.sampling.parzen_density import log_density
from vsetune.search.sampling.sampler import Draw, Sampler, SearchedSpace, learnt_from
from vsetune.search.trial_columns import COMPLETE, IGNORED, PRUNED, TrialColumns
from vsetune.search.trial_history import TrialHistory

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
