"""What was asked and told, kept in memory: for searches that end with their process, such as simulated ones."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import optuna

from vsetune.search.trial_storage import named_study


class MemoryTrials:
    """In the place of `SearchStorage`. Never locked, full or gone; not thread-safe."""

    shown = "memory"

    def __init__(self, *, studies: Sequence[str]) -> None:
        self.backend = optuna.storages.InMemoryStorage()
        self.studies = {name: named_study(self.backend, name) for name in studies}

    def guarded(self, doing: str, remedy: str) -> AbstractContextManager[None]:
        """Around every use; there is no database that could fail."""
        return nullcontext()

    def check_writable(self) -> None:
        """It always is."""
