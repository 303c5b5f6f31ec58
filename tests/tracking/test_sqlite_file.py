"""The database of a first start is whole or not there; one that was left half-made is mended."""

import random
import resource
import shutil
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from mlflow.store.db.utils import _get_alembic_config

from vsetune.errors import StorageError, UnusableStore
from vsetune.tracking import mlflow_sqlite, open_store
from vsetune.tracking.sqlite_file import prepare_sqlite

EARLIER = "b7e4c1a90f23"
"""A schema some steps before the latest."""

KILLED = """
import os, random, signal, sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from vsetune.tracking import mlflow_sqlite
from vsetune.tracking.sqlite_file import prepare_sqlite
draw = random.Random(int(sys.argv[2]))
for number, path in enumerate(sys.argv[4:]):
    child = os.fork()
    if child == 0:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        prepare_sqlite(Path(path)) if sys.argv[3] == "ours" else mlflow_sqlite.create_schema(Path(path))
        os._exit(0)
    time.sleep(draw.uniform(0.0, 3.0))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""


@pytest.fixture
def quick(monkeypatch, empty_database):
    """A schema is copied, not made; counts how often."""
    made = []

    def copy(database):
        made.append(database)
        shutil.copy(empty_database, database)

    monkeypatch.setattr(mlflow_sqlite, "create_schema", copy)
    return made


def killed_while_made(databases, *, seed, how="ours"):
    root = str(Path(__file__).parents[2] / "platform")
    words = [sys.executable, "-c", KILLED, root, str(seed), how, *map(str, databases)]
    subprocess.run(words, check=True, timeout=250, capture_output=True)


def changed(empty_database, path, *statements):
    """A copy of a whole database after some SQL."""
    shutil.copy(empty_database, path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return path


def is_sound(database):
    with closing(sqlite3.connect(database)) as connection:
        (version,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    return mlflow_sqlite.is_latest(version)


def test_a_first_start_that_is_killed_again_and_again_leaves_the_way_free(tmp_path):
    database = tmp_path / "home" / "mlflow.db"
    killed_while_made([database] * 3, seed=7)
    assert not database.exists() or is_sound(database)
    assert open_store(f"sqlite:///{database}", None).studies() == []
    assert is_sound(database)
    assert not list(database.parent.glob("*.making*"))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["ours", "as MLflow does it"])
def test_a_database_is_opened_after_a_kill_at_any_point_of_its_making(tmp_path, how):
    databases = [tmp_path / str(number) / "mlflow.db" for number in range(8)]
    killed_while_made(databases, seed=random.Random(3).randrange(1000), how=how)
    for database in databases:
        assert open_store(f"sqlite:///{database}", None).studies() == []
        assert is_sound(database)


@pytest.mark.parametrize("what", ["nothing", "no tables", "tables missing", "no version", "an earlier version"])
def test_a_half_made_database_without_runs_is_kept_aside_and_made_anew(tmp_path, empty_database, quick, what, caplog):
    database = tmp_path / "mlflow.db"
    if what == "nothing":
        database.write_bytes(b"")
    elif what == "no tables":
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
    else:
        half = {
            "tables missing": ["DROP TABLE spans", "UPDATE alembic_version SET version_num = '451aebb31d03'"],
            "no version": ["DROP TABLE alembic_version", "CREATE TABLE _alembic_tmp_runs (number INTEGER)"],
            "an earlier version": [f"UPDATE alembic_version SET version_num = '{EARLIER}'"],
        }
        changed(empty_database, database, *half[what])
    prepare_sqlite(database, look_again_s=0)
    assert is_sound(database)
    aside = what not in ("nothing", "no tables")
    assert (tmp_path / "mlflow.db.broken-1").exists() == aside
    assert [line.getMessage().count("half-made") for line in caplog.records] == [1] * aside


def test_an_earlier_database_that_holds_runs_is_upgraded_and_the_old_one_kept(tmp_path):
    database = tmp_path / "mlflow.db"
    with mlflow_sqlite._engine(database) as engine:
        mlflow_sqlite.InitialBase.metadata.create_all(engine)
        config = _get_alembic_config(str(engine.url))
        with engine.begin() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, EARLIER)
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("INSERT INTO runs (run_uuid, name) VALUES ('ours', 'kept')")
        connection.commit()
    prepare_sqlite(database, look_again_s=0)
    assert is_sound(database)
    assert (tmp_path / "mlflow.db.before-upgrade-1").exists()
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("SELECT run_uuid, name FROM runs").fetchall() == [("ours", "kept")]


def test_a_database_of_a_newer_mlflow_is_refused_and_not_touched(tmp_path, empty_database, quick):
    database = changed(empty_database, tmp_path / "mlflow.db", "UPDATE alembic_version SET version_num = 'fffff0'")
    with pytest.raises(UnusableStore, match=r"another version of MLflow \(schema fffff0") as caught:
        prepare_sqlite(database, look_again_s=0)
    assert "\n" not in str(caught.value)
    assert quick == []


def test_tables_of_another_program_are_left_in_peace(tmp_path, quick):
    database = tmp_path / "search.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE trials (number INTEGER)")
    prepare_sqlite(database, look_again_s=0)
    assert quick == []
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("trials",)]


def test_a_damaged_database_is_refused_and_kept(tmp_path, empty_database):
    database = tmp_path / "mlflow.db"
    whole = empty_database.read_bytes()
    database.write_bytes(whole[: len(whole) // 3])
    with pytest.raises(UnusableStore, match="malformed") as caught:
        prepare_sqlite(database, look_again_s=0)
    assert "\n" not in str(caught.value)
    assert database.stat().st_size == len(whole) // 3


def test_a_disk_that_is_full_at_the_first_start_is_one_line_and_leaves_the_way_free(tmp_path, empty_database):
    database = tmp_path / "mlflow.db"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
        with pytest.raises(StorageError, match="cannot be opened for writing") as caught:
            prepare_sqlite(database, look_again_s=0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(caught.value)
    assert not isinstance(caught.value, UnusableStore)
    assert not database.exists()
    prepare_sqlite(database, look_again_s=0)
    assert is_sound(database)


def test_two_first_starts_at_once_make_one_database(tmp_path, quick):
    database = tmp_path / "mlflow.db"
    threads = [threading.Thread(target=prepare_sqlite, args=(database,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(quick) == 1
    assert is_sound(database)


def test_a_database_that_another_program_began_meanwhile_stays(tmp_path, monkeypatch, quick, empty_database):
    """It may be an MLflow server that has just started; what it writes into a file that was replaced would be lost."""
    database, make = tmp_path / "mlflow.db", mlflow_sqlite.create_schema

    def make_while_a_server_starts(making):
        make(making)
        shutil.copy(empty_database, database)
        with closing(sqlite3.connect(database)) as server:
            server.execute("CREATE TABLE of_the_server (number)")

    monkeypatch.setattr(mlflow_sqlite, "create_schema", make_while_a_server_starts)
    prepare_sqlite(database, look_again_s=0)
    assert is_sound(database)
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("SELECT count(*) FROM of_the_server").fetchall() == [(0,)]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["mlflow.db", "mlflow.db.lock"]


def test_an_empty_database_that_another_program_is_about_to_fill_stays(tmp_path, monkeypatch, quick, empty_database):
    database = tmp_path / "mlflow.db"
    database.write_bytes(b"")
    monkeypatch.setattr(
        "vsetune.tracking.sqlite_file.time.sleep", lambda seconds: shutil.copy(empty_database, database)
    )
    prepare_sqlite(database)
    assert is_sound(database)
    assert quick == []


def test_a_database_that_another_process_holds_is_one_line_and_answers_again_afterwards(
    database, study, start, points, monkeypatch, caplog, capfd
):
    monkeypatch.setattr("vsetune.tracking.sqlite_file.BUSY_TIMEOUT_S", 0.1)
    monkeypatch.setattr("vsetune.tracking.mlflow_sqlite.BUSY_TIMEOUT_S", 0.1)
    store = open_store(f"sqlite:///{database}", None)
    store.open_study(study, resume=False)
    attempt_id = store.start_attempt(start())
    with closing(sqlite3.connect(database)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        for call in (
            lambda: open_store(f"sqlite:///{database}", None),
            lambda: store.record_points(attempt_id, points(1, 2)),
            lambda: store.finish_attempt(attempt_id, "finished", {}, [], None),
        ):
            with pytest.raises(StorageError, match="locked") as caught:
                call()
            assert "\n" not in str(caught.value)
            assert not isinstance(caught.value, UnusableStore)
        holder.rollback()
    store.record_points(attempt_id, points(1, 2))
    assert len(store.attempt(attempt_id).curve) == 2
    assert caplog.records == []
    assert capfd.readouterr() == ("", "")
