"""Who opens stores at once: alembic keeps the migration at hand for its whole process, one at a time."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from real_servers import postgres
from short_folders import place

import vsetune
from vsetune.errors import StorageError, UsageError
from vsetune.tracking import StudyRecord, open_store
from vsetune.tracking.mlflow_sqlite import schema
from vsetune.tracking.study_state import open_states

__all__ = ["place"]


@pytest.fixture
def migrating(monkeypatch: pytest.MonkeyPatch, empty_database: Path) -> list[str]:
    """Files in which alembic was set to work, in order. Whoever begins waits a moment for a second one beside him, and
    gets a copy of what alembic would make."""
    second, made = threading.Barrier(2), list[str]()

    def waiting(engine: Any) -> None:
        made.append(Path(engine.url.database).name)
        with suppress(threading.BrokenBarrierError):
            second.wait(1.0)
            raise AssertionError("two threads are in alembic at once")
        shutil.copy(empty_database, engine.url.database)

    monkeypatch.setattr(schema, "_initialize_tables", waiting)
    return made


def at_once(*calls: Callable[[], object]) -> list[BaseException]:
    """What they raise, called in threads that begin together."""
    raised: list[BaseException] = []
    begin = threading.Barrier(len(calls))

    def run(call: Callable[[], object]) -> None:
        begin.wait(10)
        try:
            call()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return raised


def studies_on_disk(database: Path) -> list[str]:
    """Names of experiments, by a connection that this process did not have before."""
    with closing(sqlite3.connect(database)) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM experiments ORDER BY 1")]


def test_the_driver_and_its_stop_watch_open_a_store_that_is_not_there_yet(
    tmp_path: Path, migrating: list[str], study: StudyRecord
) -> None:
    database = tmp_path / "mlflow.db"
    uri = f"sqlite:///{database}"

    def ask() -> None:
        with pytest.raises(UsageError, match="study nightly: not in this store"):
            open_states(uri).stop_asked("nightly")

    assert at_once(lambda: open_store(uri, None), ask) == []
    assert migrating == ["mlflow.db.making"], "made once, and beside its place"
    open_store(uri, None).open_study(study, resume=False)
    assert studies_on_disk(database) == ["Default", "nightly"], "the file was replaced under those who had it open"
    open_states(uri).ask_to_stop("nightly", "now")
    assert open_states(uri).stop_asked("nightly") == "now"


def test_stores_of_several_places_are_made_one_after_the_other(tmp_path: Path, migrating: list[str]) -> None:
    places = [tmp_path / str(number) / "mlflow.db" for number in range(4)]
    assert at_once(*(lambda place=place: open_store(f"sqlite:///{place}", None) for place in places)) == []
    assert migrating == 4 * ["mlflow.db.making"]
    assert all(studies_on_disk(place) == ["Default"] for place in places)


def test_many_threads_open_one_new_store_and_write_to_what_is_on_the_disk(tmp_path: Path, study: StudyRecord) -> None:
    """Alembic and all."""
    database = tmp_path / "mlflow.db"
    uri = f"sqlite:///{database}"

    def ask() -> None:
        with pytest.raises(UsageError, match="study nightly: not in this store"):
            open_states(uri).stop_asked("nightly")

    assert at_once(*3 * [lambda: open_store(uri, None), ask]) == []
    open_store(uri, None).open_study(study, resume=False)
    assert studies_on_disk(database) == ["Default", "nightly"]


@pytest.mark.slow
def test_processes_open_a_new_postgresql_at_once(place: Path) -> None:
    code = "import sys; from vsetune.tracking import open_store; print(open_store(sys.argv[1], None).studies())"
    with postgres(place) as made:
        command = [sys.executable, "-c", code, made("new")]
        readers = [
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)
        ]
        said = [reader.communicate(timeout=120) for reader in readers]
    assert [out for out, _ in said] == 3 * ["[]\n"], said


@pytest.mark.slow
def test_a_database_that_refuses_is_one_line_at_once(place: Path) -> None:
    """MLflow by itself tries again for an hour."""
    with postgres(place) as made:
        absent = made("there").replace("vsetune@", "vsetune:hunter2@").replace("/there", "/absent")
        begun = time.monotonic()
        with pytest.raises(StorageError, match=r'forbidden \(.*database "absent" does not exist.*\)') as refused:
            open_store(absent, None)
    assert time.monotonic() - begun < 10
    assert "hunter2" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_nobody_opens_mlflow_beside_the_one_place() -> None:
    opened = re.compile(r"\bMlflowClient\(|\b_initialize_tables\(|\bmlflow\.(start_run|set_experiment|search_runs)\(")
    code = Path(vsetune.__file__).parent
    found = {file.name for file in code.rglob("*.py") if opened.search(file.read_text(encoding="utf-8"))}
    assert found == {"mlflow_opening.py", "mlflow_sqlite.py"}
