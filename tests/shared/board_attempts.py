"""Curves and cells of attempts that boards are built from, and how to find a row. The first two curves are the worked
example of the definition of Difference."""

from __future__ import annotations

BASELINE = (30, 42, 50, 55, 58, 60.2, 60.1, 59.8)
NEW = (38, 52, 59, 60.2, 61, 61.5, 61.2, 61.0)


def row_of(board, loss, network="vsepp", dataset="scenes"):
    (row,) = [r for r in board.rows if (r.loss, r.network, r.dataset) == (loss, network, dataset)]
    return row


def reaching(attempt, loss, *, heights, epochs, **more):
    """Seeds that reach their height at these epochs, and stay below it from then on; all but the first confirm."""
    return [
        attempt(loss, [*(0.9 * height,) * (at - 1), height, *(height - 0.5,) * (12 - at)], gap=1.0, seed=seed,
                phase="confirm" if seed else "search", **more)
        for seed, (height, at) in enumerate(zip(heights, epochs, strict=True))
    ]
