"""The interface of every rule of early stopping, and the state it keeps. Does not depend on Ray or Optuna."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from vsetune.metrics.curves import SAME_EPOCH


@dataclass
class BestCurve:
    """A trial so far. epochs, bests: of every validation, the best M-Recall up to it. decisions: why the trial was
    stopped there, empty where it was not. improved_at: epoch of the best validation, the first of equal ones.
    """

    epochs: list[float] = field(default_factory=list)
    bests: list[float] = field(default_factory=list)
    decisions: list[str] = field(default_factory=list)
    improved_at: float = -math.inf

    @property
    def epoch(self) -> float:
        return self.epochs[-1] if self.epochs else -math.inf

    @property
    def best(self) -> float:
        return self.bests[-1] if self.bests else -math.inf

    def best_until(self, epoch: float) -> float | None:
        """None for a trial that has not reached this epoch."""
        if self.epoch < epoch - SAME_EPOCH:
            return None
        seen = bisect_right(self.epochs, epoch + SAME_EPOCH)
        return self.bests[seen - 1] if seen else None

    def decision_at(self, epoch: float) -> str:
        return next((why for known, why in zip(self.epochs, self.decisions, strict=True)
                     if abs(known - epoch) <= SAME_EPOCH), "")

    def add(self, epoch: float, m_recall: float) -> None:
        if m_recall > self.best:
            self.improved_at = epoch
        self.bests.append(max(self.best, m_recall))
        self.epochs.append(epoch)


class StoppingRule(ABC):
    """The trials of one cell. Not thread-safe. ValueError for a validation that is not finite.

    curves: by name, in the order of their first validation.
    """

    def __init__(self, epochs: float) -> None:
        """epochs: of a full-length trial of this cell; a trial that has reached them is not stopped."""
        self.epochs = epochs
        self.curves: dict[str, BestCurve] = {}

    def note(self, trial: str, epoch: float, m_recall: float) -> str:
        """Add one validation of a trial, in the order of its curve. Returns why the trial stops here; empty: it
        continues.

        A validation at or before the last known one changes nothing; the original decision at it is returned (empty
        where there was none). So a process that died between a decision and its record makes the same decision again.
        """
        if not math.isfinite(m_recall):
            raise ValueError(f"trial {trial} at epoch {epoch:g}: got M-Recall {m_recall}, need a finite one")
        curve = self.curves.setdefault(trial, BestCurve())
        if epoch <= curve.epoch + SAME_EPOCH:
            return curve.decision_at(epoch)
        curve.add(epoch, m_recall)
        why = self.decide(trial, curve)
        curve.decisions.append(why if epoch < self.epochs - SAME_EPOCH else "")
        return curve.decisions[-1]

    def replay(self, trial: str, curve: Sequence[tuple[float, float]]) -> None:
        """Add a recorded curve of (epoch, M-Recall); it stops no trial.

        Call it for finished, stopped and open trials alike, in the order of their configurations. If one trial runs at
        a time, this is the order of arrival, and the state equals that of an uninterrupted study. If several run at a
        time, the order of arrival is unknown, and the order of their configurations, in which they were started,
        replaces it. Only the decision at the last point of each trial is stored; for an open trial, `note` of the same
        point returns it. At earlier points the trial continued, and it continues again when it repeats them from an
        older checkpoint.
        """
        for epoch, m_recall in curve:
            self.note(trial, epoch, m_recall)
        if trial in self.curves:
            decisions = self.curves[trial].decisions
            decisions[:-1] = [""] * (len(decisions) - 1)

    @abstractmethod
    def decide(self, trial: str, curve: BestCurve) -> str:
        """Why a trial stops at its last validation, which is already in `curve`; empty: it continues."""
