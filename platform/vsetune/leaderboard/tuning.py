"""How good the search of a cell was expected to be after fewer trials, or fewer epochs: fair to what was tuned less."""

from __future__ import annotations

from collections.abc import Sequence

from vsetune.leaderboard.rows import Cost
from vsetune.leaderboard.search_budgets import SearchBudget
from vsetune.leaderboard.selection import Trial, configuration_key, keeps_constraints, usable
from vsetune.metrics.best_of_k import Tried, TuningCurves, tuning_curves
from vsetune.records.attempts import SEARCH_VALUE

_OVER = ("finished", "pruned", "failed")


def tuning_of(trials: Sequence[Trial], costs: Sequence[Cost], budget: SearchBudget | None) -> TuningCurves | None:
    """trials: of one cell. costs: of each. Of its search those that are over count, with the best validation M-Recall
    of each; one that failed or breaks a constraint took its epochs and found nothing, 0 %.

    None for fewer than two configurations, and for a search that maximised anything but M-Recall: it did not look for
    this number.
    """
    over = [
        (trial, cost) for trial, cost in zip(trials, costs, strict=True)
        if trial[-1].start.phase == "search" and trial[-1].status in _OVER
    ]
    if not _has_several([trial for trial, _ in over]) or any(SEARCH_VALUE in trial[-1].summary for trial, _ in over):
        return None
    tried = [
        Tried(trial[-1].curve if usable(trial) and keeps_constraints(trial[-1]) else (), cost.budget_epochs)
        for trial, cost in over
    ]
    return tuning_curves(tried, budget_epochs=budget.epochs if budget is not None else None)


def _has_several(trials: Sequence[Trial]) -> bool:
    """Whether they have more than one configuration; of many the second trial mostly tells."""
    keys = (configuration_key(trial[-1]) for trial in trials)
    first = next(keys, None)
    return any(key != first for key in keys)
