"""Asynchronous successive halving of one cell, and Hyperband, which starts it late for some trials."""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from vsetune.metrics.curves import SAME_EPOCH
from vsetune.search.stopping.rule import Course, StoppingRule
from vsetune.storage.hashes import sha256_hex


class Halving(StoppingRule):
    """The rungs of one cell, and which trials reached them in which order.

    A rung stands at every grace_epochs * reduction_factor**k below `epochs`. Its recorded value is the best M-Recall of
    a trial up to its first validation at or after the rung. A validation that passes several rungs at once fills only
    the highest of them; the lower ones stay empty for this trial. A grace below the gap between validations therefore
    adds no rung that a later validation would fill with a value of a later epoch.

    A trial is stopped where its value is below the 1 - 1/reduction_factor quantile (linear between values) of the
    values recorded at the rung before it. The first trial to arrive continues, and so does a trial at or past `epochs`.
    """

    def __init__(self, *, grace_epochs: float, reduction_factor: float, epochs: float) -> None:
        """grace_epochs: > 0, epochs before which no trial stops. reduction_factor: > 1. epochs: of a whole trial."""
        if not grace_epochs > 0 or not reduction_factor > 1:
            raise ValueError(f"halving: got grace {grace_epochs} and factor {reduction_factor}, need > 0 and > 1")
        super().__init__(epochs)
        self._keep = (1 - 1 / reduction_factor) * 100
        self._rungs: list[tuple[float, dict[str, float]]] = []
        while (rung := grace_epochs * reduction_factor ** len(self._rungs)) < epochs - SAME_EPOCH:
            self._rungs.append((rung, {}))
        self._highest: dict[str, int] = {}

    def rungs(self) -> dict[float, dict[str, float]]:
        """Rung (epoch) -> trial -> value recorded there, in the order of arrival. A copy."""
        return {rung: dict(recorded) for rung, recorded in self._rungs}

    def decide(self, trial: str, course: Course) -> str:
        """Records the trial at the highest rung it has newly reached."""
        reached = sum(rung <= course.epoch + SAME_EPOCH for rung, _ in self._rungs) - 1
        if reached <= self._highest.get(trial, -1):
            return ""
        self._highest[trial] = reached
        rung, recorded = self._rungs[reached]
        cutoff = float(np.percentile(list(recorded.values()), self._keep)) if recorded else -np.inf
        count = len(recorded)
        recorded[trial] = course.best
        if course.best >= cutoff:
            return ""
        earlier = "1 earlier trial" if count == 1 else f"{count} earlier trials"
        return f"{course.best:.1f} % at epoch {rung:g}, needs {cutoff:.1f} % ({earlier})"


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
