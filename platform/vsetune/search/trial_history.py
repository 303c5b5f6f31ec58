"""Every trial of a cell in order, as Optuna's samplers read them: made from the log's state when a sampler is asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, overload

from optuna.distributions import BaseDistribution, json_to_distribution
from optuna.trial import FrozenTrial, TrialState

from vsetune.metrics.curves import best_of_curve
from vsetune.records.events import CONSTRAINT_EXCESS, Drawn
from vsetune.records.state import Attempt
from vsetune.search.objectives import Objective

REFUSED = "refused"
"""Attribute of a sampled configuration that no spec accepts: the reason."""
DRAWN_BY = "drawn by"
"""Attribute of a sampled configuration: which sampler chose it, and from which history."""


class TrialHistory(Sequence[FrozenTrial]):
    """refused: number of configurations that no spec accepts; they are included, for samplers to learn from."""

    def __init__(
        self, trials: Iterable[FrozenTrial] = (), *, applying: Callable[[Mapping[str, Any]], dict[str, Any]] = dict
    ) -> None:
        """applying: reduces a configuration to the settings that have an effect; two are equal if these are equal."""
        self._trials: list[FrozenTrial] = []
        self._applying = applying
        self._drawn: dict[frozenset[tuple[str, Any]], int] = {}
        self.refused = 0
        for trial in trials:
            self.add(trial)

    def add(self, trial: FrozenTrial) -> None:
        self._trials.append(trial)
        self.refused += REFUSED in trial.user_attrs
        self._drawn.setdefault(self._key(trial.params), trial.number)

    @property
    def ended(self) -> int:
        """Trials that are not running, refused configurations included."""
        return sum(trial.state.is_finished() for trial in self._trials)

    @property
    def distinct(self) -> int:
        """How many different configurations were sampled for this study, refused ones included."""
        return len(self._drawn)

    def drawn_as(self, configuration: Mapping[str, Any]) -> int | None:
        """The number of the first trial of this study with an equal configuration, whatever its outcome; None where
        there is none."""
        return self._drawn.get(self._key(configuration))

    def _key(self, configuration: Mapping[str, Any]) -> frozenset[tuple[str, Any]]:
        return frozenset(self._applying(configuration).items())

    def __len__(self) -> int:
        return len(self._trials)

    def __iter__(self) -> Iterator[FrozenTrial]:
        return iter(self._trials)

    @overload
    def __getitem__(self, index: int) -> FrozenTrial: ...

    @overload
    def __getitem__(self, index: slice) -> list[FrozenTrial]: ...

    def __getitem__(self, index: int | slice) -> FrozenTrial | list[FrozenTrial]:
        return self._trials[index]


def optuna_trial(drawn: Drawn, ended: Attempt | None, objective: Objective) -> FrozenTrial:
    """A configuration as samplers see it. ended: the attempt with which its trial ended; None while it is open.

    finished: counts with the value of the objective. pruned: ranked by how far it got. With an objective other than the
    best M-Recall a pruned trial with a curve counts as finished, because its value accounts for a missed target. failed
    (its numbers were not finite), refused, or finished without a validation: counts like the worst pruned trial. A
    Gaussian process counts it as the median of the others. Optuna ignores trials that it knows as failed, and would
    sample there again and again.
    """
    state, value, points = TrialState.PRUNED, None, {}
    if ended is None and drawn.state != "refused":
        state = TrialState.RUNNING
    elif ended is not None and ended.status != "failed":
        curve = objective.sampler_curve(ended.curve, ended.summary.get(CONSTRAINT_EXCESS, 0.0))
        points = {round(1000 * epoch): m_recall for epoch, m_recall in reversed(curve)}
        if curve and (ended.status == "finished" or objective.kind != "best_m_recall"):
            state, value = TrialState.COMPLETE, float(best_of_curve(curve).m_recall)
        elif points and not math.isnan(last := points[max(points)]):
            value = float(last)
    at = datetime.fromtimestamp(drawn.at)
    return FrozenTrial(
        number=drawn.number, trial_id=drawn.number, state=state, value=value, datetime_start=at,
        datetime_complete=at if state.is_finished() else None, params=dict(drawn.configuration),
        distributions={name: distribution_in(text) for name, text in drawn.distributions.items()},
        user_attrs=dict(drawn.attributes), system_attrs={}, intermediate_values=dict(sorted(points.items())),
    )


@lru_cache(maxsize=1024)
def distribution_in(text: str) -> BaseDistribution:
    """The distribution that the log has in Optuna's JSON."""
    return json_to_distribution(text)


def worth_of(trial: FrozenTrial) -> float:
    """The value by which an ended trial is ranked in sampling: its value, or its best for a stopped trial, because
    stopping rules let it level off first; -inf where it reached nothing."""
    if trial.state == TrialState.COMPLETE and trial.values:
        return float(trial.values[0])
    return max((value for value in trial.intermediate_values.values() if math.isfinite(value)), default=-math.inf)
