"""Every trial of a cell in order, in memory between draws, with the queries that samplers make over all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

from optuna.trial import FrozenTrial, TrialState

REFUSED = "refused"
"""Attribute of a trial whose configuration no spec accepts: the reason."""
DRAWN_BY = "drawn by"
"""Attribute of a trial: which sampler chose it, and from which history."""


class TrialHistory(Sequence[FrozenTrial]):
    """Grows by `add`; `update` replaces a trial with its ended version. Trials in it are not modified.

    refused: draws that no spec accepts; included, for samplers to learn from.
    """

    def __init__(
        self, trials: Iterable[FrozenTrial] = (), *, applying: Callable[[Mapping[str, Any]], dict[str, Any]] = dict
    ) -> None:
        """applying: reduces a configuration to the settings that have an effect; two are equal if these are equal."""
        self._trials: list[FrozenTrial] = []
        self._places: dict[int, int] = {}
        self._applying = applying
        self._drawn: dict[frozenset[tuple[str, Any]], int] = {}
        self.refused = 0
        for trial in trials:
            self.add(trial)

    def add(self, trial: FrozenTrial) -> None:
        self._places[trial.number] = len(self._trials)
        self._trials.append(trial)
        self.refused += REFUSED in trial.user_attrs
        self._drawn.setdefault(self._key(trial.params), trial.number)

    def update(self, trial: FrozenTrial) -> None:
        """Replace the trial with this number by its current version. KeyError where there is none."""
        self._trials[self._places[trial.number]] = trial

    @property
    def ended(self) -> int:
        """Trials that are not running, refused draws included."""
        return sum(trial.state.is_finished() for trial in self._trials)

    @property
    def distinct(self) -> int:
        """How many different configurations were sampled for this study, refused ones included."""
        return len(self._drawn)

    def drawn_as(self, configuration: Mapping[str, Any]) -> int | None:
        """The number of the first trial of this study with an equal configuration, whatever its outcome; None where
        there is none."""
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
    """The value by which an ended trial is ranked in sampling: its value, or its best for a stopped trial, because
    stopping rules let it level off first; -inf where it reached nothing."""
    if trial.state == TrialState.COMPLETE and trial.values:
        return float(trial.values[0])
    return max((value for value in trial.intermediate_values.values() if math.isfinite(value)), default=-math.inf)
