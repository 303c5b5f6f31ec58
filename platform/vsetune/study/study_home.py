"""Home of a study: its folder on this machine and, with a home on object storage, a mirror of that folder.

    runs/STUDY/                lease.json, the log's objects, the mirror of the study file, plugins and boards
    runs/STUDY/trials/TRIAL/   the mirror of one trial, written by the worker that trains it

The driver owns the lease and the first mirror. It reads the mirrors of trials, and deletes checkpoints there that no
trial will continue from.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from vsetune.errors import StorageError
from vsetune.records.log import LOG_FILE, LogWriter
from vsetune.records.studies import BEST_FILE, EXPORT_FILE
from vsetune.records.study_lock import LOCK_FILE, locked_study
from vsetune.storage.mirror import Mirror, MirroredFiles, is_set_aside
from vsetune.storage.mirror_contents import DamagedObject, drop_files, fetch
from vsetune.storage.paths import remote_place
from vsetune.training.checkpoint import CHECKPOINT_FILE, NAMED_FILE
from vsetune.training.executions import EXECUTIONS_FILE, PROGRESS_FILE

_log = logging.getLogger(__name__)
TRIALS_FOLDER = "trials"
KEPT_FOLDER, TRAIN_FOLDER = "kept", "train"
"""Folders of a study that stay on this machine. `train` is that of `vsetune train`."""
BEGIN_WITHIN_S, END_WITHIN_S = 60.0, 60.0
"""How long a driver waits, at its start and end, until its files are on the server; also a trial at its start."""
TRIAL_END_WITHIN_S, CLOSE_WITHIN_S = 600.0, 20.0
"""How long a trial waits at its end until its files are on the server; a trial whose files are not there by then counts
as interrupted. The second: how long a worker that must stop or change to another trial continues to send."""
_BROUGHT_FOLDER = ".brought"
_FETCH_TRIES, _FETCH_PAUSE_S = 3, 1.0
_STUDY_REFRESH_S, _TRIAL_REFRESH_S = 5.0, 30.0


_OF_WHO_GOES_ON = [NAMED_FILE, CHECKPOINT_FILE]


def _trial_files(folder: Path) -> list[str]:
    known = [EXECUTIONS_FILE, PROGRESS_FILE, BEST_FILE, *_OF_WHO_GOES_ON]
    return [name for name in known if (folder / name).is_file()]


def _study_files(folder: Path) -> list[str]:
    """Files that the driver writes, without its log, which has objects of its own."""
    names = [path.relative_to(folder).as_posix() for top in folder.iterdir() if _is_of_the_driver(top.name)
             for path in ([top] if top.is_file() else sorted(top.rglob("*"))) if path.is_file()]
    return sorted(names)


def _is_of_the_driver(name: str) -> bool:
    others = name in (TRIALS_FOLDER, TRAIN_FOLDER, KEPT_FOLDER, LOCK_FILE, LOG_FILE) or name.startswith(".")
    return not others and not name.endswith(".partial") and not is_set_aside(name)


TRIAL_FILES = MirroredFiles(_trial_files, refreshed=lambda name: name == PROGRESS_FILE, refresh_s=_TRIAL_REFRESH_S)
STUDY_FILES = MirroredFiles(_study_files, refreshed=lambda name: name == EXPORT_FILE, refresh_s=_STUDY_REFRESH_S)


class StudyHome:
    """The home of a study, for its one driver. on_lost: to be called when another driver has taken the study over."""

    def __init__(self, folder: Path, on_lost: Callable[[str], None], mirror: Mirror | None) -> None:
        self.folder, self.on_lost, self._mirror = folder, on_lost, mirror

    def file(self, name: str) -> Path | None:
        """A file that the log names, on this machine; None if it is gone. StorageError while the server is away."""
        path = self._bring(self.folder / name)
        return path if path.is_file() else None

    def keep(self) -> None:
        """Sends the driver's files in the background, as they are now."""
        if self._mirror is not None:
            with suppress(StorageError):  # the thread looks again by itself
                self._mirror.send()

    def forget_checkpoint(self, trial_folder: Path, log: LogWriter) -> None:
        """Deletes the checkpoint of a trial that has ended. The copy on the server is deleted once the log there
        records the end of the trial."""
        for name in _OF_WHO_GOES_ON:
            with suppress(OSError):
                (trial_folder / name).unlink()
        url = None if self._mirror is None else remote_place(trial_folder)
        if self._mirror is not None and url is not None:
            log.after_settled(lambda: drop_files(url, _OF_WHO_GOES_ON))

    def forget_ended(self, trial_folders: Sequence[Path], log: LogWriter) -> None:
        """Does the same on the server for trials that ended under an earlier driver, which may have died before it."""
        urls = [url for folder in trial_folders if (url := remote_place(folder)) is not None]

        def forget() -> None:
            for url in urls:
                drop_files(url, _OF_WHO_GOES_ON)

        if self._mirror is not None and urls:
            log.after_settled(forget)

    def _bring(self, path: Path) -> Path:
        """The path of the file on this machine, fetched from the server if the home is remote. A damaged file is
        reported and left out."""
        url = remote_place(path.parent)
        if url is None or not path.is_relative_to(self.folder / TRIALS_FOLDER):
            return path
        into = self.folder / _BROUGHT_FOLDER / path.parent.name  # a worker may be at work in the trial's own folder
        try:
            fetch(url, into, lambda name: name == path.name)
        except DamagedObject as error:
            _log.error("%s", error)
        return into / path.name


@contextmanager
def held_home(folder: Path, *, on_lost: Callable[[str], None] = _log.error) -> Iterator[StudyHome]:
    """Locks a study on this machine and, with a remote home, on all; then fetches the files of its last driver.

    folder: of the study, made if missing. on_lost: called from a thread when another machine has taken the study over.
    StudyConflict when the study is locked already, StorageError when folder or server cannot be used.
    """
    with locked_study(folder, on_lost=on_lost):
        url = remote_place(folder)
        if url is None:
            yield StudyHome(folder, on_lost, None)
            return
        mirror = Mirror(folder, url, STUDY_FILES)
        mirror.fetch()
        mirror.send()
        mirror.settle(BEGIN_WITHIN_S)  # from now on an earlier driver can send no more
        home_of_study = StudyHome(folder, on_lost, mirror)
        try:
            yield home_of_study
        finally:
            home_of_study.keep()
            mirror.close(END_WITHIN_S)


def trial_mirror(trial_folder: Path) -> Mirror | None:
    """The mirror of a trial's folder, for training here; its files are not fetched yet. None with a local home."""
    url = remote_place(trial_folder)
    return None if url is None else Mirror(trial_folder, url, TRIAL_FILES)


def fetch_trial(mirror: Mirror) -> None:
    """Fetches the files of a trial as its last execution sent them, from any node.

    DamagedObject: a file differs from the one that was sent, after _FETCH_TRIES attempts to fetch it. The checkpoints
    are then deleted on the server, so that the trial's next attempt begins anew. StorageError while the server is away.
    """
    for left in reversed(range(_FETCH_TRIES)):
        try:
            mirror.fetch()
            return
        except DamagedObject as error:
            if not left:
                _log.error("%s", error)
                drop_files(mirror.url, [*_OF_WHO_GOES_ON, BEST_FILE])
                raise
            time.sleep(_FETCH_PAUSE_S)
