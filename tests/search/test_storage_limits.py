"""How long the storage waits, how much of an error it repeats, which files it forgets, and how servers are opened."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from typing import Any

import optuna
import pytest
from sqlalchemy.exc import DBAPIError
from vsetune.search.trial_storage import SearchStorage

from vsetune.errors import StorageError


def test_sqlite_waits_one_second_for_a_lock(tmp_path: Path) -> None:
    storage = SearchStorage(f"sqlite:///{tmp_path / 'search.db'}", studies=["tiny/cell"])
    with storage.backend.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar_one() == 1000


def test_a_database_that_another_process_writes_to_cannot_be_written_though_it_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "search.db"
    storage = SearchStorage(f"sqlite:///{file}", studies=["tiny/cell"])
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert storage.trials("tiny/cell") == []
    guarded = storage.guarded("{} cannot be written", "wait")
    trial = optuna.trial.create_trial(state=optuna.trial.TrialState.RUNNING)
    with pytest.raises(StorageError, match=r"search\.db cannot be written \(database is locked\); wait"), guarded:
        storage.add("tiny/cell", trial)
    other.close()
    assert storage.add("tiny/cell", trial).number == 0


class OpenedBackend:
    """Takes the place of Optuna's storage where no server is: remembers how it was opened."""

    def __init__(self, url: str, *, engine_kwargs: dict[str, Any]) -> None:
        self.url, self.options = url, engine_kwargs

    def remove_session(self) -> None:
        """There is none."""


@pytest.mark.parametrize(("driver", "query", "options"), [
    ("postgresql+psycopg2", "", {"connect_timeout": 3}), ("postgresql+psycopg", "", {"connect_timeout": 3}),
    ("mysql+pymysql", "", {"connect_timeout": 3}), ("mysql+mysqldb", "", {"connect_timeout": 3}),
    ("mysql+mysqlconnector", "", {"connection_timeout": 3}), ("postgresql+pg8000", "", {}),
    ("postgresql+psycopg2", "?connect_timeout=20", {}),
])
def test_a_server_gets_three_seconds_unless_the_url_says_otherwise(
    driver: str, query: str, options: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optuna.storages, "RDBStorage", OpenedBackend)
    url = f"{driver}://me:secret@host/db{query}"
    storage = SearchStorage(url, studies=[])
    assert isinstance(storage.backend, OpenedBackend)
    assert storage.backend.url == url
    assert storage.backend.options == {"connect_args": options, "pool_pre_ping": True}
    assert storage.shown == f"{driver}://me:***@host/db"


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
def test_a_database_in_memory_makes_no_file(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert SearchStorage(url, studies=["tiny/cell"]).studies["tiny/cell"].trials == []
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_url_is_shown_unless_it_may_hold_a_password() -> None:
    with pytest.raises(StorageError, match=r"cannot open not-a-url \(not a URL of a database\); need an Optuna"):
        SearchStorage("not-a-url", studies=[])
    with pytest.raises(StorageError, match=r"cannot open the URL given \(not a URL of a database\)"):
        SearchStorage("me:secret@host", studies=[])


def failed(error: Exception) -> str:
    """What a person reads of an error inside a call."""
    storage = SearchStorage("sqlite://", studies=[])
    with pytest.raises(StorageError) as told, storage.guarded("{} cannot be read", "wait"):
        raise error
    return str(told.value)


def test_an_error_is_one_line_of_at_most_300_characters() -> None:
    shown = "search.storage: sqlite:// cannot be read"
    assert failed(RuntimeError("a\n  b" + "y" * 400)) == f"{shown} (a b{'y' * 297}); wait"
    assert failed(RuntimeError("y" * 300)) == f"{shown} ({'y' * 300}); wait"
    assert failed(RuntimeError()) == f"{shown} (RuntimeError); wait"


@pytest.mark.parametrize(("said", "shown"), [
    ("password s3cret of me is wrong", "password *** of me is wrong"), ("s3cret" + "y" * 400, "***" + "y" * 297),
])
def test_a_password_that_a_server_repeats_is_hidden(said: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optuna.storages, "RDBStorage", OpenedBackend)
    guarded = SearchStorage("postgresql+psycopg2://me:s3cret@host/db", studies=[]).guarded("{} cannot be read", "wait")
    with pytest.raises(StorageError) as told, guarded:
        raise RuntimeError(said)
    assert str(told.value) == f"search.storage: postgresql+psycopg2://me:***@host/db cannot be read ({shown}); wait"


def test_the_cause_of_an_error_is_what_the_database_said() -> None:
    statement_failed = DBAPIError("SELECT 1", {}, sqlite3.OperationalError("no such table: nowhere"))
    late = RuntimeError("statement 7 failed")
    late.__cause__ = statement_failed
    for error in (statement_failed, late):
        assert failed(error) == "search.storage: sqlite:// cannot be read (no such table: nowhere); wait"
    late.__cause__ = ValueError("of another cause")
    assert "(of another cause)" in failed(late)


def test_what_lies_beside_the_database_is_forgotten_after_ten_minutes(tmp_path: Path) -> None:
    file = tmp_path / "search.db"
    now = time.time()
    for name, age_s in (("young", 500), ("old", 600.9)):
        left = tmp_path / f"search.db.new-{name}"
        left.touch()
        os.utime(left, (now - age_s, now - age_s))
    SearchStorage(f"sqlite:///{file}", studies=["tiny/cell"])
    assert {path.name for path in tmp_path.glob("*.new-*")} == {"search.db.new-young"}
