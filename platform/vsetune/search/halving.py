"""Asynchronous successive halving of one cell: which trials stop early. Knows nothing of Ray or of Optuna.

The rule is that of Li et al. (2020) as Ray's ASHA has it, so that studies stop the same trials as before wherever the
two agree; docs/decisions/0028 says where they differ and why we have our own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from vsetune.metrics.curves import SAME_EPOCH


@dataclass
class _Progress:
    """A trial so far. decisions: (epoch, whether it was stopped there) of every validation, in order."""

    best: float = -math.inf
    decisions: list[tuple[float, bool]] = field(default_factory=list)
    highest_rung: int = -1

    @property
    def epoch(self) -> float:
        return self.decisions[-1][0] if self.decisions else -math.inf

    def decision_at(self, epoch: float) -> bool:
        return any(stopped for known, stopped in self.decisions if abs(known - epoch) <= SAME_EPOCH)


class Halving:
    """The rungs of one cell, and who reached them in which order.

    A rung stands at every grace_epochs * reduction_factor**k below `epochs`. What is recorded there is the best
    M-Recall of a trial up to its first validation at or after the rung. A validation that passes several rungs at once
    fills the highest of them only, and the lower ones never: they were not seen. A grace below the gap between
    validations therefore adds no rung that a later validation would fill with a value of a later epoch.

    A trial is stopped where its value is below the 1 - 1/reduction_factor quantile (linear between values) of those
    recorded at the rung before it. The first to arrive goes on, and so does a trial at or past `epochs`.

    Not thread-safe. ValueError for a validation that is not finite.
    """

    def __init__(self, *, grace_epochs: float, reduction_factor: float, epochs: float) -> None:
        """grace_epochs: > 0, epochs before which no trial stops. reduction_factor: > 1. epochs: of a whole trial."""
        if not grace_epochs > 0 or not reduction_factor > 1:
            raise ValueError(f"halving: got grace {grace_epochs} and factor {reduction_factor}, need > 0 and > 1")
        self._epochs = epochs
        self._keep = (1 - 1 / reduction_factor) * 100
        self._rungs: list[tuple[float, dict[str, float]]] = []
        while (rung := grace_epochs * reduction_factor ** len(self._rungs)) < epochs - SAME_EPOCH:
            self._rungs.append((rung, {}))
        self._trials: dict[str, _Progress] = {}

    def note(self, trial: str, epoch: float, m_recall: float) -> bool:
        """One validation of a trial, in the order of its curve. True: stop the trial here.

        A validation at or before the last one known changes nothing; the answer is the decision that was taken at it
        (False where there was none), so a process that died between a decision and its record takes it again.
        """
        if not math.isfinite(m_recall):
            raise ValueError(f"halving: trial {trial} at epoch {epoch:g}: got M-Recall {m_recall}, need a finite one")
        progress = self._trials.setdefault(trial, _Progress())
        if epoch <= progress.epoch + SAME_EPOCH:
            return progress.decision_at(epoch)
        progress.best = max(progress.best, m_recall)
        stops = self._fill(trial, epoch, progress) and epoch < self._epochs - SAME_EPOCH
        progress.decisions.append((epoch, stops))
        return stops

    def replay(self, trial: str, curve: Sequence[tuple[float, float]]) -> None:
        """A recorded curve of (epoch, M-Recall): fills the rungs it reached; nobody is stopped by it.

        Call it for finished, stopped and open trials alike, in the order of their configurations. That is the order in
        which trials arrive when one runs at a time, and then everything is as if the study had never been interrupted.
        With several at a time the order of arrival is not known any more; that of the configurations, in which they
        were started, takes its place. It touches no rung's values, and no decision but one: that at the last point
        of an open trial, which `note` of the same point asks for again.
        """
        for epoch, m_recall in curve:
            self.note(trial, epoch, m_recall)

    def rungs(self) -> dict[float, dict[str, float]]:
        """Rung (epoch) -> trial -> value recorded there, in the order of arrival. A copy."""
        return {rung: dict(recorded) for rung, recorded in self._rungs}

    def _fill(self, trial: str, epoch: float, progress: _Progress) -> bool:
        """Records the trial at the highest rung it has newly reached. Whether its value is below the cutoff there."""
        reached = sum(rung <= epoch + SAME_EPOCH for rung, _ in self._rungs) - 1
        if reached <= progress.highest_rung:
            return False
        progress.highest_rung = reached
        recorded = self._rungs[reached][1]
        is_below = bool(recorded) and progress.best < float(np.percentile(list(recorded.values()), self._keep))
        recorded[trial] = progress.best
        return is_below
