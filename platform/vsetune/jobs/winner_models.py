"""The winner of every cell as a model that MLflow lists and loads, logged when its study has ended."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path

from vsetune.errors import DamagedCheckpoint, StaleCheckpoint, VsetuneError
from vsetune.jobs.model_files import log_model
from vsetune.jobs.preparation import PreparedStudy
from vsetune.jobs.recorded import RecordedAttempt
from vsetune.jobs.store_address import tracking_uri
from vsetune.leaderboard.selection import Trial, trials_of, winner_of
from vsetune.records.models import LoggedModels, logged_models
from vsetune.tracking.opening import is_memory
from vsetune.records.attempts import AttemptRecord
from vsetune.tracking.store import TrackingStore

_log = logging.getLogger(__name__)
_LONGEST = 300
_LATER = "log one later with: vsetune trial model STUDY/TRIAL"


def winners_of(attempts: Sequence[AttemptRecord]) -> list[AttemptRecord]:
    """Of every cell the attempt that represents it, if it has finished."""
    cells: dict[tuple[str, str], list[Trial]] = {}
    for trial in trials_of(attempts):
        start = trial[-1].start
        cells.setdefault((start.network, start.loss), []).append(trial)
    found = (winner_of(trials) for trials in cells.values())
    return [winner for winner in found if winner is not None and winner.status == "finished"]


def log_winners(prepared: PreparedStudy, store: TrackingStore | None) -> list[str]:
    """Logs the best network of every winner, each once however often this is repeated; what to say of it, in lines.

    store: that has the study; None: it does not answer. Nothing here fails a study that has ended: what cannot be read
    or logged is one of the lines. Nothing is logged, or said, where `tracking.models` is none.
    """
    uri = tracking_uri(prepared.spec.tracking)
    if prepared.spec.tracking.models == "none" or is_memory(uri):
        return []
    if store is None:
        return [f"winners are not logged as MLflow models: the tracking store has not got them yet; {_LATER}"]
    try:
        winners = winners_of(store.attempts(prepared.spec.study))
        return _logged(prepared, store, logged_models(uri), winners) if winners else []
    except Exception as error:  # whatever it is, the study has ended and is recorded
        if not isinstance(error, VsetuneError):
            _log.exception("study %s: models of its winners", prepared.spec.study)
        return [f"winners are not all logged as MLflow models: {' '.join(str(error).split())[:_LONGEST]}; {_LATER}"]


def _logged(
    prepared: PreparedStudy, store: TrackingStore, models: LoggedModels, winners: Sequence[AttemptRecord]
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
