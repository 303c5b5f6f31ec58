"""What the page draws of searches that had ended sooner, and of performance profiles; the tables of both stand in
`tuning_table.py`, with the same thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vsetune.leaderboard import wording
from vsetune.leaderboard.rows import Leaderboard, Row
from vsetune.leaderboard.table_text import in_order, row_key
from vsetune.leaderboard.tuning_table import profile_table, tuning_table
from vsetune.metrics.best_of_k import ExpectedBest


def tuning_charts(leaderboard: Leaderboard) -> dict[str, Any]:
    """Expected best M-Recall of every search after fewer trials and fewer epochs."""
    table = tuning_table(leaderboard)
    if table is None:
        return {"notes": [], "series": []}
    shown = [row for _, row in in_order(leaderboard) if row.tuning is not None and row.tuning.trials > 1]
    return {"notes": table.notes, "series": [_searched(row) for row in shown]}


def profile_chart(leaderboard: Leaderboard) -> dict[str, Any] | None:
    """Share of the tasks on which a loss is within a factor of the soonest; None for fewer than two tasks."""
    profile = leaderboard.profile
    table = profile_table(profile, leaderboard.baseline)
    if table is None or profile is None:
        return None
    lines = []
    for each in profile.losses:
        steps = [(1.0, 0.0), *each.steps]
        last = max(share for _, share in steps)
        lines.append({
            "loss": each.loss, "score": each.score, "words": f"{each.loss}: score {wording.fixed(each.score, 2)}",
            "steps": [*steps, (profile.largest_factor, last)],
        })
    return {"title": table.title, "notes": table.notes, "lines": lines}


def _searched(row: Row) -> dict[str, Any]:
    tuning = row.tuning
    assert tuning is not None
    return {
        "key": row_key(row), "trials": _points(row, tuning.after_trials, "trials", 0),
        "epochs": _points(row, tuning.after_epochs, "epochs", 1),
    }


def _points(row: Row, curve: Sequence[ExpectedBest], unit: str, digits: int) -> list[dict[str, Any]]:
    return [
        {
            "epoch": each.at, "mean": each.mean, "low": each.low, "high": each.high,
            "words": f"{row.loss}: {wording.fixed(each.mean, 1)} ({wording.fixed(each.low, 1)}–"
                     f"{wording.fixed(each.high, 1)}) after {wording.fixed(each.at, digits)} {unit}",
        }
        for each in curve
    ]
