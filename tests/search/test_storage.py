"""Trouble with the database is one line and costs nothing; a process may die at any statement."""

from __future__ import annotations

import itertools
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import optuna
import pytest
from real_servers import postgres
from short_folders import place
from sqlalchemy import event
from sqlalchemy.engine import Engine
from vsetune.search.trial_storage import SearchStorage

from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.cells import resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.errors import StorageError
from vsetune.search.configurations import ConfigurationSearch

__all__ = ["place"]

STUDY = parse_spec(
    {"study": "tiny", "data": {"path": "x"}, "networks": [{"name": "vsepp"}], "losses": [{"name": "lmh"}]},
    StudySpec, where="test",
)
CELLS = resolve_cells(STUDY, where="test")
CELL = "vsepp.lmh"
CURVE = [(0.5, 20.0), (1.0, 40.0)]


def opened(url: str | Path) -> ConfigurationSearch:
    storage = f"sqlite:///{url}" if isinstance(url, Path) else url
    return ConfigurationSearch("tiny", CELLS, STUDY.search, storage=storage)


class Killed(BaseException):
    """Stands for `kill -9`: nothing catches it, and what the connection has not committed is lost."""


@contextmanager
def killed_at(statement: int) -> Iterator[list[int]]:
    """Dies before the statement of this number (from 0) that any database gets. Yields the count so far."""
    count = [0]

    def before(connection: Any, cursor: Any, text: str, *rest: Any) -> None:
        count[0] += 1
        if count[0] > statement:
            raise Killed

    event.listen(Engine, "before_cursor_execute", before)
    try:
        yield count
    finally:
        event.remove(Engine, "before_cursor_execute", before)


def trials_in(file: Path) -> list[tuple[Any, ...]]:
    study = optuna.load_study(study_name=f"tiny/{CELL}", storage=f"sqlite:///{file}")
    return [(trial.state.name, trial.params, trial.value, trial.intermediate_values) for trial in study.trials]


def two_configurations(search: ConfigurationSearch) -> None:
    """What a study does, doing only what is still to be done."""
    while True:
        there = search.suggestions(CELL)
        if there and there[-1].is_open:
            search.tell(CELL, there[-1].number, "finished" if len(there) == 1 else "pruned", curve=CURVE)
        elif len(there) == 2:
            return
        else:
            search.ask(CELL)


def test_killed_at_any_statement_a_search_asks_and_tells_what_an_undisturbed_one_does(tmp_path: Path) -> None:
    undisturbed = tmp_path / "undisturbed.db"
    two_configurations(opened(undisturbed))
    expected = trials_in(undisturbed)
    file = tmp_path / "search.db"
    opened(file)
    whole = file.read_bytes()
    died = 0
    for statement in itertools.count(step=8):
        file = tmp_path / str(statement) / "search.db"
        file.parent.mkdir()
        file.write_bytes(whole)
        search = opened(file)
        try:
            with killed_at(statement):
                two_configurations(search)
        except Killed:
            died += 1
        else:
            break
        assert all(trial[1] for trial in trials_in(file)), "a trial without parameters is half a trial"
        two_configurations(opened(file))
        assert trials_in(file) == expected
    assert died > 5


def test_killed_while_it_makes_the_database_the_next_process_makes_it_whole(tmp_path: Path) -> None:
    file = tmp_path / "search.db"
    for statement in (0, 7, 20, 40):
        with pytest.raises(Killed), killed_at(statement):
            opened(file)
        assert not file.exists(), "made beside its place, and moved when whole"
    two_configurations(opened(file))
    assert {path.name for path in tmp_path.iterdir()} <= {"search.db", "search.db-wal", "search.db-shm"}


@pytest.mark.parametrize("made", ["", "CREATE TABLE version_info (version_info_id INTEGER PRIMARY KEY)"])
def test_a_database_half_made_by_an_older_version_is_replaced_and_said(made: str, tmp_path: Path, caplog: Any) -> None:
    file = tmp_path / "search.db"
    with sqlite3.connect(file) as database:
        database.executescript(made)
    database.close()
    file.touch()
    two_configurations(opened(file))
    assert [record.getMessage().count("half-made") for record in caplog.records] == [1]


def test_a_database_of_somebody_else_keeps_its_tables(tmp_path: Path) -> None:
    file = tmp_path / "app.db"
    with sqlite3.connect(file) as database:
        database.executescript("CREATE TABLE orders (id); INSERT INTO orders VALUES (7)")
    two_configurations(opened(file))
    assert database.execute("SELECT id FROM orders").fetchall() == [(7,)]
    database.close()


def test_a_locked_database_is_one_line_and_the_next_call_works(tmp_path: Path, capfd: Any) -> None:
    file = tmp_path / "search.db"
    search = opened(file)
    number = search.ask(CELL).number
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")  # others may read, not write
    with pytest.raises(StorageError, match=r"search\.db cannot be written \(database is locked\); make it") as told:
        search.tell(CELL, number, "finished", curve=CURVE)
    with pytest.raises(StorageError, match="database is locked"):
        search.ask(CELL)
    assert len(str(told.value).splitlines()) == 1
    assert search.suggestions(CELL)[0].is_open, "who reads does not wait for who writes"
    other.close()
    two_configurations(search)
    assert [trial[0] for trial in trials_in(file)] == ["COMPLETE", "PRUNED"]
    assert capfd.readouterr() == ("", "")


def test_a_configuration_that_the_database_has_never_seen_is_one_line() -> None:
    with pytest.raises(StorageError, match=r"has no configuration 7 of vsepp\.lmh; bring back the database"):
        opened("sqlite:///:memory:").tell(CELL, 7, "finished", curve=CURVE)


def test_a_full_disk_is_one_line_and_the_tell_can_be_repeated(tmp_path: Path) -> None:
    search = opened(tmp_path / "search.db")
    number = search.ask(CELL).number
    long = [(0.001 * step, 1.0) for step in range(1, 400)]
    engine = search._storage.backend.engine

    def limit(pages: int) -> None:
        with ExitStack() as opened:  # of every connection that the next call may be given
            for connection in [opened.enter_context(engine.connect()) for _ in range(engine.pool.checkedin())]:
                used = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
                connection.exec_driver_sql(f"PRAGMA max_page_count = {used + pages}")

    limit(1)
    with pytest.raises(StorageError, match=r"cannot be written \(database or disk is full\)"):
        search.tell(CELL, number, "finished", curve=long)
    limit(1000)
    search.tell(CELL, number, "finished", curve=long)
    ((state, _, value, points),) = trials_in(tmp_path / "search.db")
    assert (state, value, len(points)) == ("COMPLETE", 1.0, 399)


@pytest.mark.parametrize("url", [
    "sqlite:////no/such/folder/x.db", "nonsense://me:secret@host/db?password=secret", "me:secret@host",
    "postgresql+psycopg://me:secret@127.0.0.1:1/db",
])
def test_a_storage_that_cannot_be_opened_is_one_line_without_its_password(url: str) -> None:
    with pytest.raises(StorageError, match=r"search\.storage: cannot open") as told:
        opened(url)
    assert "secret" not in str(told.value)
    assert len(str(told.value).splitlines()) == 1


def test_a_database_driver_that_is_not_installed_is_told_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StorageError) as told:
        opened("postgresql+psycopg://me:secret@127.0.0.1:1/db")
    assert str(told.value) == (
        "search.storage: postgresql+psycopg://me:***@127.0.0.1:1/db needs the package psycopg, which is not installed; "
        "run: pip install 'vsetune[postgres]'"
    )


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "search.db"
    file.write_text("a letter, not a database, and long enough to have a header" * 20)
    with pytest.raises(StorageError, match=r"cannot open sqlite:.*\(file is not a database\)"):
        opened(file)
    assert file.read_text().startswith("a letter")


def test_what_a_process_killed_while_making_the_database_left_is_removed_later(tmp_path: Path) -> None:
    file = tmp_path / "search.db"
    old, young = tmp_path / "search.db.new-1", tmp_path / "search.db.new-2"
    for left in (old, young):
        left.touch()
    os.utime(old, (0, 0))
    opened(file)
    assert {path.name for path in tmp_path.glob("*.new-*")} == {"search.db.new-2"}


@pytest.mark.slow
def test_postgresql_has_what_a_file_has(place: Path, tmp_path: Path) -> None:
    long = [(step / 7, 20.0 + step / 3) for step in range(1, 200)]
    told: list[list[tuple[Any, ...]]] = []
    with postgres(place) as made:
        for url in (made("search"), f"sqlite:///{tmp_path / 'search.db'}"):
            search = opened(url)
            for outcome, curve in (("finished", long), ("pruned", CURVE), ("finished", [(1.0, 5.0)]), ("failed", long)):
                asked = search.ask(CELL)
                assert asked is not None
                search.tell(CELL, asked.number, outcome, curve=curve)  # type: ignore[arg-type]
            study = optuna.load_study(study_name=f"tiny/{CELL}", storage=url)
            told.append([(each.state, each.values, each.params, each.intermediate_values) for each in study.trials])
        fenced = made("fenced")
        first, second = (SearchStorage(fenced, studies=["tiny"], driver=name) for name in ("first", "second"))
        trial = optuna.trial.create_trial(state=optuna.trial.TrialState.RUNNING)
        with pytest.raises(StorageError, match="another process has taken the study over"), first.guarded("", ""):
            first.add("tiny", trial)
        with second.guarded("", ""):
            assert second.add("tiny", trial).number == 0
    assert told[0] == told[1]
    assert len(told[0][0][3]) == len(long)
