"""Home of a study: its folder on this machine and, with a home on object storage, its objects.

    runs/STUDY/                the log's objects, heartbeat.json, and the driver's files: study file, plugins, boards
    runs/STUDY/trials/TRIAL/   the files of one trial, sent by the worker that trains it

The log decides which driver counts, `executions.json` which worker of a trial. A driver reads the files of trials, and
deletes checkpoints that no trial will continue from.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from vsetune.errors import DamagedObject
from vsetune.home import earlier_layout
from vsetune.home.addresses import join
from vsetune.home.home_files import find_in_home, remove
from vsetune.home.home_folder import HomeFolder, last_writer_of
from vsetune.home.paths import remote_place
from vsetune.home.s3 import delete
from vsetune.records.log import LOG_FILE, OBJECTS, LogWriter
from vsetune.records.studies import BEST_FILE, KEPT_FOLDER, STOP_FILE
from vsetune.records.study_lock import HEARTBEAT_FILE, LOCK_FILE, locked_study
from vsetune.training.checkpoint import CHECKPOINT_FILE, EARLIER_BEST_FILE
from vsetune.training.executions import EXECUTIONS_FILE, PROGRESS_FILE

_log = logging.getLogger(__name__)
TRIALS_FOLDER = "trials"
TRAIN_FOLDER = "train"
"""Folder of `vsetune train`, which stays on this machine."""
BEGIN_WITHIN_S, END_WITHIN_S = 60.0, 60.0
"""How long a driver waits, at its start and end, until its files are on the server; also a trial at its start."""
TRIAL_END_WITHIN_S, CLOSE_WITHIN_S = 600.0, 20.0
"""How long a trial waits at its end until its files are on the server; a trial whose files are not there by then counts
as interrupted. The second: how long a worker that must stop or change to another trial continues to send."""
_BROUGHT_FOLDER = ".brought"
_FETCH_TRIES, _FETCH_PAUSE_S = 3, 1.0
_STUDY_EVERY_S, _TRIAL_EVERY_S = 5.0, 30.0

_OF_A_TRIAL = (EXECUTIONS_FILE, PROGRESS_FILE, BEST_FILE, CHECKPOINT_FILE, EARLIER_BEST_FILE)
_NOT_OF_THE_DRIVER = (
    TRIALS_FOLDER, TRAIN_FOLDER, KEPT_FOLDER, STOP_FILE, LOCK_FILE, HEARTBEAT_FILE, LOG_FILE, OBJECTS,
    earlier_layout.CONTENTS_FILE, earlier_layout.OBJECTS, earlier_layout.LEASE_FILE,
)


def _is_of_the_driver(name: str) -> bool:
    is_left = name.startswith((".", f"{LOG_FILE}.")) or name.endswith(".partial")
    return not is_left and name not in _NOT_OF_THE_DRIVER


class StudyHome:
    """The home of a study, for its one driver. on_lost: to be called when another driver has taken the study over.
    files: those of the driver; None with a local home."""

    def __init__(self, folder: Path, on_lost: Callable[[str], None], files: HomeFolder | None) -> None:
        self.folder, self.on_lost, self._files = folder, on_lost, files

    def file(self, name: str) -> Path | None:
        """A file that the log names, on this machine; None if it is gone or damaged. StorageError while the server is
        away."""
        path = self.folder / name
        if self._files is not None and path.is_relative_to(self.folder / TRIALS_FOLDER):
            into = self.folder / _BROUGHT_FOLDER / path.parent.name  # a worker may be at work in the trial's own folder
            try:
                find_in_home(path, into=into)
            except DamagedObject as error:
                _log.error("%s", error)
            path = into / path.name
        return path if path.is_file() else None

    def keep(self) -> None:
        """Sends the driver's files in the background, as they are now."""
        if self._files is not None:
            self._files.send()

    def forget_checkpoint(self, trial_folder: Path, log: LogWriter) -> None:
        """Deletes the checkpoint of a trial that has ended. The copy on the server is deleted once the log there
        records the end of the trial."""
        with suppress(OSError):
            (trial_folder / CHECKPOINT_FILE).unlink()
        self.forget_ended([trial_folder], log)

    def forget_ended(self, trial_folders: Sequence[Path], log: LogWriter) -> None:
        """Does the same on the server for trials that ended under an earlier driver, which may have died before it."""
        def forget() -> None:
            for folder in trial_folders:
                remove(folder / CHECKPOINT_FILE)

        if self._files is not None and trial_folders:
            log.after_settled(forget)


@contextmanager
def held_home(folder: Path, *, on_lost: Callable[[str], None] = _log.error) -> Iterator[StudyHome]:
    """Locks a study on this machine and, with a remote home, says on all that it runs; then fetches the files of its
    last driver.

    folder: of the study, made if missing. on_lost: called from a thread when another machine has taken the study over.
    StudyConflict when the study runs already, StorageError when folder or server cannot be used.
    """
    with locked_study(folder, on_lost=on_lost) as heartbeat:
        url = remote_place(folder)
        if url is None or heartbeat is None:
            yield StudyHome(folder, on_lost, None)
            return
        files = HomeFolder(
            folder, url, _is_of_the_driver, every_s=_STUDY_EVERY_S, check=lambda _: heartbeat.check()
        )
        files.fetch()
        files.send()
        files.settle(BEGIN_WITHIN_S)
        try:
            yield StudyHome(folder, on_lost, files)
        finally:
            files.send()
            files.close(END_WITHIN_S)


def trial_files(folder: Path) -> HomeFolder | None:
    """The files of a trial, for training here; they are not fetched yet. None with a local home."""
    url = remote_place(folder)
    if url is None:
        return None
    return HomeFolder(
        folder, url, _OF_A_TRIAL.__contains__, every_s=_TRIAL_EVERY_S, check=last_writer_of(join(url, EXECUTIONS_FILE))
    )


def fetch_trial(files: HomeFolder) -> None:
    """Fetches the files of a trial as its last execution sent them, from any node.

    DamagedObject: a file differs from the one that was sent, after _FETCH_TRIES attempts to fetch it. Checkpoint and
    best weights are then deleted on the server, so that the trial's next attempt begins anew. StorageError while the
    server is away.
    """
    for left in reversed(range(_FETCH_TRIES)):
        try:
            files.fetch()
            return
        except DamagedObject as error:
            if not left:
                _log.error("%s", error)
                delete([join(files.url, name) for name in (CHECKPOINT_FILE, BEST_FILE)])
                raise
            time.sleep(_FETCH_PAUSE_S)
