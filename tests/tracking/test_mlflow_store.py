"""What people and programs that look into MLflow itself will find there."""

import math
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from mlflow import MlflowClient
from mlflow.entities import Metric

from vsetune.config.spec.secrets import masked
from vsetune.errors import StorageError, StudyConflict, UsageError
from vsetune.tracking import StudyRecord, ValidationPoint, open_store
from vsetune.tracking.plots import curves_picture
from vsetune.tracking.point_blocks import POINTS


@pytest.fixture
def opened(mlflow_store, study):
    mlflow_store.open_study(study, resume=False)
    return mlflow_store


@pytest.fixture
def client(database, opened) -> MlflowClient:
    return MlflowClient(tracking_uri=f"sqlite:///{database}")


def parent_of(client: MlflowClient):
    experiment = client.get_experiment_by_name("nightly")
    return client.search_runs([experiment.experiment_id], "tags.`vsetune.kind` = 'study'")[0]


def test_an_attempt_is_a_run_nested_under_its_study_with_params_and_tags(client, opened, start):
    run = client.get_run(opened.start_attempt(start(number=2)))
    assert run.data.tags["mlflow.parentRunId"] == parent_of(client).info.run_id
    assert run.info.run_name == "vsepp.lmh-c00-s0 attempt 2"
    assert run.data.params == {
        "cell": "vsepp.lmh", "network": "vsepp", "loss": "lmh", "seed": "0", "loss.margin": "0.2",
        "loss.warmup_epochs": "1", "network.absolute": "False", "loss.variant": "decided",
    }
    shown = {"trial": "vsepp.lmh-c00-s0", "attempt": "2", "phase": "search", "cell": "vsepp.lmh", "status": "running"}
    assert shown.items() <= run.data.tags.items()
    assert '"device":"cpu"' in run.data.tags["environment"]
    assert '"images":400' in run.data.tags["protocol"]


def test_the_study_run_carries_a_note_its_fingerprint_and_its_resolved_file(client, study):
    parent = parent_of(client)
    assert "networks: vsepp" in parent.data.tags["mlflow.note.content"]
    assert parent.data.tags["fingerprint"] == "f00d"
    artifact = Path(client.download_artifacts(parent.info.run_id, "study.yaml"))
    assert yaml.safe_load(artifact.read_text()) == study.config


def test_the_resolved_trial_is_an_artifact_from_the_start(client, opened, start):
    artifact = client.download_artifacts(opened.start_attempt(start()), "config.yaml")
    assert yaml.safe_load(Path(artifact).read_text()) == start().resolved


def steps_of(client: MlflowClient, run_id: str) -> dict[str, list[int]]:
    names = ("m_recall", "epoch", "i2t_r1", "train_seconds")
    return {name: [metric.step for metric in client.get_metric_history(run_id, name)] for name in names}


def test_m_recall_stands_at_every_validation_and_the_summary_at_the_last(client, opened, start, points):
    attempt_id = opened.start_attempt(start())
    opened.record_points(attempt_id, points(1, 3))
    assert steps_of(client, attempt_id) == {"m_recall": [10, 20, 30], "epoch": [], "i2t_r1": [], "train_seconds": []}
    opened.finish_attempt(attempt_id, "finished", {"train_seconds": 9.0, "m_recall": 1.0}, [], None)
    of_summary = {"m_recall": [10, 20, 30], "train_seconds": [30]}
    assert steps_of(client, attempt_id) == {"epoch": [], "i2t_r1": [], **of_summary}
    assert client.get_run(attempt_id).data.metrics["train_seconds"] == 9.0


def test_all_numbers_of_every_validation_are_drawn_where_that_is_asked_for(client, opened, database, start, points):
    store = open_store(f"sqlite:///{database}", None, curve_plots=False, all_numbers=True)
    attempt_id = store.start_attempt(start())
    store.record_points(attempt_id, points(1, 3))
    store.finish_attempt(attempt_id, "finished", {"train_seconds": 9.0}, [], None)
    assert set(map(tuple, steps_of(client, attempt_id).values())) == {(10, 20, 30)}
    assert store.points(attempt_id) == points(1, 3)


def test_another_process_that_repeats_points_adds_no_metric(client, opened, database, start, points):
    attempt_id = opened.start_attempt(start())
    opened.record_points(attempt_id, points(1, 3))
    again = open_store(f"sqlite:///{database}", None)
    again.record_points(again.start_attempt(start()), points(1, 4))
    assert [metric.step for metric in client.get_metric_history(attempt_id, "m_recall")] == [10, 20, 30, 40]


def test_a_crash_between_metrics_and_curve_tag_leaves_no_double_metric(client, opened, database, start, points):
    attempt_id = opened.start_attempt(start())
    opened.record_points(attempt_id, points(1, 3))
    client.delete_tag(attempt_id, f"{POINTS}.0")
    again = open_store(f"sqlite:///{database}", None)
    again.record_points(attempt_id, points(1, 3))
    assert len(client.get_metric_history(attempt_id, "m_recall")) == 3
    assert len(again.attempts("nightly")[0].curve) == 3


def test_params_missing_after_a_crash_are_written_when_the_attempt_starts_again(client, opened, start):
    experiment = client.get_experiment_by_name("nightly")
    first = opened.start_attempt(start())
    kept = {key: text for key, text in client.get_run(first).data.tags.items() if not key.startswith("mlflow.")}
    client.delete_run(first)
    bare = client.create_run(experiment.experiment_id, tags=kept)
    assert opened.start_attempt(start()) == bare.info.run_id
    assert client.get_run(bare.info.run_id).data.params["loss.margin"] == "0.2"


@pytest.mark.parametrize(
    ("status", "shown"), [("finished", "FINISHED"), ("pruned", "FINISHED"), ("failed", "FAILED"), ("killed", "KILLED")]
)
def test_runs_end_in_the_status_mlflow_knows(client, opened, start, status, shown):
    attempt_id = opened.start_attempt(start())
    opened.finish_attempt(attempt_id, status, {"best_m_recall": 60.0}, [], None)
    run = client.get_run(attempt_id)
    assert (run.info.status, run.data.tags["status"]) == (shown, status)
    assert run.data.metrics["best_m_recall"] == 60.0


def test_more_metrics_and_tags_than_one_batch_takes_are_all_kept(client, opened, database, start):
    attempt_id = opened.start_attempt(start())
    names = [f"number_{index}" for index in range(45)]
    many = [
        ValidationPoint(index, index / 7, index, 50.0, float(index), dict.fromkeys(names, 1.0))
        for index in range(1, 51)
    ]
    drawing = open_store(f"sqlite:///{database}", None, all_numbers=True)
    drawing.record_points(attempt_id, many)
    assert len(client.get_metric_history(attempt_id, "number_44")) == 50
    assert len(opened.attempts("nightly")[0].curve) == 50


def test_a_picture_of_all_curves_is_kept(client, opened, database, start, points):
    store = open_store(f"sqlite:///{database}", None)
    attempt_id = store.start_attempt(start())
    store.record_points(attempt_id, points(1, 5))
    store.finish_attempt(attempt_id, "finished", {}, [], None)
    drawn = ElementTree.parse(client.download_artifacts(attempt_id, "curves.svg"))
    panels = drawn.findall("{*}g")
    assert [panel.findtext("{*}text") for panel in panels] == ["m_recall", "i2t_r1", "device_seconds"]
    assert all(len(panel.find("{*}polyline").get("points").split()) == 5 for panel in panels)
    assert "best 50.714 at epoch 1.667" in ElementTree.tostring(panels[0], encoding="unicode")


def test_odd_numbers_and_long_trainings_are_drawn_as_far_as_they_can_be():
    odd = [ValidationPoint(step, step / 7, step, 1.0, 0.0, {"<loss>": math.nan}) for step in range(1, 1000)]
    drawn = ElementTree.fromstring(curves_picture(odd))
    assert [text.text for text in drawn.findall("{*}g")[1].findall("{*}text")][::2] == ["<loss>", "no finite number"]
    assert len(drawn.find("{*}g/{*}polyline").get("points").split()) <= 201


def test_the_note_of_a_finished_study_counts_its_attempts(client, opened, start):
    for trial, status in (("a", "finished"), ("b", "finished"), ("c", "failed")):
        opened.finish_attempt(opened.start_attempt(start(trial=trial)), status, {}, [], None)
    opened.finish_study("nightly", "finished", [])
    parent = parent_of(client)
    assert "Attempts: 1 failed, 2 finished." in parent.data.tags["mlflow.note.content"]
    assert parent.info.status == "FINISHED"


def test_the_name_of_a_deleted_experiment_is_refused_with_the_way_out(client, opened, study, database):
    client.delete_experiment(client.get_experiment_by_name("nightly").experiment_id)
    for resume in (False, True):
        with pytest.raises(StudyConflict, match=r"deleted experiment .* restore") as caught:
            open_store(f"sqlite:///{database}", None).open_study(study, resume=resume)
        assert "\n" not in str(caught.value)


def test_a_foreign_experiment_is_never_written_to(client, opened):
    client.create_experiment("theirs")
    with pytest.raises(StudyConflict, match="not a study of vsetune"):
        opened.open_study(StudyRecord("theirs", "f00d", {}), resume=True)


def test_foreign_experiments_and_runs_are_not_listed(client, opened, study):
    client.create_run(client.create_experiment("theirs"))
    client.create_run(client.get_experiment_by_name("nightly").experiment_id)
    assert opened.studies() == [study]
    assert opened.attempts("nightly") == []


def test_a_study_whose_creation_was_interrupted_is_completed(client, opened, study, database):
    client.delete_run(parent_of(client).info.run_id)
    store = open_store(f"sqlite:///{database}", None)
    with pytest.raises(StudyConflict, match="fingerprint"):
        store.open_study(StudyRecord("nightly", "beef", {}), resume=False)
    store.open_study(study, resume=False)
    assert store.studies() == [study]


def test_what_only_reads_is_to_be_repeated_and_what_a_study_writes_to_be_resumed(monkeypatch, opened, start):
    def fail(*args: object, **keys: object) -> None:
        raise OSError("no space left")

    for method in ("search_runs", "get_run"):
        monkeypatch.setattr(opened._client, method, fail)
    for read in (lambda: opened.attempt("0" * 32), opened.studies, lambda: opened.attempts("nightly")):
        with pytest.raises(StorageError, match=r"\(no space left\); check .* and the server, then repeat$"):
            read()
    with pytest.raises(StorageError, match=r"then repeat with --resume$"):
        opened.start_attempt(start())


def test_more_attempts_than_one_page_are_all_read(monkeypatch, opened, start):
    monkeypatch.setattr("vsetune.tracking.mlflow_runs._PAGE", 2)
    for index in range(5):
        opened.start_attempt(start(trial=f"t{index}"))
    assert [attempt.start.trial for attempt in opened.attempts("nightly")] == [f"t{index}" for index in range(5)]


def test_what_was_recorded_survives_kill_9(database, study, start, points):
    script = (
        "import os, signal, sys; sys.path.insert(0, sys.argv[2])\n"
        "from vsetune.tracking import *\n"
        "store = open_store(sys.argv[1], None)\n"
        "store.open_study(StudyRecord('nightly', 'f00d', {}), resume=False)\n"
        "start = AttemptStart('nightly', 't', 'vsepp.lmh', 'vsepp', 'lmh', 1, 0, 'search', {}, {})\n"
        "store.record_points(store.start_attempt(start), [ValidationPoint(10, 0.5, 64, 51.5, 2.0)])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    root = str(Path(__file__).parents[2] / "platform")
    done = subprocess.run([sys.executable, "-c", script, f"sqlite:///{database}", root], check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    store = open_store(f"sqlite:///{database}", None)
    (attempt,) = store.attempts("nightly")
    assert (attempt.curve, attempt.status) == (((0.5, 51.5),), "running")
    store.open_study(StudyRecord("nightly", "f00d", {}), resume=True)
    assert store.attempts("nightly")[0].status == "killed"


def test_a_full_disk_is_one_line(opened, database, start, points):
    attempt_id = opened.start_attempt(start())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    largest = max(file.stat().st_size for file in database.parent.glob("mlflow.db*"))
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, hard))
        with pytest.raises(StorageError, match="cannot record points") as caught:
            opened.record_points(attempt_id, points(1, 20_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(caught.value)
    assert "free space" in str(caught.value)


def test_artifacts_that_cannot_be_stored_are_one_line(database, study):
    (database.parent / "file").write_text("")
    with pytest.raises(StorageError, match="cannot open study nightly") as caught:
        open_store(f"sqlite:///{database}", database.parent / "file" / "artifacts").open_study(study, resume=False)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("http://127.0.0.1:9", r"cannot reach 127\.0\.0\.1:9"),
        ("postgresql://user:secret@127.0.0.1:9/mlflow", r"user:\*\*\*@"),
        ("sqlite:////proc/nowhere/mlflow.db", "cannot be opened for writing"),
        ("runs", "sqlite:///"),
        ("gopher://", "gopher"),
    ],
)
def test_a_store_that_cannot_be_opened_says_so_at_once_in_one_line(uri, said):
    begin = time.monotonic()
    with pytest.raises(StorageError, match=said) as caught:
        open_store(uri, None)
    assert time.monotonic() - begin < 15
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_damaged_database_is_one_line(tmp_path):
    (tmp_path / "mlflow.db").write_bytes(b"not a database" * 100)
    with pytest.raises(StorageError, match="file is not a database"):
        open_store(f"sqlite:///{tmp_path / 'mlflow.db'}", None)


def test_readers_do_not_wait_for_the_driver(database):
    import sqlite3

    connection = sqlite3.connect(database)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_opening_a_fresh_store_writes_nothing_to_the_terminal_and_workers_never_import_mlflow(tmp_path):
    root = str(Path(__file__).parents[2] / "platform")
    script = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "import vsetune.tracking\n"
        "assert not any(name.split('.')[0] in ('mlflow', 'matplotlib') for name in sys.modules)\n"
        "vsetune.tracking.open_store(sys.argv[1], None).studies()\n"
    )
    uri = f"sqlite:///{tmp_path / 'deep' / 'mlflow.db'}"
    done = subprocess.run(
        [sys.executable, "-c", script, uri, root], check=False, timeout=120, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_metrics_of_other_tools_in_a_run_do_not_disturb(client, opened, start, points):
    attempt_id = opened.start_attempt(start())
    client.log_batch(attempt_id, metrics=[Metric("theirs", 1.0, 0, 0)])
    opened.record_points(attempt_id, points(1, 1))
    assert len(opened.attempts("nightly")[0].curve) == 1


def test_a_study_whose_driver_is_gone_is_killed_with_its_attempts_and_can_be_resumed(client, opened, study, start):
    run = opened.start_attempt(start())
    assert opened.close_stale(60, now=time.time() + 30) == 0
    assert parent_of(client).info.status == "RUNNING"
    assert opened.close_stale(60, now=time.time() + 120) == 1
    assert (client.get_run(run).info.status, parent_of(client).info.status) == ("KILLED", "KILLED")
    opened.open_study(study, resume=True)
    assert parent_of(client).info.status == "RUNNING"


def test_a_value_that_mlflow_does_not_take_is_no_outage(client, opened, start, points):
    attempt_id = opened.start_attempt(start())
    client.delete_run(attempt_id)
    with pytest.raises(UsageError, match="refused") as caught:
        opened.record_points(attempt_id, points(1, 1))
    assert not isinstance(caught.value, StorageError)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:se:cret@host:5432/db refused", "postgresql://me:***@host:5432/db refused"),
        ("http://:token@host/a", "http://:***@host/a"),
        ("http://host:5000/a@b", "http://host:5000/a@b"),
        ("from http://a:1@x to http://b:2@y", "from http://a:***@x to http://b:***@y"),
    ],
)
def test_passwords_in_any_text_are_masked(text, shown):
    assert masked(text) == shown
