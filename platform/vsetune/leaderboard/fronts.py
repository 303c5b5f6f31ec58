"""The losses between which a reader has to choose: sooner or higher."""

from __future__ import annotations

from collections.abc import Sequence

from vsetune.leaderboard.rows import Row


def pareto_front(rows: Sequence[Row]) -> list[Row]:
    """The rows that no other beats in both M-Recall and epochs to the baseline's best, the soonest first; of those that
    compare and get there."""
    points = {
        row.cell: (row.best_m_recall, -row.epochs_to_target.value) for row in rows
        if row.best_m_recall is not None and row.epochs_to_target is not None and not row.epochs_to_target.censored
    }
    front = [
        row for row in rows
        if row.cell in points and not any(_beats(other, points[row.cell]) for other in points.values())
    ]
    return sorted(front, key=lambda row: (-points[row.cell][1], row.loss))


def _beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Not worse in either, and better in one."""
    return one != other and all(mine >= theirs for mine, theirs in zip(one, other, strict=True))
