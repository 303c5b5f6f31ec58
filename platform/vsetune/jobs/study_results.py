"""What a study leaves when a run of it ends: its board as files, and models of its winners."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vsetune.errors import StorageError, UsageError
from vsetune.files.whole_files import write_text
from vsetune.jobs.preparation import PreparedStudy
from vsetune.jobs.range_ends import board_with_ends
from vsetune.jobs.store_address import existing_store, mlflow_ui, tracking_uri
from vsetune.jobs.study_page import study_page
from vsetune.leaderboard.building import build
from vsetune.leaderboard.export import curves_to_csv, to_csv, to_latex
from vsetune.leaderboard.page import to_html
from vsetune.leaderboard.rows import Leaderboard
from vsetune.leaderboard.shown_runs import ShownRuns
from vsetune.tracking.opening import is_memory
from vsetune.records.attempts import AttemptRecord
from vsetune.tracking.store import TrackingStore

_log = logging.getLogger(__name__)

_PAGE = "leaderboard.html"
_LONGEST = 200
"""Of somebody else's message."""


@dataclass(frozen=True)
class Results:
    """board: None if there is nothing to compare. files: of it, those that could be written. remark: why there is no
    leaderboard, or not every file of it."""

    board: Leaderboard | None
    files: Sequence[Path] = ()
    remark: str = ""

    @property
    def page(self) -> Path | None:
        return next((file for file in self.files if file.name == _PAGE), None)


def recorded_in(prepared: PreparedStudy) -> TrackingStore | None:
    """The tracking store of a study whose journal is delivered, to be read; None where none can be."""
    if is_memory(tracking_uri(prepared.spec.tracking)):
        return None
    try:
        return existing_store(prepared.spec.tracking)
    except StorageError as error:
        _log.warning("study %s: %s", prepared.spec.study, error)
        return None


def write_results(
    prepared: PreparedStudy, attempts: Sequence[AttemptRecord], recorded: TrackingStore | None
) -> Results:
    """The leaderboard and its files, or why there are none; a study without a result has still run.

    recorded: the store behind the attempts. The page then has what `leaderboard export` gives it: links to MLflow,
    galleries, hard negatives.
    """
    try:
        board = build(attempts, baseline=prepared.spec.baseline)
    except UsageError as error:
        return Results(None, remark=str(error).removeprefix("leaderboard: "))
    board = board_with_ends(board, [prepared.record()])
    made: dict[str, Callable[[], str]] = {
        _PAGE: lambda: _page(prepared, board, attempts, recorded), "leaderboard.csv": lambda: to_csv(board),
        "curves.csv": lambda: curves_to_csv(board), "leaderboard.tex": lambda: to_latex(board),
    }
    files, missing = [], []
    for name, text in made.items():
        try:
            write_text(prepared.folder / name, text())
            files.append(prepared.folder / name)
        except StorageError as error:  # of the folder, and so of all of them
            missing.append(str(error))
            break
        except Exception as error:  # whatever it is, the study has ended and is recorded
            missing.append(_why_missing(prepared.spec.study, name, error))
    return Results(board, files, "; ".join(missing))


def _why_missing(study: str, name: str, error: Exception) -> str:
    _log.exception("study %s: %s", study, name)
    why = " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST]
    return (
        f"{name} cannot be made ({why}); the results are recorded, and once this is mended "
        f"`vsetune leaderboard export {study} --html board.html --csv board.csv` writes it"
    )


def _page(
    prepared: PreparedStudy, board: Leaderboard, attempts: Sequence[AttemptRecord], recorded: TrackingStore | None
) -> str:
    """Of a store that does not answer, without what only it knows of the runs."""
    if recorded is not None:
        ui = mlflow_ui(None, tracking_uri(prepared.spec.tracking))
        try:
            return study_page(recorded, board, recorded.attempts(prepared.spec.study), mlflow_url=ui)
        except StorageError as error:
            _log.warning("study %s: its page has neither galleries nor hard negatives: %s", prepared.spec.study, error)
    return to_html(board, runs=ShownRuns(attempts))
