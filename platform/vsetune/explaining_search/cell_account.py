"""Epochs of a cell by the outcome of its trials, and the reasons why trials ended early."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from vsetune.explaining_search.search_spaces import SearchSpace
from vsetune.explaining_search.tried_trials import OUTCOMES, Outcome, TriedTrial
from vsetune.leaderboard.search_budgets import SearchBudget

_MOST_EXAMPLES = 3
_NOT_TOLD = "no reason recorded"


@dataclass(frozen=True)
class Account:
    """Use of the budget of a cell's search. budget: None where it is not known.

    epochs, trials: by outcome. lost: epochs lost to crashes and trained again, not charged. device_seconds: of all
    trials.
    """

    budget: SearchBudget | None
    epochs: Mapping[Outcome, float]
    trials: Mapping[Outcome, int]
    lost: float
    device_seconds: float

    @property
    def spent(self) -> float:
        return sum(self.epochs.values())

    @property
    def given(self) -> float | None:
        return None if self.budget is None else self.budget.epochs

    @property
    def left(self) -> float | None:
        return None if self.budget is None else self.budget.left


@dataclass(frozen=True)
class Ending:
    """Trials that ended the same way. kind: the rule that stopped them or "other", "errors" of failed trials,
    "interruptions" of open ones, "no reason recorded" of trials without a reason.

    epoch: median of their last validations. examples: (trial, reason) for up to three different reasons.
    """

    outcome: Outcome
    kind: str
    count: int
    epoch: float
    examples: tuple[tuple[str, str], ...]


def account_of(trials: Sequence[TriedTrial], space: SearchSpace) -> Account:
    seconds = sum(trial.device_seconds for trial in trials)
    budget = None
    if space.epochs is not None and space.epochs_of_a_trial is not None:
        whole = space.epochs_of_a_trial
        budget = SearchBudget(
            space.epochs, whole, sum(trial.epochs for trial in trials),
            sum(max(0.0, whole - trial.epochs) for trial in trials if trial.outcome == "failed"),
            all(trial.outcome != "open" for trial in trials),
            space.device_seconds is not None and seconds >= space.device_seconds,
        )
    return Account(
        budget, {each: sum(trial.epochs for trial in trials if trial.outcome == each) for each in OUTCOMES},
        Counter(trial.outcome for trial in trials), sum(trial.lost for trial in trials), seconds,
    )


def endings_of(trials: Sequence[TriedTrial]) -> list[Ending]:
    """Reasons why trials were stopped, failed or are open, by outcome and then by frequency."""
    groups: dict[tuple[Outcome, str], list[TriedTrial]] = {}
    for trial in trials:
        if trial.outcome in ("finished", "open") and not trial.reason:
            continue
        groups.setdefault((trial.outcome, _kind(trial)), []).append(trial)
    endings = [
        Ending(
            outcome, kind, len(group), median(trial.curve[-1][0] if trial.curve else 0.0 for trial in group),
            _examples(group),
        )
        for (outcome, kind), group in groups.items()
    ]
    return sorted(endings, key=lambda ending: (OUTCOMES.index(ending.outcome), -ending.count, ending.kind))


def _kind(trial: TriedTrial) -> str:
    """`Ending.kind` of a trial. All failures share one kind, and all interruptions."""
    if not trial.reason:
        return _NOT_TOLD
    if trial.outcome in ("failed", "open"):
        return "errors" if trial.outcome == "failed" else "interruptions"
    return trial.rule or "other"


def _examples(group: Sequence[TriedTrial]) -> tuple[tuple[str, str], ...]:
    by_reason = {trial.reason: trial.name for trial in reversed(group) if trial.reason}
    return tuple((name, reason) for reason, name in list(reversed(by_reason.items()))[:_MOST_EXAMPLES])
