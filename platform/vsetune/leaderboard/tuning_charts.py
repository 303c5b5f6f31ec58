"""What the page draws of searches that had ended sooner; their table stands in `tuning_table.py`, with the same
threshold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vsetune.leaderboard import wording
from vsetune.leaderboard.rows import Leaderboard, Row
from vsetune.leaderboard.table_text import in_order
from vsetune.leaderboard.tuning_table import tuning_table
from vsetune.metrics.best_of_k import ExpectedBest


def tuning_charts(leaderboard: Leaderboard) -> dict[str, Any]:
    """Expected best M-Recall of every search after fewer trials and fewer epochs."""
    table = tuning_table(leaderboard)
    if table is None:
        return {"notes": [], "series": []}
    shown = [
        (key, row) for key, row in in_order(leaderboard)
        if row.tuning is not None and row.tuning.trials > 1 and row.not_comparable is None
    ]
    rest = [f"{row.network} {row.loss}" for row in leaderboard.rows if row.tuning is None]
    why = "no search of several configurations for M-Recall"
    return {
        "notes": [*table.notes, *([f"Not in it, {why}: {', '.join(rest)}."] if rest else [])],
        "series": [_searched(key, row) for key, row in shown],
    }


def _searched(key: str, row: Row) -> dict[str, Any]:
    tuning = row.tuning
    assert tuning is not None
    return {
        "key": key, "trials": _points(row, tuning.after_trials, "trials", 0),
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
