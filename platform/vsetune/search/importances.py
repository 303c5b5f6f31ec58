"""How much each searched setting of a cell matters for the best M-Recall, judged by the trials of its search."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.importance import FanovaImportanceEvaluator
from optuna.trial import TrialState, create_trial

from vsetune.config.spec.base import Domain
from vsetune.config.study.domains import contains
from vsetune.search.sampling.sampler import distribution_of

logging.getLogger("optuna").setLevel(logging.ERROR)

FEWEST = 10
"""Fewest trials for which importances are computed: with fewer, a forest finds shares in pure noise."""
MOST = 400
"""Most trials that are used, the latest ones: a forest of more takes seconds."""

FANOVA = (
    "fANOVA: the share of each setting alone in the variance over the whole range, by a random forest fitted to the "
    "trials that finished or levelled off, scaled to 100 % (Hutter, Hoos and Leyton-Brown, ICML 2014)"
)

Tried = Sequence[tuple[Mapping[str, Any], float]]
"""(configuration, best M-Recall in per cent) of every trial of a cell that finished, or that was stopped after its
M-Recall had levelled off."""


@dataclass(frozen=True)
class Importances:
    """shares: of every setting that could be judged, largest first, summing to 1; empty where none can be computed.

    method: which method, with its source. trials: how many it used. remark: why there are no shares, or which settings
    were left out; empty otherwise.
    """

    shares: Mapping[str, float] = field(default_factory=dict)
    method: str = ""
    trials: int = 0
    remark: str = ""


def importances_of(domains: Mapping[str, Domain], tried: Tried) -> Importances:
    """The importances of the settings with these domains. The same trials give the same numbers.

    Trials with a value outside its domain (of an earlier space, or edited by hand) are left out, and so are settings
    that some trials lack or that never changed.
    """
    inside = [(each, value) for each, value in tried if math.isfinite(value) and _is_inside(each, domains)][-MOST:]
    count = len(inside)
    if not domains:
        return Importances(remark="Nothing is searched in this cell.")
    if count < FEWEST:
        return Importances(trials=count, remark=(
            f"Importances need at least {FEWEST} trials that finished or levelled off, within the search ranges; there "
            f"{'is' if count == 1 else 'are'} {count}."
        ))
    judged = [name for name in domains if _varies(name, inside)]
    if not judged or len({value for _, value in inside}) == 1:
        what = "have the same settings" if not judged else "reached the same M-Recall"
        return Importances(trials=count, remark=f"All {count} trials {what}, so no setting stands out.")
    shares = _shares({name: distribution_of(domains[name]) for name in judged}, inside)
    others = [name for name in domains if name not in judged]
    remark = f"Not judged, because not every trial has them or they never changed: {', '.join(others)}."
    return Importances(shares, FANOVA, count, remark if others else "")


def _is_inside(configuration: Mapping[str, Any], domains: Mapping[str, Domain]) -> bool:
    return all(contains(domains[name], value) for name, value in configuration.items() if name in domains)


def _varies(name: str, tried: Tried) -> bool:
    values = [each.get(name) for each, _ in tried]
    return all(isinstance(value, bool | int | float | str) for value in values) and len(set(values)) > 1


def _shares(distributions: Mapping[str, BaseDistribution], tried: Tried) -> dict[str, float]:
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
    study.add_trials([
        create_trial(
            state=TrialState.COMPLETE, value=value, params={name: each[name] for name in distributions},
            distributions=dict(distributions),
        )
        for each, value in tried
    ])
    found = optuna.importance.get_param_importances(study, evaluator=FanovaImportanceEvaluator(seed=0))
    return dict(sorted(((name, float(share)) for name, share in found.items()), key=lambda pair: -pair[1]))
