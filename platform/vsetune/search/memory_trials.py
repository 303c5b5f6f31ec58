"""What was asked and told, kept in memory: for searches that end with their process, such as simulated ones."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from optuna.trial import FrozenTrial

from vsetune.search.trial_rows import numbered


class MemoryTrials:
    """In the place of `SearchStorage`. Never locked, full or gone; not thread-safe."""

    shown = "memory"

    def __init__(self, *, studies: Sequence[str]) -> None:
        self._trials: dict[str, dict[int, FrozenTrial]] = {name: {} for name in studies}

    def guarded(self, doing: str, remedy: str) -> AbstractContextManager[None]:
        """Around every use; there is no database that could fail."""
        return nullcontext()

    def trials(self, study: str) -> list[FrozenTrial]:
        """By number."""
        return [trial for _, trial in sorted(self._trials[study].items())]

    def add(self, study: str, trial: FrozenTrial, number: int | None = None) -> FrozenTrial:
        """The trial with its number. number: one that no trial has; None: the next."""
        trials = self._trials[study]
        number = max(trials, default=-1) + 1 if number is None else number
        trials[number] = numbered(trial, number, number)
        return trials[number]

    def end(self, study: str, before: FrozenTrial, told: FrozenTrial) -> None:
        self._trials[study][told.number] = told
