"""`vsetune tracking flush` hands over what a study recorded while its store was away."""

from __future__ import annotations

from pathlib import Path

import pytest
from vsetune.tracking import AttemptStart, JournaledStore, StudyRecord, ValidationPoint, open_store

from vsetune.cli import tracking
from vsetune.errors import StorageError
from vsetune.records.study_lock import locked_study


@pytest.fixture
def waiting(home: Path) -> Path:
    """The folder of the study `tiny`, whose store was away from its first to its last record."""
    def away():
        raise StorageError("away")

    folder = home / "runs" / "tiny"
    store = JournaledStore(away, folder)
    store.open_study(StudyRecord("tiny", "f00d", {}), resume=False)
    start = AttemptStart("tiny", "t", "vsepp.lmh", "vsepp", "lmh", 1, 0, "search", {}, {})
    store.record_points(store.start_attempt(start), [ValidationPoint(10, 0.5, 64, 51.5, 2.0)])
    assert store.close(0.0) == 3
    return folder


def test_what_waits_is_delivered_once_whether_the_study_or_its_folder_is_named(vsetune, study, waiting, home):
    done = vsetune("tracking", "flush", str(study()))
    assert (done.code, done.out, done.err) == (0, "tiny: 3 records delivered, 0 left\n", "")
    again = vsetune("tracking", "flush", str(waiting))
    assert (again.code, again.out) == (0, "tiny: 0 records delivered, 0 left\n")
    (attempt,) = open_store(f"sqlite:///{home / 'mlflow.db'}", None).attempts("tiny")
    assert attempt.curve == ((0.5, 51.5),)


def test_a_store_that_is_still_away_leaves_everything_where_it_is(vsetune, waiting, monkeypatch):
    monkeypatch.setattr(tracking, "_PATIENCE_S", 1.0)
    uri = "http://user:secret@127.0.0.1:9"
    said = vsetune("tracking", "flush", str(waiting), "--tracking-uri", uri)
    assert said.code == 1
    assert said.out.startswith("tiny: 0 records delivered, 3 left: ")
    assert "cannot reach 127.0.0.1:9" in said.out
    assert said.out.count("\n") == 1
    assert "secret" not in said.out + said.err


def test_a_study_that_runs_delivers_by_itself(vsetune, waiting):
    with locked_study(waiting):
        said = vsetune("tracking", "flush", str(waiting))
    assert said.code == 2
    assert said.lines == ["error study tiny: another process is running it; wait for it or stop it"]


def test_a_folder_without_a_journal_is_named(vsetune, tmp_path, study):
    for where in (tmp_path, study()):
        said = vsetune("tracking", "flush", str(where))
        assert (said.code, len(said.lines)) == (2, 1)
        assert "holds no journal" in said.err
