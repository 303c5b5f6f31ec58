"""The page of one study: what it leaves when it ends, and what `leaderboard export --html` writes."""

from __future__ import annotations

from collections.abc import Sequence

from vsetune.leaderboard.page import to_html
from vsetune.leaderboard.rows import Leaderboard
from vsetune.leaderboard.shown_runs import shown_runs
from vsetune.tracking.records import AttemptRecord
from vsetune.tracking.store import TrackingStore


def study_page(
    store: TrackingStore, board: Leaderboard, attempts: Sequence[AttemptRecord], *, mlflow_url: str | None
) -> str:
    """The board with its runs. attempts: as the store has them. mlflow_url: of MLflow's UI, None without one.

    StorageError where the store cannot be read.
    """
    return to_html(board, runs=shown_runs(store, board, attempts, mlflow_url=mlflow_url))
