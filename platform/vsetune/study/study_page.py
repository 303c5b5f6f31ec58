"""Web page of one or several studies, written at the end of a study and by `leaderboard export --html`."""

from __future__ import annotations

from collections.abc import Sequence

from vsetune.records.events import AttemptRecord
from vsetune.records.studies import Studies
from vsetune.report.page import to_html
from vsetune.report.rows import Shown, boards_of
from vsetune.report.shown_runs import shown_runs


def study_page(
    store: Studies, shown: Shown, attempts: Sequence[AttemptRecord], *, mlflow_url: str | None
) -> str:
    """The boards with their runs, as HTML. attempts: from the store. mlflow_url: of MLflow's UI, None without one.

    StorageError if the store cannot be read.
    """
    return to_html(shown, runs=shown_runs(store, boards_of(shown).boards, attempts, mlflow_url=mlflow_url))
