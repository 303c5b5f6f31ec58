"""The page of a study, or of several: what one leaves when it ends, and what `leaderboard export --html` writes."""

from __future__ import annotations

from collections.abc import Sequence

from vsetune.leaderboard.page import Shown, boards_of, to_html
from vsetune.leaderboard.shown_runs import shown_runs
from vsetune.records.attempts import AttemptRecord
from vsetune.records.studies import Studies


def study_page(
    store: Studies, shown: Shown, attempts: Sequence[AttemptRecord], *, mlflow_url: str | None
) -> str:
    """The boards with their runs. attempts: as the store has them. mlflow_url: of MLflow's UI, None without one.

    StorageError where the store cannot be read.
    """
    return to_html(shown, runs=shown_runs(store, boards_of(shown), attempts, mlflow_url=mlflow_url))
