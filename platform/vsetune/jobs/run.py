"""Runs a study to its last trial: Ray Tune places what the ledger hands out. Resumable after anything."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray import tune
from rich.console import Console

from vsetune.config.loading import dump_yaml
from vsetune.config.secrets import shown_plain, usable_url
from vsetune.errors import IncompatibleCurves, StorageError, StudyConflict, UsageError
from vsetune.jobs.cluster import concurrent_trials, ray_cluster
from vsetune.jobs.credentials import credentials_not_forwarded
from vsetune.jobs.ledger import Assignment, StudyLedger
from vsetune.jobs.preparation import PreparedStudy, tracking_store
from vsetune.jobs.progress import StudyProgress
from vsetune.jobs.trainable import AttemptTrainable
from vsetune.jobs.tune_adapter import CellScheduler, LedgerSearcher, RecordingCallback
from vsetune.leaderboard import Leaderboard, build, curves_to_csv, to_csv, to_html, to_latex
from vsetune.search.configurations import ConfigurationSearch
from vsetune.tracking.records import AttemptRecord

logger = logging.getLogger(__name__)

# Tune is told to keep nothing of its own: results go to the tracking store, checkpoints to the trial's folder.
_TUNE_SETTINGS = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
}


@dataclass(frozen=True)
class StudyOutcome:
    """How a run of a study ended. counts: trials by status. board: None if there is nothing to compare, see `remark`.

    page: the leaderboard as a web page, also kept with the study's run in the tracking store.
    """

    counts: Mapping[str, int]
    was_interrupted: bool
    board: Leaderboard | None
    page: Path | None
    remark: str


def run_study(
    prepared: PreparedStudy, *, resume: bool, retry_failed: bool, address: str | None, console: Console
) -> StudyOutcome:
    """Runs every promised trial of a study. One process per study; a second one is refused.

    address: of a running Ray cluster; None starts Ray on this machine unless RAY_ADDRESS is set.
    """
    spec, folder = prepared.spec, prepared.folder
    store = tracking_store(spec.tracking)
    with _locked(folder):
        store.open_study(prepared.record(), resume=resume)
        _write(folder / "study.yaml", dump_yaml(shown_plain(spec.to_plain())))
        storage = usable_url(spec.search.storage or f"sqlite:///{folder / 'search.db'}", where="search.storage")
        search = ConfigurationSearch(spec.study, prepared.cells, spec.search, storage=storage)
        ledger = StudyLedger(spec, prepared.cells, store, search)
        ledger.recover(retry_failed=retry_failed)
        if ledger.has_work():
            with ray_cluster(address), credentials_not_forwarded():
                _place_trials(prepared, ledger, console)
        was_interrupted = bool(ledger.interrupt()) or ledger.has_work()
        board, remark = _leaderboard(store.attempts(spec.study), spec.baseline)
        exports = _export(board, folder) if board is not None else []
        store.finish_study(spec.study, "killed" if was_interrupted else "finished", exports)
    counts = Counter(str(trial.status) for trial in ledger.trials.values())
    return StudyOutcome(counts, was_interrupted, board, exports[0] if exports else None, remark)


def _leaderboard(attempts: Sequence[AttemptRecord], baseline: str) -> tuple[Leaderboard | None, str]:
    """The leaderboard, or why there is none; a study whose curves do not compare has still run."""
    try:
        return build(attempts, baseline=baseline), ""
    except (IncompatibleCurves, UsageError) as error:
        return None, str(error)


def _export(board: Leaderboard, folder: Path) -> list[Path]:
    """The page first, then the tables."""
    texts = {
        "leaderboard.html": to_html(board), "leaderboard.csv": to_csv(board), "curves.csv": curves_to_csv(board),
        "leaderboard.tex": to_latex(board),
    }
    for name, text in texts.items():
        _write(folder / name, text)
    return [folder / name for name in texts]


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{path}: cannot be written ({error.strerror}); free space, then --resume") from error


def _place_trials(prepared: PreparedStudy, ledger: StudyLedger, console: Console) -> None:
    """Runs Tune until the ledger is done or a person interrupts it (Tune catches Ctrl-C and returns)."""
    spec = prepared.spec
    scheduler = CellScheduler(spec.scheduler, epochs=spec.training.epochs)
    scheduler.replay(ledger)
    os.environ.update(_TUNE_SETTINGS)
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # else a page of traceback for every worker that dies
    tune_folder = prepared.folder / "tune"
    with StudyProgress(ledger, console) as progress:
        tuner = tune.Tuner(
            tune.with_resources(
                AttemptTrainable, {"cpu": spec.resources.cpus, "gpu": spec.resources.gpus}
            ),
            tune_config=tune.TuneConfig(
                search_alg=LedgerSearcher(ledger, lambda assignment: _worker_config(prepared, assignment)),
                scheduler=scheduler, num_samples=-1, max_concurrent_trials=concurrent_trials(spec.resources),
                reuse_actors=True, trial_name_creator=_trial_name, trial_dirname_creator=_trial_name,
            ),
            run_config=tune.RunConfig(
                name=spec.study, storage_path=str(tune_folder), verbose=0,
                failure_config=tune.FailureConfig(max_failures=spec.resources.retries),
                callbacks=[RecordingCallback(
                    ledger, on_change=progress.changed, on_tick=progress.tick, on_retry=progress.retried
                )],
            ),
        )
        tuner.fit()
        progress.changed()
    shutil.rmtree(tune_folder, ignore_errors=True)


def _worker_config(prepared: PreparedStudy, assignment: Assignment) -> dict[str, Any]:
    resources = prepared.spec.resources
    return {
        "trial": assignment.trial.to_plain(),
        "phase": assignment.phase,
        "folder": str(prepared.trial_folder(assignment.trial.trial)),
        "device": "cuda" if resources.gpus > 0 else "cpu",
        "threads": resources.cpus,
    }


def _trial_name(trial: Any) -> str:
    return str(trial.config["trial"]["trial"])


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process per study. The lock goes with its process, however that ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = open(folder / "lock", "w")  # noqa: SIM115  held open as long as the lock
    except OSError as error:
        raise StorageError(
            f"{folder}: cannot be written ({error.strerror}); set VSETUNE_HOME to another folder"
        ) from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StudyConflict(f"study {folder.name}: another process is running it; wait for it or stop it") from None
        yield
