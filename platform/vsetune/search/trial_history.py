"""Every whole trial of a cell in order, kept in memory between draws, with what samplers ask of all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np
from optuna.trial import FrozenTrial, TrialState

from vsetune.search.trial_columns import RUNNING, TrialColumns

REFUSED = "refused"
"""Attribute of a trial whose configuration no spec accepts: why."""
TAUGHT = "taught by"
"""Attribute of a trial of another study: STUDY/TRIAL. It counts as drawn, so that less of a start is needed."""
BEGINS_ANEW = "begins anew"
"""Attribute of what stands in a storage between the trials of a cell that count no more and those that do."""
DRAWN_BY = "drawn by"
"""Attribute of a trial: which sampler drew it, and what that had learnt from."""
NOTES = "drawing"
"""Attribute of a trial: what its sampler must know of the draw later."""


class TrialHistory(Sequence[FrozenTrial]):
    """Grows by `add`; a trial that has ended takes its place by `update`. Trials in it are not changed.

    refused: draws that no spec accepts; taught: trials of other studies; both are in it, for samplers to learn from.
    columns: the same as arrays.
    """

    def __init__(
        self, trials: Iterable[FrozenTrial] = (), *, applying: Callable[[Mapping[str, Any]], dict[str, Any]] = dict
    ) -> None:
        """applying: a configuration without the settings that have no effect in it; two are equal if these are."""
        self._trials: list[FrozenTrial] = []
        self._places: dict[int, int] = {}
        self._applying = applying
        self._drawn: dict[frozenset[tuple[str, Any]], int] = {}
        self.refused = self.taught = 0
        self.columns = TrialColumns()
        for trial in trials:
            self.add(trial)

    def add(self, trial: FrozenTrial) -> None:
        self._places[trial.number] = len(self._trials)
        self._trials.append(trial)
        self.refused += REFUSED in trial.user_attrs
        if TAUGHT in trial.user_attrs:
            self.taught += 1
        else:
            self._drawn.setdefault(self._key(trial.params), trial.number)
        self.columns.put(len(self._trials) - 1, trial)

    def update(self, trial: FrozenTrial) -> None:
        """The trial of this number, as it is now. KeyError where there is none."""
        place = self._places[trial.number]
        self._trials[place] = trial
        self.columns.put(place, trial)

    @property
    def ended(self) -> int:
        """Trials that are not running, refused draws included."""
        return len(self._trials) - int(np.count_nonzero(self.columns.states == RUNNING))

    @property
    def own(self) -> int:
        """Trials of this study, refused draws included: how many have been drawn."""
        return len(self._trials) - self.taught

    @property
    def distinct(self) -> int:
        """Configurations that were drawn for this study, refused ones included, equal ones once."""
        return len(self._drawn)

    def drawn_as(self, configuration: Mapping[str, Any]) -> int | None:
        """The number of the first trial of this study with an equal configuration, whatever became of it; None where it
        has none."""
        return self._drawn.get(self._key(configuration))

    def numbered(self, number: int) -> FrozenTrial | None:
        place = self._places.get(number)
        return None if place is None else self._trials[place]

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


def worth_of(trial: FrozenTrial) -> float:
    """What an ended trial counts with sampling that ranks: its value, of a stopped one its best, since the rules that
    stop one have seen it level off; -inf where it reached nothing."""
    if trial.state == TrialState.COMPLETE and trial.values:
        return float(trial.values[0])
    return max((value for value in trial.intermediate_values.values() if math.isfinite(value)), default=-math.inf)
