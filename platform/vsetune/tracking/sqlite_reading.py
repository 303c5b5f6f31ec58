"""A store that is only read, in a SQLite file: without MLflow, which takes seconds and 180 MB to load."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path

from vsetune.errors import StorageError
from vsetune.tracking.attempt_rows import NEEDED, Ask, AttemptRows
from vsetune.tracking.records import AttemptRecord, AttemptStart, AttemptStatus, StudyRecord, ValidationPoint
from vsetune.tracking.sqlite_file import BUSY_TIMEOUT_S
from vsetune.tracking.store import StudyStatus, TrackingStore


class ReadStore(TrackingStore):
    """Reads studies and attempts out of the tables; all else is asked of the whole store, which is opened for that."""

    def __init__(self, database: Path, open_whole: Callable[[], TrackingStore]) -> None:
        self._database, self._open_whole = database, open_whole
        self._rows = AttemptRows(lambda: connected(database))

    @cached_property
    def whole(self) -> TrackingStore:
        return self._open_whole()

    def attempts(self, study: str) -> list[AttemptRecord]:
        with self._reading(f"study {study}"):
            return self._rows.of_study(study)

    def studies(self) -> list[StudyRecord]:
        with self._reading("its studies"):
            return self._rows.studies()

    def attempt(self, attempt_id: str) -> AttemptRecord:
        return self.whole.attempt(attempt_id)

    def points(self, attempt_id: str) -> list[ValidationPoint]:
        return self.whole.points(attempt_id)

    def fetch_artifact(self, attempt_id: str, name: str, into: Path) -> Path | None:
        return self.whole.fetch_artifact(attempt_id, name, into)

    def artifact_names(self, attempt_id: str, folder: str) -> list[str]:
        return self.whole.artifact_names(attempt_id, folder)

    def experiment_of(self, study: str) -> str | None:
        return self.whole.experiment_of(study)

    def keep_artifacts(self, attempt_id: str, artifacts: Sequence[Path], *, folder: str) -> None:
        self.whole.keep_artifacts(attempt_id, artifacts, folder=folder)

    def open_study(self, record: StudyRecord, *, resume: bool) -> None:
        self.whole.open_study(record, resume=resume)

    def start_attempt(self, start: AttemptStart) -> str:
        return self.whole.start_attempt(start)

    def record_points(self, attempt_id: str, points: Sequence[ValidationPoint]) -> None:
        self.whole.record_points(attempt_id, points)

    def finish_attempt(
        self, attempt_id: str, status: AttemptStatus, summary: Mapping[str, float], artifacts: Sequence[Path],
        error: str | None,
    ) -> None:
        self.whole.finish_attempt(attempt_id, status, summary, artifacts, error)

    def finish_study(self, name: str, status: StudyStatus, artifacts: Sequence[Path]) -> None:
        self.whole.finish_study(name, status, artifacts)

    def close_stale(self, older_than_s: float, now: float | None = None, except_study: str | None = None) -> int:
        return self.whole.close_stale(older_than_s, now, except_study)

    @contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StorageError(
                f"tracking database {self._database}: cannot read {what} ({error}); check the file, then repeat"
            ) from error


def has_known_tables(database: Path) -> bool:
    """Whether a file is a database with the tables of MLflow that are read here; of whatever version."""
    try:
        with connected(database) as ask:
            return all(
                {row[1] for row in ask(f"PRAGMA table_info({table})", {})} >= columns
                for table, columns in NEEDED.items()
            )
    except sqlite3.Error:
        return False


@contextmanager
def connected(database: Path) -> Iterator[Ask]:
    """To be read from. sqlite3.Error."""
    with closing(_opened(database)) as connection:
        connection.execute("PRAGMA query_only = 1")
        yield connection.execute


def _opened(database: Path) -> sqlite3.Connection:
    """A file that is away is not made anew, empty. In a folder that is read-only SQLite cannot make the files that it
    wants beside a database in write-ahead mode; where nobody writes it is told that it needs none."""
    place = database.absolute().as_uri()
    connection = sqlite3.connect(f"{place}?mode=rw", uri=True, timeout=BUSY_TIMEOUT_S)
    try:
        connection.execute("PRAGMA schema_version")
    except sqlite3.Error:
        connection.close()
        if not database.is_file() or os.access(database.parent, os.W_OK) or _is_being_written(database):
            raise
        return sqlite3.connect(f"{place}?immutable=1", uri=True)
    return connection


def _is_being_written(database: Path) -> bool:
    log = database.with_name(f"{database.name}-wal")
    return log.exists() and log.stat().st_size > 0
