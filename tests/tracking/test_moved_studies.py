"""A study carried to another store is the same study there, however often and with whatever interruptions."""

import json
import shutil
import sqlite3
import zipfile
from contextlib import closing

import pytest
from full_disk import largest_file
from mlflow import MlflowClient
from written_fields import as_written

from vsetune.errors import DataError, StorageError, StudyConflict, UsageError
from vsetune.leaderboard.building import build
from vsetune.leaderboard.export import curves_to_csv, to_csv
from vsetune.tracking import AttemptStart, StudyRecord, ValidationPoint, moving, open_store
from vsetune.tracking.exported_content import artifact_file
from vsetune.tracking.exported_study import opened_study, written_study
from vsetune.tracking.mlflow_importing import MOVED_FROM
from vsetune.tracking.study_files import copied_search

STUDY = StudyRecord("nightly", "f00d", {"study": "nightly", "networks": [], "losses": [], "baseline": "lmh"}, {})


@pytest.fixture(scope="module")
def original(empty_database, tmp_path_factory):
    """A folder with a database, the exports of it as file and folder, and the artifacts."""
    place = tmp_path_factory.mktemp("original")
    copy_database(empty_database, place)
    record(open_store(f"sqlite:///{place / 'mlflow.db'}", None, curve_plots=False), place)
    export(place / "mlflow.db", place / "study.zip")
    export(place / "mlflow.db", place / "folder")
    return place


@pytest.fixture
def database(original, tmp_path):
    """The original in a copy, so that tests may write to it; its artifacts stay where they are."""
    copy_database(original / "mlflow.db", tmp_path)
    return tmp_path / "mlflow.db"


@pytest.fixture
def recorded(database):
    return open_store(f"sqlite:///{database}", None, curve_plots=False)


def copy_database(database, folder):
    for file in database.parent.glob("mlflow.db*"):
        shutil.copy(file, folder / file.name)


def record(mlflow_store, place):
    """Two cells with two seeds each, weights, a gallery, a failed attempt, an odd number."""
    mlflow_store.open_study(STUDY, resume=False)
    weights = place / "best.safetensors"
    weights.write_bytes(bytes(range(256)) * 40)
    page = place / "page.html"
    page.write_text("<p>gallery</p>")
    for cell, loss in (("vsepp.lmh", "lmh"), ("vsepp.lseh", "lseh")):
        for seed in range(2):
            run = mlflow_store.start_attempt(start(
                trial=f"{cell}-c00-s{seed}", cell=cell, loss=loss, seed=seed, phase="confirm" if seed else "search",
            ))
            mlflow_store.record_points(run, points(1, 4 + seed))
            summary = {"best_m_recall": 50 + (4 + seed) / 7, "epochs_to_best": (4 + seed) / 3, "train_seconds": 9.0}
            mlflow_store.finish_attempt(run, "finished", summary, [weights], None)
            mlflow_store.keep_artifacts(run, [page], folder="gallery")
    failed = mlflow_store.start_attempt(start(trial="vsepp.lmh-c01-s0"))
    mlflow_store.finish_attempt(failed, "failed", {}, [], "loss is nan")
    MlflowClient(f"sqlite:///{place / 'mlflow.db'}").log_metric(failed, "strange", float("nan"), timestamp=5, step=3)
    mlflow_store.finish_study("nightly", "finished", [page])


def start(trial="vsepp.lmh-c00-s0", **changes):
    plain = {
        "study": "nightly", "trial": trial, "cell": "vsepp.lmh", "network": "vsepp", "loss": "lmh", "number": 1,
        "seed": 0, "phase": "search", "configuration": {"loss.margin": 0.2}, "resolved": {"trial": trial},
        "environment": {"device": "cpu"}, "protocol": {"images": 400, "validate_every_steps": 10},
    }
    return as_written(AttemptStart(**{**plain, **changes}))


def points(first, last):
    return [
        as_written(ValidationPoint(10 * at, at / 3, 1280 * at, 50 + at / 7, 1.5 * at, {"device_seconds": 2.0 * at}))
        for at in range(first, last + 1)
    ]


def export(database, place):
    with written_study(place) as writer:
        return moving.exporter(f"sqlite:///{database}").export(
            "nightly", writer, search=None, on_run=lambda name: None
        )


def bring(place, uri, on_run=lambda name: None):
    with opened_study(place) as exported:
        return moving.importer(uri, None).bring(exported, on_run=on_run)


@pytest.fixture
def elsewhere(empty_database, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    copy_database(empty_database, tmp_path / "elsewhere")
    return f"sqlite:///{tmp_path / 'elsewhere' / 'mlflow.db'}"


def boards(store):
    board = build(store.attempts("nightly"), baseline="lmh")
    return to_csv(board), curves_to_csv(board)


@pytest.mark.parametrize("name", ["study.zip", "folder"])
def test_boards_numbers_and_files_of_a_moved_study_equal_those_of_the_original(
    recorded, original, database, elsewhere, tmp_path, name
):
    assert bring(original / name, elsewhere) == moving.Imported(6, 0, 0)
    moved = open_store(elsewhere, None)
    assert moved.studies() == recorded.studies()
    assert boards(moved) == boards(recorded)
    here, there = MlflowClient(f"sqlite:///{database}"), MlflowClient(elsewhere)
    for old, new in zip(recorded.attempts("nightly"), moved.attempts("nightly"), strict=True):
        assert (new.start, new.status, new.curve, new.summary, new.error) == (
            old.start, old.status, old.curve, old.summary, old.error
        )
        one, other = here.get_run(old.attempt_id), there.get_run(new.attempt_id)
        assert other.data.params == one.data.params
        assert other.data.tags[MOVED_FROM] == old.attempt_id
        assert (other.info.start_time, other.info.end_time, other.info.status) == (
            one.info.start_time, one.info.end_time, one.info.status
        )
        for metric in one.data.metrics:
            series = [
                [(each.step, each.timestamp, str(each.value)) for each in client.get_metric_history(run, metric)]
                for client, run in ((here, old.attempt_id), (there, new.attempt_id))
            ]
            assert series[0] == series[1], metric
        for artifact in ("best.safetensors", "gallery/page.html", "config.yaml"):
            (tmp_path / old.attempt_id).mkdir(exist_ok=True)
            files = [
                store.fetch_artifact(record.attempt_id, artifact, tmp_path / old.attempt_id)
                for store, record in ((recorded, old), (moved, new))
            ]
            if files[0] is not None or files[1] is not None:
                assert files[0].read_bytes() == files[1].read_bytes()
    parent = there.search_runs([there.get_experiment_by_name("nightly").experiment_id], "tags.status = 'finished' AND "
                               "tags.`vsetune.kind` = 'study'")[0]
    assert {run.data.tags["mlflow.parentRunId"] for run in map(there.get_run, [
        attempt.attempt_id for attempt in moved.attempts("nightly")
    ])} == {parent.info.run_id}


def test_an_import_that_is_repeated_adds_nothing_and_one_into_its_own_store_neither(
    recorded, original, database, elsewhere, tmp_path
):
    bring(original / "study.zip", elsewhere)
    assert bring(original / "study.zip", elsewhere) == moving.Imported(0, 0, 6)
    assert bring(original / "study.zip", f"sqlite:///{database}") == moving.Imported(0, 0, 6)
    assert len(open_store(elsewhere, None).attempts("nightly")) == 5


@pytest.mark.parametrize("dies_at", [2, 6])
def test_an_import_that_was_interrupted_is_no_study_and_goes_on(recorded, original, elsewhere, dies_at):
    seen = []

    def dying(name):
        seen.append(name)
        if len(seen) == dies_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bring(original / "study.zip", elsewhere, dying)
    half = open_store(elsewhere, None)
    assert half.studies() == []
    with pytest.raises(UsageError, match="nightly"):
        half.attempts("nightly")
    found = bring(original / "study.zip", elsewhere)
    assert found.new + found.completed + found.there == 6
    assert boards(open_store(elsewhere, None)) == boards(recorded)


def test_an_import_killed_inside_a_run_completes_that_run(recorded, original, elsewhere, monkeypatch):
    times = []

    def full(self, run_id, path, folder=None):
        times.append(path)
        if len(times) == 4:
            raise OSError("no space left")
        return log_artifact(self, run_id, path, folder)

    log_artifact = MlflowClient.log_artifact
    monkeypatch.setattr(MlflowClient, "log_artifact", full)
    with pytest.raises(StorageError, match=r"no space left.*goes on where it stopped"):
        bring(original / "study.zip", elsewhere)
    found = bring(original / "study.zip", elsewhere)
    assert found.completed >= 1
    assert boards(open_store(elsewhere, None)) == boards(recorded)


def test_of_two_imports_at_once_one_stops_and_no_attempt_is_there_twice(recorded, original, elsewhere, monkeypatch):
    """Both have seen that a run is not there; as when one that seems to hang is repeated in another shell."""
    other = []

    def create_run(self, *details, **named):
        if not other and "vsetune.moved_from" in named["tags"]:
            other.append(None)
            other[0] = bring(original / "study.zip", elsewhere)
        return create(self, *details, **named)

    create = MlflowClient.create_run
    monkeypatch.setattr(MlflowClient, "create_run", create_run)
    with pytest.raises(StudyConflict, match=r"nightly: another import of it brings the same run.*then repeat"):
        bring(original / "study.zip", elsewhere)
    assert other == [moving.Imported(6, 0, 0)]
    assert bring(original / "study.zip", elsewhere) == moving.Imported(0, 0, 6)
    assert boards(open_store(elsewhere, None)) == boards(recorded)
    assert len(open_store(elsewhere, None).attempts("nightly")) == 5


def test_a_newer_export_brings_what_is_new(recorded, original, database, elsewhere, tmp_path):
    bring(original / "study.zip", elsewhere)
    run = recorded.start_attempt(start(trial="vsepp.lmh-c02-s0"))
    recorded.record_points(run, points(1, 2))
    recorded.finish_attempt(run, "pruned", {"best_m_recall": 50.1}, [], None)
    recorded.finish_study("nightly", "finished", [])
    export(database, tmp_path / "new.zip")
    assert bring(tmp_path / "new.zip", elsewhere) == moving.Imported(1, 1, 5)
    assert boards(open_store(elsewhere, None)) == boards(recorded)


def test_what_has_changed_at_both_places_is_never_overwritten(recorded, original, database, elsewhere, tmp_path):
    bring(original / "study.zip", elsewhere)
    open_store(elsewhere, None).open_study(STUDY, resume=True)
    assert bring(original / "study.zip", elsewhere).there == 6
    recorded.finish_study("nightly", "killed", [])
    export(database, tmp_path / "new.zip")
    with pytest.raises(StudyConflict, match="has changed here since it was imported"):
        bring(tmp_path / "new.zip", elsewhere)


def test_a_name_that_stands_for_something_else_is_refused(recorded, original, database, elsewhere, tmp_path):
    other = open_store(elsewhere, None)
    other.open_study(StudyRecord("nightly", "beef", {}), resume=False)
    with pytest.raises(StudyConflict, match="another configuration here"):
        bring(original / "study.zip", elsewhere)
    client = MlflowClient(elsewhere)
    client.delete_experiment(client.get_experiment_by_name("nightly").experiment_id)
    with pytest.raises(StudyConflict, match="deleted experiment"):
        bring(original / "study.zip", elsewhere)


def test_attempts_recorded_at_both_places_are_not_mixed(recorded, original, database, elsewhere, tmp_path):
    open_store(elsewhere, None).open_study(STUDY, resume=False)
    with pytest.raises(StudyConflict, match="was recorded here and is in the export too"):
        bring(original / "study.zip", elsewhere)


def test_a_changed_byte_a_missing_file_and_a_way_out_are_refused_before_anything_is_written(
    recorded, original, database, elsewhere, tmp_path
):
    shutil.copytree(original / "folder", tmp_path / "folder")
    weights = next((tmp_path / "folder").rglob("best.safetensors"))
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + b"!")
    with pytest.raises(DataError, match=r"best\.safetensors is not what was exported"):
        bring(tmp_path / "folder", elsewhere)
    weights.unlink()
    with pytest.raises(DataError, match=r"best\.safetensors cannot be read \(No such file"):
        bring(tmp_path / "folder", elsewhere)
    weights.write_bytes(content)
    header = tmp_path / "folder" / "study.json"
    plain = json.loads(header.read_text())
    plain["files"]["artifacts/../../outside"] = {"sha256": "", "size": 0}
    header.write_text(json.dumps(plain))
    with pytest.raises(DataError, match=r"study\.json: files\.artifacts/../../outside: leads out"):
        bring(tmp_path / "folder", elsewhere)
    assert open_store(elsewhere, None).studies() == []
    assert MlflowClient(elsewhere).get_experiment_by_name("nightly") is None


def test_what_is_no_export_and_a_place_that_is_taken_are_one_line(recorded, database, elsewhere, tmp_path):
    (tmp_path / "text.zip").write_text("no archive")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("a.txt", "a")
    for place in ("text.zip", "other.zip", "nowhere.zip"):
        with pytest.raises(DataError) as caught:
            bring(tmp_path / place, elsewhere)
        assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="exists already"):
        export(database, tmp_path / "text.zip")
    with pytest.raises(UsageError, match="study nightly: not in this store"):
        export(elsewhere.removeprefix("sqlite:///"), tmp_path / "none.zip")
    assert not (tmp_path / "none.zip").exists()


def test_a_temporary_folder_that_is_full_is_told_and_not_called_a_damaged_export(original, tmp_path):
    with opened_study(original / "study.zip") as exported, largest_file(1000):
        run = next(run for run in exported.run_ids if "best.safetensors" in exported.artifacts(run))
        weights = artifact_file(run, "best.safetensors")
        with pytest.raises(StorageError) as caught:
            exported.extract(weights, tmp_path)
    assert f"{tmp_path / 'best.safetensors'}: cannot be written (File too large; " in str(caught.value)
    assert "TMPDIR" in str(caught.value)


def test_weights_that_do_not_fit_where_they_are_copied_to_are_not_called_missing(recorded, tmp_path):
    run = next(each for each in recorded.attempts("nightly") if each.status == "finished").attempt_id
    with largest_file(1000), pytest.raises(StorageError) as caught:
        recorded.fetch_artifact(run, "best.safetensors", tmp_path)
    assert f"run {run}: best.safetensors is there and cannot be copied to {tmp_path} (" in str(caught.value)
    assert "TMPDIR" in str(caught.value)


def test_a_search_is_called_damaged_only_where_it_is(tmp_path):
    search, into = tmp_path / "search.db", tmp_path / "into"
    with closing(sqlite3.connect(search)) as database, database:
        database.execute("CREATE TABLE trials (settings TEXT)")
        database.executemany("INSERT INTO trials VALUES (?)", [("x" * 1000,)] * 100)
    into.mkdir()
    with largest_file(5000), pytest.raises(StorageError, match=f"search.db: cannot be copied to {into} .*TMPDIR"):
        copied_search(tmp_path, into)
    search.write_bytes(b"no database" * 1000)
    with pytest.raises(StorageError, match=r"search.db: cannot be read \(file is not a database\); mend or move"):
        copied_search(tmp_path, into)
