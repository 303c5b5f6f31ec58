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
        self._trials: dict[str, list[FrozenTrial]] = {name: [] for name in studies}

    def guarded(self, doing: str, remedy: str) -> AbstractContextManager[None]:
        """Around every use; there is no database that could fail."""
        return nullcontext()

    def trials(self, study: str) -> list[FrozenTrial]:
        """In order."""
        return list(self._trials[study])

    def add(self, study: str, trial: FrozenTrial) -> FrozenTrial:
        """The trial with its number."""
        trials = self._trials[study]
        trials.append(numbered(trial, len(trials), len(trials)))
        return trials[-1]

    def end(self, study: str, before: FrozenTrial, told: FrozenTrial) -> None:
        self._trials[study][told.number] = told
