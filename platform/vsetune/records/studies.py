"""The studies of a home, read from their logs. Any process may read at any time."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeVar

from vsetune.config.spec.base import did_you_mean
from vsetune.errors import DataError, UsageError, VsetuneError
from vsetune.home.home_files import find_in_home, keep_in_home, names_in, read, write
from vsetune.home.locks import take_lock
from vsetune.home.paths import home, remote_home, remote_place
from vsetune.home.s3 import listing
from vsetune.home.whole_files import make_folder, read_json, unreadable
from vsetune.records.events import Drawn, StudyRecord, StudyStatus, Validated, ValidationPoint, curve_of
from vsetune.records.log import LOG_FILE, OBJECTS, cannot_write, lines_of, name_of_log, refreshed
from vsetune.records.state import Attempt, KnownLog, NotBegun, StudyState, Trial, read_snapshot, write_snapshot
from vsetune.records.study_lock import LOCK_FILE, is_led

_log = logging.getLogger(__name__)
T = TypeVar("T")
RUNS = "runs"
EXPORT_FILE = "mlflow.json"
"""What MLflow has of the study, for links and checks."""
BEST_FILE = "best.safetensors"
"""The best weights of a trial, in its folder."""
STOP_FILE, KEPT_FOLDER = "stop", "kept"
"""In a study's folder: the last request to stop; files added to attempts later."""
_MOST_BYTES = 4096
_WORTH_A_SNAPSHOT = 20 << 20
"""A snapshot is written after reading more than this many bytes of a log."""


def folder_of_study(name: str) -> Path:
    """The folder of a study's log, trials, copies of plugins and results, on this node."""
    return home() / RUNS / name


class Studies:
    """Reads the studies of this home. Every method raises StorageError when the home cannot be read, UsageError for an
    unknown study or attempt."""

    def __init__(self) -> None:
        self._read: dict[str, KnownLog] = {}
        self.left_out: dict[str, str] = {}
        """Studies that `readable` could not read, and why."""

    def studies(self) -> list[StudyRecord]:
        """All studies that have begun, oldest first. One that cannot be read is left out, see `readable`."""
        found = self.readable(self.names(), self._state)
        begun = [each for each in found if each.record is not None]
        return [each.record for each in sorted(begun, key=lambda each: each.began) if each.record is not None]

    def readable(self, names: Iterable[str], read: Callable[[str], T]) -> list[T]:
        """What is read of these studies. One that cannot be read is left out; a warning names it and its mend, and so
        does `left_out`."""
        found = []
        for name in names:
            try:
                found.append(read(name))
                self.left_out.pop(name, None)
            except VsetuneError as error:
                why = str(error)
                if self.left_out.get(name) != why:
                    _log.warning("left out: %s", why)
                self.left_out[name] = why
        return found

    def record(self, study: str) -> StudyRecord:
        record = self._known(study).record
        assert record is not None, "a known study has begun"
        return record

    def attempts(self, study: str) -> list[Attempt]:
        """Attempts in the order in which they began."""
        return list(self._known(study).attempts.values())

    def trials(self, study: str) -> list[Trial]:
        """Trials in the order in which they began."""
        return list(self._known(study).trials.values())

    def read_to(self, study: str) -> tuple[str, int]:
        """Up to where its log was read last: the log, and a place in it. It changes with every event."""
        return self._read[study].log, self._read[study].end

    def draws(self, study: str) -> list[Drawn]:
        """The configurations that the searches of a study sampled, in order."""
        return list(self._known(study).draws)

    def attempt(self, name: str) -> Attempt:
        """The attempt of this name, STUDY/TRIAL/NUMBER."""
        return self._known(_study_of(name)).attempt(name)

    def points(self, name: str) -> list[ValidationPoint]:
        """All validations of an attempt with all their numbers, in the order of the training."""
        self.attempt(name)
        return self._points([name])[name]

    def metric_curves(
        self, names: Sequence[str], metrics: Sequence[str]
    ) -> dict[str, dict[str, tuple[tuple[float, float], ...]]]:
        """By attempt and metric, (epoch, value) of every validation that has the metric; attempts and metrics without
        values are left out."""
        found: dict[str, dict[str, tuple[tuple[float, float], ...]]] = {}
        for name, points in self._points(names).items():
            curves = {
                metric: tuple((each.epoch, each.metrics[metric]) for each in points if metric in each.metrics)
                for metric in metrics
            }
            if any(curves.values()):
                found[name] = {metric: curve for metric, curve in curves.items() if curve}
        return found

    def metrics_at(self, epochs: Mapping[str, float]) -> dict[str, Mapping[str, float]]:
        """By attempt, all numbers of its validation at the given epoch, the first of several; attempts without one are
        left out. Reads other validations no further than their epochs."""
        found: dict[str, Mapping[str, float]] = {}
        for study in dict.fromkeys(map(_study_of, epochs)):
            self._known(study)
            for line in lines_of(folder_of_study(study) / LOG_FILE):
                if line.kind != "validated":
                    continue
                attempt, _, fields = curve_of(line.head)
                if attempt in found or all(epoch != epochs.get(attempt) for _, epoch, *_ in fields):
                    continue
                event = line.event()
                assert isinstance(event, Validated)
                found[attempt] = next(each.metrics for each in event.points if each.epoch == epochs[attempt])
        return found

    def status(self, study: str) -> Literal["running"] | StudyStatus:
        """The status now: `running` if its driver lives, `killed` if its driver died."""
        return self._known(study).status or ("running" if is_driven(study) else "killed")

    def seen(self, study: str) -> float:
        """Time of its last event, in seconds since 1970."""
        return self._known(study).seen

    def ask_to_stop(self, study: str, request: str) -> None:
        """Leave a request that the study's driver reads within seconds, on any machine. request: one line, different
        from all earlier requests."""
        self._known(study)
        write(folder_of_study(study) / STOP_FILE, request.encode())

    def stop_asked(self, study: str) -> str | None:
        """The last request to stop, with time and author; None if there never was one. It stays after it was followed.
        Cheap."""
        found = read(folder_of_study(study) / STOP_FILE, most=_MOST_BYTES)
        return None if found is None else found[0].decode() or None

    def fetch_artifact(self, name: str, file: str) -> Path | None:
        """A local copy of a file stored with an attempt, for reading; None if there is none. file: `best.safetensors`,
        `gallery/page.html`."""
        start = self.attempt(name).start
        folder = folder_of_study(start.study)
        for path in (folder / "trials" / start.trial / file, folder / KEPT_FOLDER / start.trial / file):
            if not path.is_file():
                find_in_home(path)
            if path.is_file():
                return path
        return None

    def keep_artifacts(self, name: str, files: Sequence[Path], *, folder: str) -> None:
        """Adds files to an attempt; one of the same name is replaced. folder: where among its files (`gallery`)."""
        start = self.attempt(name).start
        place = folder_of_study(start.study) / KEPT_FOLDER / start.trial / folder
        make_folder(place)
        for file in files:
            try:
                shutil.copyfile(file, place / file.name)
            except OSError as error:
                raise cannot_write(place / file.name, error) from error
            keep_in_home(place / file.name)

    def artifact_names(self, name: str, folder: str) -> list[str]:
        """Names, with the folder, of the files that `keep_artifacts` stored there."""
        start = self.attempt(name).start
        place = folder_of_study(start.study) / KEPT_FOLDER / start.trial / folder
        return [f"{folder}/{name}" for name in names_in(place)]

    def in_mlflow(self, study: str) -> tuple[str | None, Mapping[str, str]]:
        """(id of the study's experiment or None, ids of runs by the names of their attempts) as far as the study was
        exported. For links."""
        folder = folder_of_study(study)
        with TemporaryDirectory() as into:  # the study's driver may be writing its own
            is_there = find_in_home(folder / EXPORT_FILE, into=Path(into))
            note = export_note(Path(into) if is_there else folder)
        return note.get("experiment"), note.get("runs", {})

    def names(self) -> list[str]:
        """Names of all studies that have a log, including an unreadable one."""
        remote = remote_home()
        if remote is not None:
            start = f"{remote}/{RUNS}/"
            keys = (each.removeprefix(start).split("/") for each in listing(start))
            return sorted({key[0] for key in keys if len(key) == 3 and key[1] == OBJECTS})
        place = home() / RUNS
        try:
            return sorted(each.name for each in place.iterdir() if _has_log(each))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise unreadable(place, error) from error

    def _known(self, study: str) -> StudyState:
        state = self._state(study) if study and "/" not in study else StudyState()
        if state.record is None:
            raise unknown_study(study, self.names())
        return state

    def _state(self, study: str) -> StudyState:
        """The state in its log now; lines that were read before are not read again. An error names the study."""
        try:
            return self._read_on(study)
        except FileNotFoundError:
            return StudyState()
        except OSError as error:
            raise unreadable(folder_of_study(study) / LOG_FILE, error) from error
        except VsetuneError as error:
            self._read.pop(study, None)
            raise type(error)(error.problem.at(f"study {study}")) from error

    def _read_on(self, study: str) -> StudyState:
        folder, known = folder_of_study(study), self._read.get(study)
        path = refreshed(folder, remote_place(folder), folder / LOCK_FILE, checks=known is None)
        known = known or read_snapshot(folder)
        size, name = path.stat().st_size, name_of_log(path)
        if known is None or known.end > size or known.log != name:
            known = KnownLog(StudyState(), 0, name)
        begin, state = known.end, known.state
        self._read[study] = known
        for line in lines_of(path, begin):
            try:
                state.read(line)
            except NotBegun as error:  # the line of its beginning is damaged, as a warning says
                _tell_lost(study, str(error))
            known.end = line.end
        if state.record is None and known.end:
            raise DataError(
                "VSE-R001", "{log}: damaged at byte {byte:,}; put back a copy of the study's folder, or bring the "
                "lines from its MLflow (vsetune tracking import --tracking-uri URI {study})", log=path, byte=0,
                study=study,
            )
        if known.end - begin > _WORTH_A_SNAPSHOT:
            write_snapshot(folder, known)
        return state

    def _points(self, names: Iterable[str]) -> dict[str, list[ValidationPoint]]:
        """All validations of these attempts, in one pass over each log."""
        found: dict[str, list[ValidationPoint]] = {name: [] for name in names}
        for study in dict.fromkeys(map(_study_of, found)):
            self._known(study)
            steps = dict.fromkeys(found, -1)
            for line in lines_of(folder_of_study(study) / LOG_FILE):
                if line.kind != "validated" or line.head[2:].partition(b'"')[0].decode() not in found:
                    continue
                event = line.event()
                assert isinstance(event, Validated)
                new = [each for each in event.points if each.step > steps[event.attempt]]
                found[event.attempt] += new
                steps[event.attempt] = new[-1].step if new else steps[event.attempt]
        return found


@cache
def _tell_lost(study: str, why: str) -> None:
    """Once in a process."""
    _log.warning("study %s: lines are left out: %s", study, why)


def is_driven(study: str) -> bool:
    """Whether a driver of the study lives: on this machine or a disk that it shares; with a remote home, on any
    machine."""
    folder = folder_of_study(study)
    if remote_home() is not None:
        return is_led(folder)
    try:
        take_lock(folder / LOCK_FILE, wait_s=0).close()
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def export_note(folder: Path) -> Mapping[str, Any]:
    """The note of a study's last export; empty if there is none or it is damaged: the next export makes it anew."""
    with suppress(DataError):
        note = read_json(folder / EXPORT_FILE, most_bytes=1 << 28)
        if isinstance(note, dict) and isinstance(note.get("runs", {}), dict):
            return note
    return {}


def _has_log(folder: Path) -> bool:
    try:
        return (folder / LOG_FILE).is_file()
    except PermissionError:  # it is named where it is read
        return True


def unknown_study(name: str, known: Sequence[str]) -> UsageError:
    """The error for a study that is not in the home. known: the studies of the home."""
    first, rest = sorted(known)[:10], len(known) - 10
    listed = (", ".join(first) or "none") + (f" and {rest} more" if rest > 0 else "")
    return UsageError(
        "VSE-R008", "study {study}: not in {home}, which has: {known}; {hint}check the name and VSETUNE_HOME",
        study=name, home=remote_home() or home(), known=listed, hint=did_you_mean(name, known),
    )


def _study_of(name: str) -> str:
    return name.partition("/")[0]
