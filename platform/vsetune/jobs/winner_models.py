"""Logging of every cell's winner as an MLflow model when its study has ended."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vsetune.errors import DamagedCheckpoint, StaleCheckpoint, VsetuneError
from vsetune.jobs.model_files import log_model
from vsetune.jobs.preparation import PreparedStudy
from vsetune.jobs.recorded import RecordedAttempt
from vsetune.jobs.store_address import tracking_uri
from vsetune.leaderboard.selection import Trial, trials_of, winner_of
from vsetune.records.attempts import AttemptRecord
from vsetune.records.studies import Studies

if TYPE_CHECKING:
    from vsetune.records.mlflow_models import MlflowModels

_log = logging.getLogger(__name__)
_LONGEST = 300
_LATER = "log one later with: vsetune trial model STUDY/TRIAL"


def winners_of(attempts: Sequence[AttemptRecord]) -> list[AttemptRecord]:
    """The attempt of every cell's winner, if it has finished."""
    cells: dict[tuple[str, str], list[Trial]] = {}
    for trial in trials_of(attempts):
        start = trial[-1].start
        cells.setdefault((start.network, start.loss), []).append(trial)
    found = (winner_of(trials) for trials in cells.values())
    return [winner for winner in found if winner is not None and winner.status == "finished"]


def log_winners(prepared: PreparedStudy, attempts: Sequence[AttemptRecord], *, is_exported: bool) -> list[str]:
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
        return [f"winners are not all logged as MLflow models: {' '.join(str(error).split())[:_LONGEST]}; {_LATER}"]


def _logged(
    prepared: PreparedStudy, store: Studies, models: MlflowModels, winners: Sequence[AttemptRecord]
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
