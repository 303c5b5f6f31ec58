"""Results of a study, written when a run of it ends: leaderboard, curves, and winners as MLflow models."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vsetune.board.building import build
from vsetune.board.export import curves_to_csv, to_csv, to_latex
from vsetune.board.page import to_html
from vsetune.board.rows import Leaderboard
from vsetune.board.selection import winner_of
from vsetune.board.shown_runs import shown_runs
from vsetune.errors import DamagedCheckpoint, StaleCheckpoint, StorageError, UsageError, VsetuneError
from vsetune.home.whole_files import write_text
from vsetune.records.state import Attempt, Trial, trials_of
from vsetune.records.studies import Studies
from vsetune.study.model_files import log_model
from vsetune.study.places import mlflow_ui, tracking_uri
from vsetune.study.preparation import PreparedStudy
from vsetune.study.recorded import RecordedAttempt
from vsetune.study.recorded_boards import completed_board

if TYPE_CHECKING:
    from vsetune.records.mlflow_models import MlflowModels


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


def write_results(prepared: PreparedStudy, attempts: Sequence[Attempt], *, is_over: bool) -> Results:
    """Writes the leaderboard and its files. The remark states why some are missing; none of this is an error.

    is_over: no trial is left to run."""
    try:
        board = board_of(prepared, attempts, is_over=is_over)
    except UsageError as error:
        return Results(None, remark=str(error).removeprefix("leaderboard: "))
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


def board_of(prepared: PreparedStudy, attempts: Sequence[Attempt], *, is_over: bool) -> Leaderboard:
    """The leaderboard of a study, running or ended. UsageError while there is nothing to compare."""
    board = build(attempts, baseline=prepared.spec.baseline)
    return completed_board(board, [prepared.record()], Studies(), is_over=is_over)


def _why_missing(study: str, name: str, error: Exception) -> str:
    _log.exception("study %s: %s", study, name)
    why = " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST]
    return (
        f"{name} cannot be made ({why}); the results are recorded, and once this is fixed "
        f"`vsetune leaderboard export {study} --html board.html --csv board.csv` writes it"
    )


def _page(prepared: PreparedStudy, board: Leaderboard, attempts: Sequence[Attempt]) -> str:
    """The leaderboard as a web page, the same as that of `leaderboard export`."""
    ui = mlflow_ui(None, tracking_uri(prepared.spec.tracking))
    return to_html(board, runs=shown_runs(Studies(), [board], attempts, mlflow_url=ui))


_LONGEST_REASON = 300
_LATER = "log one later with: vsetune trial model STUDY/TRIAL"


def winners_of(attempts: Sequence[Attempt]) -> list[Attempt]:
    """The attempt of every cell's winner, if it has finished."""
    cells: dict[str, list[Trial]] = {}
    for trial in trials_of(attempts):
        cells.setdefault(trial[-1].start.cell, []).append(trial)
    found = (winner_of(trials) for trials in cells.values())
    return [winner for winner in found if winner is not None and winner.status == "finished"]


def log_winners(prepared: PreparedStudy, attempts: Sequence[Attempt], *, is_exported: bool) -> list[str]:
    """Logs the best network of every winner; returns lines to print. A repeated call does not log a winner again.

    is_exported: MLflow has the study's runs. An error does not fail a study that has ended; it is one of the lines.
    With `tracking.models: none`, or without MLflow, nothing is logged and there are no lines.
    """
    uri, studies = tracking_uri(prepared.spec.tracking), Studies()
    if prepared.spec.tracking.models == "none" or uri is None:
        return []
    if not is_exported:
        return [f"winners are not logged as MLflow models: MLflow does not have them yet; {_LATER}"]
    try:
        from vsetune.records.mlflow_models import MlflowModels

        winners = winners_of(attempts)
        return _logged(prepared, studies, MlflowModels(uri, studies), winners) if winners else []
    except Exception as error:  # no error may fail a study that has ended and is recorded
        if not isinstance(error, VsetuneError):
            _log.exception("study %s: models of its winners", prepared.spec.study)
        reason = " ".join(str(error).split())[:_LONGEST_REASON]
        return [f"winners are not all logged as MLflow models: {reason}; {_LATER}"]


def _logged(
    prepared: PreparedStudy, store: Studies, models: MlflowModels, winners: Sequence[Attempt]
) -> list[str]:
    new, gone = 0, []
    for winner in winners:
        trial = winner.start.trial
        with tempfile.TemporaryDirectory() as into:
            try:
                attempt = RecordedAttempt(winner, prepared.trial_folder(trial))
                new += log_model(models, store, attempt, Path(into))[1]
            except DamagedCheckpoint:
                raise
            except StaleCheckpoint:
                gone.append(trial)
    lines = [f"{new} winner{'s' if new > 1 else ''} logged as MLflow models"] if new else []
    return lines + ([f"no checkpoint is left of {', '.join(gone)}: not logged as MLflow models"] if gone else [])
