"""The SQLite file behind `sqlite:///PATH`: made whole or not at all, mended when it was left half-made.

MLflow makes its schema in some seventy steps that no transaction holds together: a process killed among them leaves a
file that MLflow never opens again. So the file is made beside its place, under a lock, and moved there when complete.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from vsetune.errors import StorageError, UnusableStore
from vsetune.files.locks import take_lock
from vsetune.files.whole_files import free_name, move_if_absent, move_in_place

_log = logging.getLogger(__name__)
BUSY_TIMEOUT_S = 5.0
"""How long one try waits for another process that holds the database."""
_MAKING_TAKES_AT_MOST_S = 120.0
_ASIDE = ("", "-wal", "-shm", "-journal")
_WAITING_HELPS = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.EINTR}
_WAITING_DOES_NOT = {
    sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
}


class _Found(NamedTuple):
    """What a file holds. version: of the schema, None without one."""

    tables: frozenset[str] = frozenset()
    version: str | None = None
    has_runs: bool = False


def prepare_sqlite(database: Path, *, look_again_s: float = 2.0) -> None:
    """Make the database, or see that it is sound and can be written, and leave it in write-ahead mode (WAL).

    In that mode, which stays in the file, readers never wait for the driver. look_again_s: a file that looks half-made
    and has changed after so many seconds is being made by somebody else, who is waited for.
    UnusableStore when waiting does not help (rights, damage, a newer schema); StorageError when it may (locked, full).
    """
    try:
        database.absolute().parent.mkdir(parents=True, exist_ok=True)
        if database.exists() and _is_sound(_look(database)):
            return
        with _making(database):
            _make_or_mend(database, look_again_s)
    except OSError as error:
        kind = StorageError if error.errno in _WAITING_HELPS else UnusableStore
        raise kind(_refusal(database, error)) from error
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        kind = UnusableStore if code in _WAITING_DOES_NOT else StorageError
        raise kind(_refusal(database, error)) from error


def _refusal(database: Path, error: Exception) -> str:
    return (
        f"tracking database {database}: cannot be opened for writing ({error}); "
        "check the path, its permissions and the free space, or set tracking.uri"
    )


def _look(database: Path) -> _Found:
    """What is in the file; also tries whether it can be written, and switches it to WAL."""
    with closing(sqlite3.connect(database, timeout=BUSY_TIMEOUT_S)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("BEGIN IMMEDIATE")
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        version = None
        if "alembic_version" in tables:
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
            version = row[0] if row else None
        has_runs = "runs" in tables and connection.execute("SELECT 1 FROM runs LIMIT 1").fetchone() is not None
        connection.rollback()
    return _Found(frozenset(tables), version, has_runs)


def _is_sound(found: _Found) -> bool:
    """Whether MLflow may be let at it."""
    from vsetune.tracking.mlflow_sqlite import is_latest

    return found.version is not None and is_latest(found.version)


def _make_or_mend(database: Path, look_again_s: float) -> None:
    from vsetune.tracking.mlflow_sqlite import is_of_this_mlflow, own_tables

    if not database.exists():
        _make_first(database)
    found = _settled(database, look_again_s)
    if _is_sound(found):
        return
    if found.version is not None and not is_of_this_mlflow(found.version):
        raise UnusableStore(
            f"tracking database {database}: made by another version of MLflow (schema {found.version}, which the "
            "installed one does not know); install that version, or set tracking.uri to another file"
        )
    if not found.tables:
        _make(database)
    elif found.has_runs:
        _upgrade(database)
    elif found.tables <= own_tables() | {name for name in found.tables if name.startswith("_alembic_tmp_")}:
        kept = _set_aside(database)
        _make(database)
        _log.warning("%s: was left half-made by a start that was cut short, without any run in it; made anew, the old "
                     "one is kept as %s", database, kept.name)
    # else: tables of another program stand in it; MLflow adds its own beside them


def _settled(database: Path, look_again_s: float) -> _Found:
    """What is in the file once nobody is making it any more, for example an MLflow server that has just started: its
    file is empty at first."""
    found = _look(database)
    for _ in range(round(_MAKING_TAKES_AT_MOST_S / max(look_again_s, 1.0))):
        if _is_sound(found):
            return found
        time.sleep(look_again_s)
        before, found = found, _look(database)
        if found == before:
            return found
    return found


def _make_first(database: Path) -> None:
    """A complete database where there is none. One that another program began meanwhile has been opened there, and
    stays."""
    making = _made_beside(database)
    move_if_absent(making, database)
    making.unlink(missing_ok=True)


def _make(database: Path) -> None:
    """A complete database in place of one that nobody needs."""
    _move_in_place(_made_beside(database), database)


def _made_beside(database: Path) -> Path:
    from vsetune.tracking.mlflow_sqlite import create_schema

    making = _beside(database)
    create_schema(making)
    _switch_to_wal(making)
    return making


def _upgrade(database: Path) -> None:
    """Bring a copy to the schema of the installed MLflow and put it in place; the old file is kept beside it."""
    from vsetune.tracking.mlflow_sqlite import upgrade_schema

    making = _beside(database)
    with closing(sqlite3.connect(database, timeout=BUSY_TIMEOUT_S)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")  # fails where anybody else has it open
        connection.execute("BEGIN EXCLUSIVE")
        shutil.copy2(database, making)
        upgrade_schema(making, f"tracking database {database}")
        _switch_to_wal(making)
        kept = free_name(database, "before-upgrade")
        os.link(database, kept)
        _move_in_place(making, database)
    _log.warning("%s: brought to the schema of the installed MLflow; the old one is kept as %s", database, kept.name)


def _beside(database: Path) -> Path:
    """Where the next one is made; what an earlier try left there is removed."""
    making = database.with_name(database.name + ".making")
    for ending in _ASIDE:
        making.with_name(making.name + ending).unlink(missing_ok=True)
    return making


def _switch_to_wal(making: Path) -> None:
    with closing(sqlite3.connect(making)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")


def _move_in_place(making: Path, database: Path) -> None:
    """One step: before it nothing has happened, after it all has."""
    for ending in _ASIDE[1:]:  # of the file that is replaced; SQLite would take them for the new one's
        database.with_name(database.name + ending).unlink(missing_ok=True)
    move_in_place(making, database, durable=True)


def _set_aside(database: Path) -> Path:
    kept = free_name(database, "broken")
    for ending in reversed(_ASIDE):
        part = database.with_name(database.name + ending)
        if part.exists():
            move_in_place(part, kept.with_name(kept.name + ending), durable=False)
    return kept


@contextmanager
def _making(database: Path) -> Iterator[None]:
    """One process makes or mends a database, others wait for it. The lock goes with its process."""
    try:
        lock = take_lock(database.with_name(database.name + ".lock"), wait_s=_MAKING_TAKES_AT_MOST_S)
    except BlockingIOError:
        raise StorageError(
            f"tracking database {database}: another process has been making it for {_MAKING_TAKES_AT_MOST_S:g} s; "
            "stop that one, then repeat"
        ) from None
    with lock:
        yield
