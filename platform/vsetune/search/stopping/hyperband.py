"""Hyperband: halving that starts late for some trials, so that slow starters have a chance (Li et al. 2018)."""

from __future__ import annotations

from itertools import accumulate

from vsetune.files.hashes import sha256_hex
from vsetune.search.stopping.asha import Halving
from vsetune.search.stopping.rule import Course, StoppingRule


class Hyperband(StoppingRule):
    """Several halvings (brackets), each with a grace of grace_epochs * reduction_factor**k; the last stops no trial.

    The name of a trial alone decides its bracket, so a resumed study puts it into the same one. The shares of trials
    are such that all brackets take about the same number of epochs, as in the paper.
    """

    def __init__(self, *, grace_epochs: float, reduction_factor: float, epochs: float) -> None:
        super().__init__(epochs)
        graces = [grace_epochs]
        while graces[-1] * reduction_factor < epochs:
            graces.append(graces[-1] * reduction_factor)
        graces.append(epochs)
        self._brackets = [
            Halving(grace_epochs=grace, reduction_factor=reduction_factor, epochs=epochs) for grace in graces
        ]
        levels = len(graces)
        shares = [reduction_factor ** (levels - 1 - n) / (levels - n) for n in range(levels)]
        self._bounds = [share / sum(shares) for share in accumulate(shares)]

    def bracket_of(self, trial: str) -> int:
        """0 is the one that starts first."""
        place = int(sha256_hex(trial.encode())[:8], 16) / 2**32
        return next((n for n, bound in enumerate(self._bounds) if place < bound), len(self._bounds) - 1)

    def decide(self, trial: str, course: Course) -> str:
        number = self.bracket_of(trial)
        why = self._brackets[number].decide(trial, course)
        return why and f"bracket {number + 1}: {why}"
