"""Attempts are read straight out of a database of our own, and are those that MLflow's search gives."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from mlflow import MlflowClient

from vsetune.errors import StorageError, UsageError
from vsetune.tracking import open_store, sqlite_reading
from vsetune.tracking.mlflow_searching import SearchedAttempts
from vsetune.tracking.opening import open_existing


def test_attempts_out_of_the_tables_are_those_of_mlflows_search(mlflow_store, database, study, start, points):
    mlflow_store.open_study(study, resume=False)
    names = ["vsepp.lmh-c00-s0", "it's `odd` größer_%", "failed", "running", "deleted", "killed"]
    ids = {name: mlflow_store.start_attempt(start(trial=name, seed=place)) for place, name in enumerate(names)}
    mlflow_store.record_points(ids[names[0]], points(1, 300))
    mlflow_store.record_points(ids["running"], points(1, 2))
    mlflow_store.finish_attempt(ids[names[0]], "finished", {f"summary_{key}": key / 7 for key in range(400)}, [], None)
    mlflow_store.finish_attempt(ids["failed"], "failed", {}, [], "loss is nan")
    mlflow_store.finish_attempt(ids["killed"], "killed", {}, [], None)
    client = MlflowClient(f"sqlite:///{database}")
    client.delete_run(ids["deleted"])
    client.create_run(client.get_experiment_by_name("nightly").experiment_id, run_name="of somebody else")
    searching = open_store(f"sqlite:///{database}", None)
    searching._reading = SearchedAttempts(client)
    found = mlflow_store.attempts("nightly")
    assert found == searching.attempts("nightly") == open_existing(f"sqlite:///{database}").attempts("nightly")
    assert [attempt.start.trial for attempt in found] == [name for name in names if name != "deleted"]


def test_a_database_that_goes_away_is_told_and_not_made_anew(mlflow_store, database, study):
    mlflow_store.open_study(study, resume=False)
    reading = open_existing(f"sqlite:///{database}")
    away = database.rename(database.with_name("away.db"))
    with pytest.raises(StorageError, match="cannot read its studies"):
        reading.studies()
    assert not database.exists()
    away.rename(database)
    assert [record.name for record in reading.studies()] == ["nightly"]


def test_a_database_in_a_folder_that_is_read_only_is_read(mlflow_store, database, study, tmp_path, monkeypatch):
    mlflow_store.open_study(study, resume=False)
    place = tmp_path / "read only"
    place.mkdir()
    with closing(sqlite3.connect(database)) as whole, closing(sqlite3.connect(place / "mlflow.db")) as copy:
        whole.backup(copy)
        copy.execute("PRAGMA journal_mode=WAL")
    connect = sqlite3.connect

    def connected(address, **options):
        connection = connect(address, **options)
        if "immutable" not in str(address):
            connection.close()  # whatever is asked of it fails
        return connection

    monkeypatch.setattr(sqlite_reading.sqlite3, "connect", connected)
    monkeypatch.setattr(sqlite_reading.os, "access", lambda folder, way: folder != place)
    reading = open_existing(f"sqlite:///{place / 'mlflow.db'}")
    assert [record.name for record in reading.studies()] == ["nightly"]
    (place / "mlflow.db-wal").write_bytes(b"somebody writes")
    with pytest.raises(StorageError, match="cannot read its studies"):
        reading.studies()


def test_what_attempts_have_in_common_is_kept_once_in_memory(mlflow_store, study, start):
    mlflow_store.open_study(study, resume=False)
    for number in range(1, 3):
        mlflow_store.start_attempt(start(number=number))
    one, other = mlflow_store.attempts("nightly")
    assert one.start.environment is other.start.environment
    assert one.start.resolved["data"] is other.start.resolved["data"]
    assert one.start != other.start


def test_what_was_read_before_is_read_again_only_where_it_has_changed(mlflow_store, database, study, start, points):
    mlflow_store.open_study(study, resume=False)
    ids = [mlflow_store.start_attempt(start(trial=trial)) for trial in "abcde"]
    reading = open_store(f"sqlite:///{database}", None)
    before = reading.attempts("nightly")
    mlflow_store.record_points(ids[1], points(1, 2))
    mlflow_store.finish_attempt(ids[2], "failed", {"epochs": 2.0}, [], "loss is nan")
    MlflowClient(f"sqlite:///{database}").delete_run(ids[3])
    ids.append(mlflow_store.start_attempt(start(trial="f")))
    after = reading.attempts("nightly")
    assert after == open_store(f"sqlite:///{database}", None).attempts("nightly")
    assert [attempt.start.trial for attempt in after] == list("abcef")
    assert [each in map(id, before) for each in map(id, after)] == [True, False, False, True, False]
    mlflow_store.finish_attempt(ids[2], "failed", {"epochs": 3.0}, [], "loss is infinite")
    assert reading.attempts("nightly")[2].error == "loss is infinite"
    mlflow_store.open_study(study, resume=True)
    assert {attempt.status for attempt in reading.attempts("nightly")} == {"killed", "failed"}


def test_settings_that_are_off_are_no_params_and_are_read_back_all_the_same(mlflow_store, database, study, start):
    off = {"name": "lseh", "warmup_epochs": 0, "loss_ramp": None, "phases": [], "backbone": {}, "absolute": False}
    mlflow_store.open_study(study, resume=False)
    run_id = mlflow_store.start_attempt(start(resolved={"loss": off}, configuration={"loss.margin": 0.0}))
    params = MlflowClient(f"sqlite:///{database}").get_run(run_id).data.params
    assert {name for name in params if name.startswith("loss.")} == {"loss.margin"}
    assert mlflow_store.attempt(run_id).start.resolved["loss"] == off


def test_a_board_of_a_sqlite_file_is_made_without_torch_and_mlflow(mlflow_store, database, study, start, points):
    """They take seconds to load, and more memory than ten thousand attempts."""
    mlflow_store.open_study(study, resume=False)
    mlflow_store.record_points(mlflow_store.start_attempt(start()), points(1, 3))
    script = (
        "import sys\n"
        "from vsetune.jobs.store_address import existing_store\n"
        "from vsetune.leaderboard.building import build\n"
        "from vsetune.leaderboard.terminal import render_table\n"
        "from vsetune.tracking.opening import open_existing\n"
        "store = open_existing(sys.argv[1])\n"
        "assert [each.name for each in store.studies()] == ['nightly']\n"
        "render_table(build(store.attempts('nightly'), baseline='lmh'))\n"
        "heavy = {'torch', 'mlflow', 'sqlalchemy', 'pandas', 'matplotlib', 'optuna', 'ray', 'sklearn'}\n"
        "print(sorted(heavy & {name.split('.')[0] for name in sys.modules}))\n"
    )
    words = [sys.executable, "-c", script, f"sqlite:///{database}"]
    environment = {"PYTHONPATH": str(Path(__file__).parents[2] / "platform"), "PATH": ""}
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_store_that_is_only_read_answers_as_the_whole_one(mlflow_store, database, study, start, points):
    mlflow_store.open_study(study, resume=False)
    run_id = mlflow_store.start_attempt(start())
    mlflow_store.record_points(run_id, points(1, 2))
    reading = open_existing(f"sqlite:///{database}")
    assert (reading.studies(), reading.attempts("nightly")) == ([study], mlflow_store.attempts("nightly"))
    assert (reading.attempt(run_id), reading.points(run_id)) == (mlflow_store.attempt(run_id), points(1, 2))
    with pytest.raises(UsageError, match="study other: not in this store, which has: nightly"):
        reading.attempts("other")
    client = MlflowClient(f"sqlite:///{database}")
    client.delete_experiment(client.get_experiment_by_name("nightly").experiment_id)
    assert reading.studies() == []


def test_a_file_that_no_tables_are_in_is_opened_as_before_and_damage_is_one_line(mlflow_store, database, tmp_path):
    with pytest.raises(StorageError, match="no such file; run a study first"):
        open_existing(f"sqlite:///{tmp_path / 'none.db'}")
    (tmp_path / "other.db").write_bytes(b"not a database" * 100)
    with pytest.raises(StorageError, match="file is not a database"):
        open_existing(f"sqlite:///{tmp_path / 'other.db'}")
    reading = open_existing(f"sqlite:///{database}")
    for file in database.parent.glob("mlflow.db*"):
        file.unlink()
    database.write_bytes(b"not a database" * 100)
    with pytest.raises(StorageError, match=r"mlflow\.db: cannot read its studies \(.*\); check the file") as caught:
        reading.studies()
    assert "\n" not in str(caught.value)
