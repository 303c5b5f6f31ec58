"""The rows of a comparison that no other beats in both M-Recall and epochs."""

from __future__ import annotations

from collections.abc import Sequence

from vsetune.board.rows import Row


def pareto_front(rows: Sequence[Row]) -> list[Row]:
    """The rows that no other beats in both M-Recall and epochs to the baseline's best, fewest epochs first. Only rows
    that are comparable and reach the baseline's best count."""
    points = [
        ((row.best_m_recall, -row.epochs_to_target.value), row) for row in rows
        if row.best_m_recall is not None and row.epochs_to_target is not None and not row.epochs_to_target.censored
    ]
    front = [(at, row) for at, row in points if not any(_beats(other, at) for other, _ in points)]
    return [row for _, row in sorted(front, key=lambda each: (-each[0][1], each[1].loss))]


def _beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Whether one is not worse in either value and better in at least one."""
    return one != other and all(mine >= theirs for mine, theirs in zip(one, other, strict=True))
