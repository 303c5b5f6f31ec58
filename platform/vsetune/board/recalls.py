"""Recalls of both directions of a board's seeds, read from the studies' logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from vsetune.board.rows import Leaderboard
from vsetune.board.seed_results import RECALLS, SeedResult
from vsetune.metrics.curves import best_of_curve
from vsetune.records.studies import Studies


def with_recalls(board: Leaderboard, store: Studies) -> Leaderboard:
    """The board with the validation recalls of its seeds, each at the best validation of the seed. A diverged seed has
    0 % of everything, as of M-Recall.

    Raises StorageError if a log cannot be read.
    """
    latest = {
        (each.start.study, each.start.trial): each.attempt_id
        for study in dict.fromkeys(row.study for row in board.rows)
        for each in sorted(store.attempts(study), key=lambda each: each.start.number)
    }
    ids = {(row.study, seed.trial): latest[row.study, seed.trial] for row in board.rows for seed in row.seeds}
    best = {
        ids[row.study, seed.trial]: best_of_curve(seed.curve).epoch
        for row in board.rows for seed in row.seeds if not seed.diverged
    }
    known = store.metrics_at(best)
    rows = (
        replace(row, seeds=tuple(_with_recalls(seed, known.get(ids[row.study, seed.trial], {})) for seed in row.seeds))
        for row in board.rows
    )
    return replace(board, rows=tuple(rows))


def _with_recalls(seed: SeedResult, metrics: Mapping[str, float]) -> SeedResult:
    if seed.diverged:
        return replace(seed, recalls={**dict.fromkeys(RECALLS, 0.0), **seed.recalls})
    return replace(seed, recalls={**{name: metrics[name] for name in RECALLS if name in metrics}, **seed.recalls})
