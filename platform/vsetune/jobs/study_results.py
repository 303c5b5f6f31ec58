"""Result files of a study, written when a run of it ends: its leaderboard and curves."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vsetune.errors import StorageError, UsageError
from vsetune.files.whole_files import write_text
from vsetune.jobs.preparation import PreparedStudy
from vsetune.jobs.range_ends import board_with_ends
from vsetune.jobs.store_address import mlflow_ui, tracking_uri
from vsetune.jobs.study_page import study_page
from vsetune.leaderboard.building import build
from vsetune.leaderboard.export import curves_to_csv, to_csv, to_latex
from vsetune.leaderboard.rows import Leaderboard
from vsetune.records.attempts import AttemptRecord
from vsetune.records.studies import Studies

_log = logging.getLogger(__name__)

_PAGE = "leaderboard.html"
_LONGEST = 200
"""Characters of an unexpected error's message."""


@dataclass(frozen=True)
class Results:
    """Results of a study. board: None if there is nothing to compare. files: files of the board that could be written.
    remark: why there is no leaderboard, or why files of it are missing."""

    board: Leaderboard | None
    files: Sequence[Path] = ()
    remark: str = ""

    @property
    def page(self) -> Path | None:
        return next((file for file in self.files if file.name == _PAGE), None)


def write_results(prepared: PreparedStudy, attempts: Sequence[AttemptRecord]) -> Results:
    """Writes the leaderboard and its files. The remark states why some are missing; none of this is an error."""
    try:
        board = build(attempts, baseline=prepared.spec.baseline)
    except UsageError as error:
        return Results(None, remark=str(error).removeprefix("leaderboard: "))
    board = board_with_ends(board, [prepared.record()])
    made: dict[str, Callable[[], str]] = {
        _PAGE: lambda: _page(prepared, board, attempts), "leaderboard.csv": lambda: to_csv(board),
        "curves.csv": lambda: curves_to_csv(board), "leaderboard.tex": lambda: to_latex(board),
    }
    files, missing = [], []
    for name, text in made.items():
        try:
            write_text(prepared.folder / name, text())
            files.append(prepared.folder / name)
        except StorageError as error:  # an error of the folder, so of all files
            missing.append(str(error))
            break
        except Exception as error:  # no error may fail a study that has ended and is recorded
            missing.append(_why_missing(prepared.spec.study, name, error))
    return Results(board, files, "; ".join(missing))


def _why_missing(study: str, name: str, error: Exception) -> str:
    _log.exception("study %s: %s", study, name)
    why = " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST]
    return (
        f"{name} cannot be made ({why}); the results are recorded, and once this is mended "
        f"`vsetune leaderboard export {study} --html board.html --csv board.csv` writes it"
    )


def _page(prepared: PreparedStudy, board: Leaderboard, attempts: Sequence[AttemptRecord]) -> str:
    """The leaderboard as a web page, the same as that of `leaderboard export`."""
    ui = mlflow_ui(None, tracking_uri(prepared.spec.tracking))
    return study_page(Studies(), board, attempts, mlflow_url=ui)
