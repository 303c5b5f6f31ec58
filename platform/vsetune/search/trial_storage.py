"""The database that keeps what was asked and told: opened whole, and every trouble with it one StorageError.

Only this file knows which errors SQLAlchemy, Optuna and the drivers below them raise.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import optuna
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from vsetune.config.spec.database_drivers import missing_driver
from vsetune.errors import StorageError
from vsetune.files.whole_files import move_if_absent, move_in_place
from vsetune.search.trial_rows import TrialRows

logger = logging.getLogger(__name__)
logging.getLogger("optuna").setLevel(logging.ERROR)

_BUSY_S = 1.0
_CONNECT_S = 3
_CONNECT_OPTION = {
    "psycopg2": "connect_timeout", "psycopg": "connect_timeout", "pymysql": "connect_timeout",
    "mysqldb": "connect_timeout", "mysqlconnector": "connection_timeout",
}
_FORGOTTEN_S = 600


class SearchStorage:
    """Optuna's relational storage behind a URL.

    Calls into it belong into `guarded`, which turns whatever a database may raise into a StorageError of one line,
    within seconds: SQLite waits 1 s for a lock, a server gets 3 s to answer. The next call works as soon as the
    database does. Not thread-safe.
    """

    def __init__(self, url: str, *, studies: Sequence[str], driver: str | None = None) -> None:
        """Opens or makes the database with these Optuna studies in it, by name. StorageError if it cannot be opened.

        driver: a name of its own for a driver, which from then on writes to the studies alone; None: they are not
        taken from anybody.
        A new SQLite file is made beside its place and moved there when it is whole. One that an earlier process
        left half-made (no study in it) is replaced.
        """
        self._url = url
        self.shown = _shown(url)
        with self.guarded("cannot open {}", "need an Optuna storage URL that this machine can reach"):
            parsed = make_url(url)
            file = _sqlite_file(parsed)
            if file is not None:
                _made_whole(file, studies)
            self.backend = _backend(parsed)
            self.studies = {name: named_study(self.backend, name) for name in studies}
            self._rows = TrialRows(self.backend, driver)
            if driver is not None:
                self._rows.take(study._study_id for study in self.studies.values())

    def trials(self, study: str) -> list[optuna.trial.FrozenTrial]:
        """As they are in the database now, by number. Ended ones are read once. Call it in `guarded`."""
        return sorted(self.studies[study].get_trials(deepcopy=False), key=lambda trial: trial.number)

    def add(
        self, study: str, trial: optuna.trial.FrozenTrial, number: int | None = None
    ) -> optuna.trial.FrozenTrial:
        """Writes a new trial whole, and returns it with its number. number: one that no trial has; None: the next. Call
        it in `guarded`."""
        return self._rows.add(self.studies[study]._study_id, trial, number)

    def end(self, study: str, before: optuna.trial.FrozenTrial, told: optuna.trial.FrozenTrial) -> None:
        """Writes how a running trial ended, whole. before: as it is in the database. Call it in `guarded`."""
        self._rows.end(self.studies[study]._study_id, before, told)

    @contextmanager
    def guarded(self, doing: str, remedy: str) -> Iterator[None]:
        """Around every use of the database and of nothing else. doing: what failed, {} for the URL. remedy: the fix."""
        try:
            yield
        except StorageError as error:  # of another driver, see `TrialRows`
            raise StorageError(f"search.storage: {self.shown}: {error}") from error
        except Exception as error:  # whatever SQLAlchemy, Optuna or the driver of any SQL database raises
            backend = getattr(self, "backend", None)
            if backend is not None:
                backend.remove_session()
            driver = missing_driver(error)
            if driver is not None:
                raise StorageError(f"search.storage: {self.shown} {driver}") from error
            reason = _reason(error, secret=_password(self._url))
            raise StorageError(f"search.storage: {doing.format(self.shown)} ({reason}); {remedy}") from error


def _backend(url: URL) -> optuna.storages.RDBStorage:
    options: dict[str, Any] = {"connect_args": {}}
    if url.get_backend_name() == "sqlite":
        options["connect_args"]["timeout"] = _BUSY_S
    else:
        options["pool_pre_ping"] = True
        option = _CONNECT_OPTION.get(url.get_driver_name())
        if option is not None and option not in url.query:
            options["connect_args"][option] = _CONNECT_S
    return optuna.storages.RDBStorage(url.render_as_string(hide_password=False), engine_kwargs=options)


def named_study(backend: optuna.storages.BaseStorage, name: str) -> optuna.Study:
    """The study of this name. Its sampler draws nothing: `drawing.draw` does."""
    return optuna.create_study(
        storage=backend, study_name=name, direction="maximize", load_if_exists=True,
        sampler=optuna.samplers.RandomSampler(seed=0),
    )


def _sqlite_file(url: URL) -> Path | None:
    """The file of a SQLite URL; None for any other database, one in memory, or one opened by a `file:` URI."""
    name = url.database
    if url.get_backend_name() != "sqlite" or not name or name == ":memory:" or name.startswith("file:"):
        return None
    return Path(name)


def _made_whole(file: Path, studies: Sequence[str]) -> None:
    """Makes the file, unless it has a study in it or tables that are none of ours."""
    _clear_forgotten(file)
    there = _tables(file)
    if there is None:
        return
    new = file.with_name(f"{file.name}.new-{os.getpid()}")
    try:
        ours = _make(new, studies)
        if not file.exists():
            move_if_absent(new, file)
        elif there <= ours:
            for beside in ("-journal", "-wal", "-shm"):  # they belong to the half-made file
                file.with_name(file.name + beside).unlink(missing_ok=True)
            move_in_place(new, file, durable=False)
            logger.warning("%s: was half-made by a process that died while starting; replaced by a new one", file)
    finally:
        new.unlink(missing_ok=True)


def _tables(file: Path) -> set[str] | None:
    """Tables of a file that is absent, empty or has no study; None if it has one and is to be opened as it is."""
    if not file.exists() or file.stat().st_size == 0:
        return set()
    with closing(sqlite3.connect(f"file:{quote(str(file.absolute()))}?mode=rw", uri=True, timeout=_BUSY_S)) as database:
        tables = {str(name) for name, in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        has_study = "studies" in tables and database.execute("SELECT 1 FROM studies LIMIT 1").fetchone()
    return None if has_study else tables


def _make(file: Path, studies: Sequence[str]) -> set[str]:
    """Makes a file with these studies, in write-ahead mode, which stays in it: a commit waits for the disk once and not
    five times. Returns the names of its tables."""
    backend = _backend(URL.create("sqlite", database=str(file)))
    for name in studies:
        named_study(backend, name)
    backend.remove_session()
    backend.engine.dispose()
    with closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        return {str(name) for name, in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def _clear_forgotten(file: Path) -> None:
    """Removes what processes killed while making the file left beside it."""
    for left in file.parent.glob(f"{file.name}.new-*"):
        if time.time() - left.stat().st_mtime > _FORGOTTEN_S:
            left.unlink(missing_ok=True)


def _password(url: str) -> str | None:
    try:
        return make_url(url).password
    except ArgumentError:
        return None


def _shown(url: str) -> str:
    """The URL without password and options, for people."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        return "the URL given" if "@" in url else url
    return parsed.set(query={}).render_as_string(hide_password=True)


def _reason(error: Exception, *, secret: str | None) -> str:
    """One line of what the database said; SQLAlchemy's own words tell of statements nobody here wrote."""
    cause: BaseException = error
    while not isinstance(cause, DBAPIError) and cause.__cause__ is not None:
        cause = cause.__cause__
    said = cause.orig if isinstance(cause, DBAPIError) and cause.orig is not None else cause
    if isinstance(said, ArgumentError):
        return "not a URL of a database"
    line = " ".join(str(said).split()) or type(said).__name__
    return line.replace(secret, "***")[:300] if secret else line[:300]
