"""Every trial of a cell in order, as arrays, with the queries that samplers make over all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

REFUSED = "refused"
"""Attribute of a trial whose configuration no spec accepts: the reason."""
TAUGHT = "taught by"
"""Attribute of a trial of another study: STUDY/TRIAL. It counts as a trial of the start phase, which it shortens."""
DRAWN_BY = "drawn by"
"""Attribute of a trial: which sampler chose it, and from which history."""
NOTES = "drawing"
"""Attribute of a trial: data about the draw that its sampler needs later."""


class TrialHistory(Sequence[FrozenTrial]):
    """Grows by `add`; `update` replaces a trial with its ended version. Trials in it are not modified.

    refused: draws that no spec accepts. taught: trials of other studies. Both are included, for samplers to learn from.
    columns: the same trials as arrays.
    """

    def __init__(
        self, trials: Iterable[FrozenTrial] = (), *, applying: Callable[[Mapping[str, Any]], dict[str, Any]] = dict
    ) -> None:
        """applying: reduces a configuration to the settings that have an effect; two are equal if these are equal."""
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
        """Replace the trial with this number by its current version. KeyError where there is none."""
        place = self._places[trial.number]
        self._trials[place] = trial
        self.columns.put(place, trial)

    @property
    def ended(self) -> int:
        """Trials that are not running, refused draws included."""
        return len(self._trials) - int(np.count_nonzero(self.columns.states == RUNNING))

    @property
    def own(self) -> int:
        """How many trials this study has sampled, refused draws included."""
        return len(self._trials) - self.taught

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


Floats = npt.NDArray[np.float64]

RUNNING, COMPLETE, PRUNED, IGNORED = 0, 1, 2, 3
_CODES = {TrialState.RUNNING: RUNNING, TrialState.COMPLETE: COMPLETE, TrialState.PRUNED: PRUNED}
_FIRST_ROOM = 64


class TrialColumns:
    """Entries in the order of the history; `put` at an existing place replaces the entry.

    is_plain: whether every trial has one objective and no constraint. Arrays are views, valid until the next `put`.
    """

    def __init__(self) -> None:
        self.size = 0
        self.is_plain = True
        self._states = np.empty(_FIRST_ROOM, dtype=np.int8)
        self._numbers = {name: np.empty(_FIRST_ROOM) for name in ("value", "step", "last")}
        self._settings: dict[str, Floats] = {}
        self._distributions: dict[str, BaseDistribution] = {}
        self._ended_with: dict[str, int] = {}
        self._ended = 0

    def put(self, place: int, trial: FrozenTrial) -> None:
        """place: at most `size`. The settings of a trial never change, so only its outcome is rewritten."""
        is_new = place == self.size
        if is_new:
            self._make_room(place + 1)
            self.size = place + 1
            self._put_settings(place, trial)
        had_ended = not is_new and self._states[place] in (COMPLETE, PRUNED)
        state = _CODES.get(trial.state, IGNORED)
        self._states[place] = state
        if state in (COMPLETE, PRUNED) and not had_ended:
            self._note_ended(trial)
        values = trial.values or []
        self.is_plain = self.is_plain and len(values) <= 1 and not getattr(trial, "constraints", None)
        self._numbers["value"][place] = values[0] if values else math.nan
        step, last = max(trial.intermediate_values.items(), default=(-1, 0.0))
        self._numbers["step"][place], self._numbers["last"][place] = step, last

    @property
    def states(self) -> npt.NDArray[np.int8]:
        return self._states[: self.size]

    @property
    def values(self) -> Floats:
        """Values of complete trials; meaningless for the others."""
        return self._numbers["value"][: self.size]

    @property
    def last_steps(self) -> Floats:
        """Epoch of the last validation, in thousandths of an epoch; -1 before the first."""
        return self._numbers["step"][: self.size]

    @property
    def last_values(self) -> Floats:
        return self._numbers["last"][: self.size]

    def setting(self, name: str) -> Floats:
        """In Optuna's internal representation, the index for choices; NaN where a trial lacks the setting."""
        return self._settings[name][: self.size]

    def in_all_ended(self) -> list[str]:
        """Settings, by name, that every ended trial has over the same range: the possible variables of a joint
        model."""
        return sorted(name for name, count in self._ended_with.items() if count == self._ended)

    def _put_settings(self, place: int, trial: FrozenTrial) -> None:
        for column in self._settings.values():
            column[place] = math.nan
        for name, value in trial.params.items():
            if name not in self._settings:
                self._settings[name] = np.full(len(self._states), math.nan)
            self._settings[name][place] = trial.distributions[name].to_internal_repr(value)

    def _note_ended(self, trial: FrozenTrial) -> None:
        self._ended += 1
        for name, distribution in trial.distributions.items():
            if self._distributions.setdefault(name, distribution) == distribution:
                self._ended_with[name] = self._ended_with.get(name, 0) + 1

    def _make_room(self, size: int) -> None:
        room = len(self._states)
        if size <= room:
            return
        self._states = np.concatenate([self._states, np.empty(room, dtype=np.int8)])
        for columns in (self._numbers, self._settings):
            for name, column in columns.items():
                columns[name] = np.concatenate([column, np.full(room, math.nan)])
