"""What a crash, a full disk or a second driver can leave in a store is found, told in a line and mended once."""

import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from mlflow import MlflowClient
from mlflow.entities import Metric

from vsetune.errors import UsageError
from vsetune.tracking import encoding, open_store
from vsetune.tracking.doctor import doctor_of
from vsetune.tracking.encoding import CURVE, curve_from_tags, to_json
from vsetune.tracking.point_blocks import NO_BLOCK, POINTS, with_points
from vsetune.tracking.records import TARGET_REACHED

WEIGHTS = safetensors.numpy.save({"a": np.arange(6, dtype=np.float32)})


def no_weights(start):
    return None


@pytest.fixture
def sound(database, study, start, points, tmp_path):
    """A finished attempt with weights, a pruned one, and one that is running."""
    mlflow_store = open_store(f"sqlite:///{database}", None)
    weights = tmp_path / "best.safetensors"
    weights.write_bytes(WEIGHTS)
    mlflow_store.open_study(study, resume=False)
    ids = [mlflow_store.start_attempt(start(trial=trial)) for trial in ("a", "b", "c")]
    for run in ids:
        mlflow_store.record_points(run, points(1, 3))
    mlflow_store.finish_attempt(ids[0], "finished", {"best_m_recall": 50.0}, [weights], None)
    mlflow_store.finish_attempt(ids[1], "pruned", {"best_m_recall": 50.0}, [], None)
    return ids


@pytest.fixture
def client(database):
    return MlflowClient(f"sqlite:///{database}")


@pytest.fixture
def examine(database):
    """The findings; `mend` mends them, and then there are none."""
    def examined(*, mend=False, weights=no_weights, now=None):
        found = doctor_of(f"sqlite:///{database}").examine("nightly", weights=weights, now=now)
        if mend:
            for finding in found:
                finding.mend()
            assert doctor_of(f"sqlite:///{database}").examine("nightly", weights=weights, now=now) == []
        assert not any("\n" in finding.line for finding in found)
        return found

    return examined


def test_a_sound_study_has_no_findings_and_an_unknown_one_is_named(sound, examine, database):
    assert examine() == []
    with pytest.raises(UsageError, match="study nowhere: not in this store"):
        doctor_of(f"sqlite:///{database}").examine("nowhere", weights=no_weights)


def test_a_trial_that_was_trained_again_after_it_had_ended_keeps_its_first_end(
    sound, examine, client, database, start, points
):
    store = open_store(f"sqlite:///{database}", None)
    for trial, status in (("a", "finished"), ("b", "killed"), ("e", "failed"), ("e", "finished")):
        again = start(trial=trial, number=1 if status == "failed" else 2)
        run = store.start_attempt(again)
        store.record_points(run, points(1, 3))
        store.finish_attempt(run, status, {"best_m_recall": 50.0}, [], None)
    found = [finding for finding in examine() if "already" in finding.what]
    assert sorted(finding.what for finding in found) == [
        f"attempt 2 of a (finished), which had already finished as attempt 1, run {sound[0]}",
        f"attempt 2 of b (killed), which had already been pruned as attempt 1, run {sound[1]}",
    ]
    for finding in found:
        finding.mend()
    assert [finding for finding in examine() if "already" in finding.what] == []
    left = [(each.start.trial, each.start.number, each.status) for each in store.attempts("nightly")]
    assert sorted(left) == [
        ("a", 1, "finished"), ("b", 1, "pruned"), ("c", 1, "running"), ("e", 1, "failed"), ("e", 2, "finished"),
    ]


def test_a_trial_that_was_trained_again_with_another_configuration_is_left_to_a_person(
    sound, examine, database, start, points
):
    store = open_store(f"sqlite:///{database}", None)
    run = store.start_attempt(start(trial="b", number=2, configuration={"loss.margin": 0.3}))
    store.record_points(run, points(1, 3))
    store.finish_attempt(run, "pruned", {"best_m_recall": 50.0}, [], None)
    (finding,) = examine()
    assert finding.mend is None
    assert "other settings" in finding.line


def test_a_trial_that_ended_at_its_target_has_its_weights_in_its_folder_as_a_pruned_one(
    sound, examine, database, start, points
):
    store = open_store(f"sqlite:///{database}", None)
    run = store.start_attempt(start(trial="d"))
    store.record_points(run, points(1, 3))
    hit = f"{TARGET_REACHED}: 50.00 at epoch 1, target 49.00"
    store.finish_attempt(run, "finished", {"best_m_recall": 50.0}, [], hit)
    assert examine() == []


def test_a_run_whose_status_was_half_set_and_one_without_params_are_completed(sound, examine, client, start):
    client.update_run(sound[0], status="RUNNING")
    tags = {key: text for key, text in client.get_run(sound[1]).data.tags.items() if not key.startswith("mlflow.")}
    client.delete_run(sound[1])
    bare = client.create_run(client.get_run(sound[0]).info.experiment_id, tags=tags).info.run_id
    client.set_terminated(bare, "FINISHED")
    said = sorted(finding.what for finding in examine(mend=True))
    assert said == sorted([
        "ended as finished, and MLflow shows RUNNING", "has no params", "config.yaml is not among its artifacts",
        "curves.svg is not among its artifacts",
        "3 points of the curve are not among MLflow's numbers",
    ])
    assert client.get_run(sound[0]).info.status == "FINISHED"
    assert client.get_run(bare).data.params["loss.margin"] == "0.2"
    assert [each.value for each in client.get_metric_history(bare, "m_recall")] == [
        pytest.approx(50 + index / 7) for index in (1, 2, 3)
    ]


def test_a_silent_attempt_is_closed_and_one_that_lives_is_left_alone(sound, examine, client):
    assert examine() == []
    said = [finding.what for finding in examine(mend=True, now=time.time() + 49 * 3600)]
    assert said == ["running, and silent for 49 h"]
    assert (client.get_run(sound[2]).info.status, client.get_run(sound[2]).data.tags["status"]) == ("KILLED", "killed")


def test_points_that_only_mlflow_has_come_back_where_it_has_all_that_makes_a_point(
    sound, examine, client, database, start, points
):
    store = open_store(f"sqlite:///{database}", None, all_numbers=True)
    drawn = store.start_attempt(start(trial="d"))
    store.record_points(drawn, points(1, 3))
    store.finish_attempt(drawn, "pruned", {"best_m_recall": 50.0}, [], None)
    before = store.attempt(drawn)
    client.delete_tag(drawn, f"{POINTS}.0")
    (finding,) = examine(mend=True)
    assert finding.what == "3 points are among MLflow's numbers and not in the curve"
    assert open_store(f"sqlite:///{database}", None).attempt(drawn) == before
    client.delete_tag(sound[0], f"{POINTS}.0")
    (finding,) = examine()
    assert finding.mend is None
    assert "what else makes them points is gone" in finding.line


def test_points_recorded_twice_are_kept_once_in_the_curve_and_in_the_charts(
    sound, examine, client, database, start, points
):
    before = open_store(f"sqlite:///{database}", None).attempt(sound[0])
    curve = curve_from_tags(client.get_run(sound[0]).data.tags)
    client.set_tag(sound[0], CURVE, to_json([curve[1]]))
    stamps = {each.step: each.timestamp for each in client.get_metric_history(sound[0], "m_recall")}
    client.log_batch(sound[0], metrics=[Metric("m_recall", 1.0, stamps[30] + 777, 30)])
    said = [finding.what for finding in examine(mend=True)]
    assert said == [
        "its curve has 1 points twice",
        "MLflow's charts have 1 points twice (boards read the curve, which has them once)",
    ]
    assert open_store(f"sqlite:///{database}", None).attempt(sound[0]) == before
    assert [each.value for each in client.get_metric_history(sound[0], "m_recall")] == [
        pytest.approx(50 + index / 7) for index in (1, 2, 3)
    ]
    assert client.get_run(sound[0]).data.metrics["m_recall"] == pytest.approx(50 + 3 / 7)


def test_of_two_runs_of_one_attempt_the_one_that_got_further_stays(sound, examine, client, points):
    tags = {key: text for key, text in client.get_run(sound[0]).data.tags.items() if not key.startswith("mlflow.")}
    (shorter,) = with_points(NO_BLOCK, points(1, 1))
    tags |= {"status": "killed"} | shorter.tags
    second = client.create_run(client.get_run(sound[0]).info.experiment_id, tags=tags).info.run_id
    (finding,) = examine(mend=True)
    assert second in finding.where
    assert finding.what == (
        f"records attempt 1 of a a second time (killed, 1 points; {sound[0]} is finished, 3 points)"
    )
    assert client.get_run(second).info.lifecycle_stage == "deleted"
    assert client.get_run(sound[0]).info.lifecycle_stage == "active"


def test_a_second_run_of_the_study_gives_its_attempts_to_the_first(sound, examine, client):
    first = client.get_run(sound[0]).data.tags["mlflow.parentRunId"]
    tags = {key: text for key, text in client.get_run(first).data.tags.items() if not key.startswith("mlflow.")}
    second = client.create_run(client.get_run(sound[0]).info.experiment_id, tags=tags).info.run_id
    client.set_tag(sound[1], "mlflow.parentRunId", second)
    (finding,) = examine(mend=True)
    assert finding.what == f"a second run of the study beside {first}"
    assert client.get_run(sound[1]).data.tags["mlflow.parentRunId"] == first


def test_missing_files_are_made_again_or_fetched_from_the_trials_folder(sound, examine, client, tmp_path):
    artifacts = Path(client.get_run(sound[0]).info.artifact_uri.removeprefix("file://"))
    shutil.rmtree(artifacts)
    found = examine()
    assert [finding.what for finding in found] == [
        "config.yaml is not among its artifacts",
        "best.safetensors is not among its artifacts nor in the folder of its trial",
        "curves.svg is not among its artifacts",
    ]
    assert [finding.mend is None for finding in found] == [False, True, False]
    assert "by hand: bring the file back into the trial's folder" in found[1].line
    examine(mend=True, weights=lambda start: tmp_path / "best.safetensors")
    assert (artifacts / "best.safetensors").read_bytes() == WEIGHTS


def test_a_record_that_cannot_be_read_goes_to_the_bin_and_the_study_can_be_read_again(
    sound, examine, client, database
):
    client.set_tag(sound[1], encoding.RECORD, '{"study": "nightly", "tri')
    (finding,) = examine(mend=True)
    assert finding.what.startswith("its record cannot be read (")
    assert [each.start.trial for each in open_store(f"sqlite:///{database}", None).attempts("nightly")] == ["a", "c"]


def test_a_study_without_its_run_and_an_import_that_stopped_are_told(sound, examine, client):
    client.delete_run(client.get_run(sound[0]).data.tags["mlflow.parentRunId"])
    (finding,) = examine()
    assert finding.line == (
        "study nightly: has no run of its own, its creation was interrupted; by hand: vsetune study run FILE --resume "
        "completes it"
    )
    experiment = client.get_run(sound[0]).info.experiment_id
    client.set_experiment_tag(experiment, "vsetune.moving", "f00d")
    client.delete_experiment_tag(experiment, encoding.KIND)
    found = examine()
    assert found[0].line == (
        "study nightly: its import was interrupted; by hand: repeat vsetune tracking import; it goes on"
    )
