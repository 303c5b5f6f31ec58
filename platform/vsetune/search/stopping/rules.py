"""The stopping rules that a study can name, and the choice among them."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from itertools import accumulate

import numpy as np

from vsetune.config.study.study_spec import SchedulerSpec
from vsetune.home.hashes import sha256_hex
from vsetune.metrics.curves import SAME_EPOCH
from vsetune.search.stopping.rule import BestCurve, StoppingRule


class Halving(StoppingRule):
    """The rungs of one cell, and which trials reached them in which order.

    A rung stands at every grace_epochs * reduction_factor**k below `epochs`. Its recorded value is the best M-Recall of
    a trial up to its first validation at or after the rung. A validation that passes several rungs at once fills only
    the highest of them; the lower ones stay empty for this trial. So rungs below the first validation compare nothing.

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

    def decide(self, trial: str, curve: BestCurve) -> str:
        """Records the trial at the highest rung it has newly reached."""
        reached = sum(rung <= curve.epoch + SAME_EPOCH for rung, _ in self._rungs) - 1
        if reached <= self._highest.get(trial, -1):
            return ""
        self._highest[trial] = reached
        rung, recorded = self._rungs[reached]
        cutoff = float(np.percentile(list(recorded.values()), self._keep)) if recorded else -np.inf
        count = len(recorded)
        recorded[trial] = curve.best
        if curve.best >= cutoff:
            return ""
        earlier = "1 earlier trial" if count == 1 else f"{count} earlier trials"
        return f"{curve.best:.1f} % at epoch {rung:g}, needs {cutoff:.1f} % ({earlier})"


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

    def decide(self, trial: str, curve: BestCurve) -> str:
        number = self.bracket_of(trial)
        why = self._brackets[number].decide(trial, curve)
        return why and f"bracket {number + 1}: {why}"


_MOST_MARKS = 256
"""Most epochs for which the sorted M-Recalls of all trials are stored. Trials of one cadence are validated at the same
epochs; beyond the limit, all trials are searched instead."""


class PatienceOverMedian(StoppingRule):
    """Patience combined with the median rule of Golovin et al. (2017). A slow starter continues as long as its M-Recall
    rises. Successive halving stops it (docs/search.md): an early comparison measures which trial starts first, not
    which reaches the highest M-Recall.

    Stops a trial at a validation at or after `grace_epochs` when its best M-Recall is at least `patience_epochs` old
    and below the median of the best M-Recalls that the other trials of the cell had by that epoch. At least
    `fewest_trials` others must have reached it. With a patience of 0 it is the median rule.
    """

    def __init__(
        self, *, grace_epochs: float, patience_epochs: float, fewest_trials: int, epochs: float
    ) -> None:
        super().__init__(epochs)
        self._grace, self._patience, self._fewest = grace_epochs, patience_epochs, fewest_trials
        self._marks: list[float] = []
        self._reached: list[list[float]] = []

    def decide(self, trial: str, curve: BestCurve) -> str:
        self._pass_marks(curve)
        waited = curve.epoch - curve.improved_at
        if curve.epoch < self._grace - SAME_EPOCH or waited < self._patience - SAME_EPOCH:
            return ""
        reached = self._reached_by(curve.epoch)
        others = len(reached) - 1
        if others < self._fewest or curve.best >= (middle := _middle_of_others(reached, curve.best)):
            return ""
        best = f"{curve.best:.1f} of epoch {curve.improved_at:g}" if waited else f"{curve.best:.1f}"
        return f"best {best}, below the median {middle:.1f} of {others} others at epoch {curve.epoch:g}"

    def _pass_marks(self, curve: BestCurve) -> None:
        """Add the trial's best M-Recall at every mark that its last validation passes."""
        before = curve.epochs[-2] + SAME_EPOCH if len(curve.epochs) > 1 else float("-inf")
        for place in range(bisect_right(self._marks, before), bisect_right(self._marks, curve.epoch + SAME_EPOCH)):
            reached = curve.best_until(self._marks[place])
            if reached is not None:
                insort(self._reached[place], reached)

    def _reached_by(self, epoch: float) -> list[float]:
        """Best M-Recalls by `epoch` of all trials that reached it, ascending. Must not be modified."""
        place = bisect_left(self._marks, epoch)
        if place < len(self._marks) and self._marks[place] == epoch:
            return self._reached[place]
        found = sorted(
            reached for curve in self.curves.values() if (reached := curve.best_until(epoch)) is not None
        )
        if len(self._marks) < _MOST_MARKS:
            self._marks.insert(place, epoch)
            self._reached.insert(place, found)
        return found


def _middle_of_others(ordered: list[float], own: float) -> float:
    """Median of all entries except one that equals `own`; -inf where there is no other, so that no trial is below
    it."""
    others, place = len(ordered) - 1, bisect_left(ordered, own)
    if not others:
        return -math.inf
    half = others // 2
    middle, before = (ordered[at + (at >= place)] for at in (half, half - 1))
    return middle if others % 2 else (before + middle) / 2


def stopping_rule(spec: SchedulerSpec, *, epochs: float) -> StoppingRule | None:
    """The rule for one cell, whose full-length trials take `epochs`. None: no trial is stopped early."""
    if spec.kind == "none":
        return None
    grace = spec.grace_in(epochs)
    if spec.kind == "asha":
        return Halving(grace_epochs=grace, reduction_factor=spec.reduction_factor, epochs=epochs)
    if spec.kind == "hyperband":
        return Hyperband(grace_epochs=grace, reduction_factor=spec.reduction_factor, epochs=epochs)
    return PatienceOverMedian(
        grace_epochs=grace, patience_epochs=spec.patience_epochs if spec.kind == "patience" else 0.0,
        fewest_trials=spec.fewest_trials, epochs=epochs,
    )
