"""Where what a study leaves stands: its folder on this machine and, with a home on object storage, a mirror of it.

    runs/STUDY/                lease.json, the log's objects, the mirror of the study file, plugins and boards
    runs/STUDY/trials/TRIAL/   the mirror of one trial, written by whoever trains it

The driver holds the lease and the first mirror. It reads the mirrors of trials, and takes checkpoints off them that no
trial will go on from.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from vsetune.config.spec.paths import remote_place
from vsetune.errors import StorageError
from vsetune.object_storage.mirror import Mirror, MirroredFiles, is_set_aside
from vsetune.object_storage.mirror_contents import DamagedObject, fetch
from vsetune.object_storage.mirror_writer import drop_files
from vsetune.records.log import LOG_FILE, LogWriter
from vsetune.records.studies import EXPORT_FILE
from vsetune.records.study_lock import LOCK_FILE, locked_study
from vsetune.training.checkpoint import BEST_FILE, CHECKPOINT_FILE, NAMED_FILE
from vsetune.training.executions import EXECUTIONS_FILE, PROGRESS_FILE

_log = logging.getLogger(__name__)
TRIALS_FOLDER = "trials"
KEPT_FOLDER, TRAIN_FOLDER = "kept", "train"
"""Of `vsetune train`: for whoever looks, on this machine alone."""
BEGIN_WITHIN_S, END_WITHIN_S = 60.0, 60.0
"""How long a driver, at its start and its end, waits until its own files are on the server; a trial at its start."""
TRIAL_END_WITHIN_S, CLOSE_WITHIN_S = 600.0, 20.0
"""How long a trial waits at its end; what is not there by then makes it an interrupted one. And how long a worker that
is told to stop, or to go over to another trial, still sends."""
_BROUGHT_FOLDER = ".brought"
_FETCH_TRIES, _FETCH_PAUSE_S = 3, 1.0
_STUDY_REFRESH_S, _TRIAL_REFRESH_S = 5.0, 30.0


_OF_WHO_GOES_ON = [NAMED_FILE, CHECKPOINT_FILE]


def _trial_files(folder: Path) -> list[str]:
    known = [EXECUTIONS_FILE, PROGRESS_FILE, BEST_FILE, *_OF_WHO_GOES_ON]
    return [name for name in known if (folder / name).is_file()]


def _study_files(folder: Path) -> list[str]:
    """What the driver writes beside its log, which has objects of its own."""
    names = [path.relative_to(folder).as_posix() for top in folder.iterdir() if _is_of_the_driver(top.name)
             for path in ([top] if top.is_file() else sorted(top.rglob("*"))) if path.is_file()]
    return sorted(names)


def _is_of_the_driver(name: str) -> bool:
    others = name in (TRIALS_FOLDER, TRAIN_FOLDER, KEPT_FOLDER, LOCK_FILE, LOG_FILE) or name.startswith(".")
    return not others and not name.endswith(".partial") and not is_set_aside(name)


TRIAL_FILES = MirroredFiles(_trial_files, refreshed=lambda name: name == PROGRESS_FILE, refresh_s=_TRIAL_REFRESH_S)
STUDY_FILES = MirroredFiles(_study_files, refreshed=lambda name: name == EXPORT_FILE, refresh_s=_STUDY_REFRESH_S)


class StudyHome:
    """Held by the one driver of a study. on_lost: to be called when another driver has it."""

    def __init__(self, folder: Path, on_lost: Callable[[str], None], mirror: Mirror | None) -> None:
        self.folder, self.on_lost, self._mirror = folder, on_lost, mirror

    def file(self, name: str) -> Path | None:
        """A file that the log names, on this machine; None where it is gone. StorageError while the server is away."""
        path = self._bring(self.folder / name)
        return path if path.is_file() else None

    def keep(self) -> None:
        """Send what the driver has written by now, in the background."""
        if self._mirror is not None:
            with suppress(StorageError):  # the thread looks again by itself
                self._mirror.send()

    def forget_checkpoint(self, trial_folder: Path, log: LogWriter) -> None:
        """A trial has ended: no attempt goes on from its checkpoint. The one on the server goes once the log that says
        so is there too."""
        for name in _OF_WHO_GOES_ON:
            with suppress(OSError):
                (trial_folder / name).unlink()
        url = None if self._mirror is None else remote_place(trial_folder)
        if self._mirror is not None and url is not None:
            log.after_settled(lambda: drop_files(url, _OF_WHO_GOES_ON))

    def forget_ended(self, trial_folders: Sequence[Path], log: LogWriter) -> None:
        """The same for trials that ended under an earlier driver, which may have died before it could."""
        urls = [url for folder in trial_folders if (url := remote_place(folder)) is not None]

        def forget() -> None:
            for url in urls:
                drop_files(url, _OF_WHO_GOES_ON)

        if self._mirror is not None and urls:
            log.after_settled(forget)

    def _bring(self, path: Path) -> Path:
        """A damaged file is reported, and exported without it."""
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
    """Hold a study on this machine and, with a remote home, on all; its files are then those of its last driver.

    folder: the study's, made if need be. on_lost: called from a thread when another machine has taken the study over.
    StudyConflict when somebody holds it, StorageError when folder or server cannot be used.
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
    """The mirror of the folder of a trial that is trained here, still to be fetched; None with a local home."""
    url = remote_place(trial_folder)
    return None if url is None else Mirror(trial_folder, url, TRIAL_FILES)


def fetch_trial(mirror: Mirror) -> None:
    """The files of a trial as its last execution sent them, whichever node that was on.

    DamagedObject: one is not what was sent, however often it is asked for. It is taken off the server, so the trial
    begins anew with its next attempt. StorageError while the server is away.
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
