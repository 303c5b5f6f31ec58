"""Outcome of every configuration that the search of a cell has tried, from the tracking store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from vsetune.config.study.study_spec import ConstraintSpec
from vsetune.leaderboard.selection import Trial, cost_of, trials_of
from vsetune.metrics.curves import best_of_curve
from vsetune.records.attempts import SEARCH_VALUE, AttemptRecord
from vsetune.search.objectives import broken_limits

Outcome = Literal["finished", "stopped", "failed", "open"]
"""stopped: early, by a rule (`pruned` in the store). open: running, or interrupted and to be resumed."""

OUTCOMES: tuple[Outcome, ...] = ("finished", "stopped", "failed", "open")
_OUTCOMES: Mapping[str, Outcome] = {"finished": "finished", "pruned": "stopped", "failed": "failed"}


@dataclass(frozen=True)
class TriedTrial:
    """A trial of a search, by its latest attempt.

    curve: (epoch, M-Recall in per cent). best, best_epoch: None without a validation, and for a failed trial, whose
    results do not count. epochs: charged to the budget; lost: epochs lost to crashes and trained again, not charged.
    device_seconds: of all its attempts. reason: why it ended, one line of the store; empty where none is recorded.
    value: the value that the search maximises, by default `best`. breaks: the constraints that it violates, in words.
    """

    name: str
    configuration: Mapping[str, Any]
    outcome: Outcome
    curve: tuple[tuple[float, float], ...]
    best: float | None
    best_epoch: float | None
    epochs: float
    lost: float
    device_seconds: float
    reason: str
    value: float | None = None
    breaks: tuple[str, ...] = ()

    @property
    def rule(self) -> str:
        """The part of the reason before the first colon: for a stopped trial, the rule that stopped it."""
        return self.reason.partition(": ")[0] if ": " in self.reason else ""


def searches_of(attempts: Sequence[AttemptRecord]) -> dict[str, list[Trial]]:
    """The trials of the search by cell, in the order in which they started, without confirming runs."""
    found: dict[str, list[Trial]] = {}
    for trial in trials_of(attempts):
        if trial[-1].start.phase == "search":
            found.setdefault(trial[-1].start.cell, []).append(trial)
    return found


def tried(trial: Trial, constraints: ConstraintSpec | None = None) -> TriedTrial:
    """All attempts of a trial as one. constraints: of the study."""
    last, cost = trial[-1], cost_of([trial])
    outcome = _OUTCOMES.get(last.status, "open")
    curve = next((attempt.curve for attempt in reversed(trial) if attempt.curve), ())
    best = best_of_curve(curve) if curve and outcome != "failed" else None
    return TriedTrial(
        last.start.trial, last.start.configuration, outcome, curve, best.m_recall if best else None,
        best.epoch if best else None, cost.budget_epochs, cost.wasted_epochs, cost.device_seconds,
        last.error or "", last.summary.get(SEARCH_VALUE, best.m_recall) if best else None,
        tuple(broken_limits(constraints, last.summary)) if constraints is not None else (),
    )
