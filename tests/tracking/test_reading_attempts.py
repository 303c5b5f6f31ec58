"""Attempts are read straight out of a database of our own, and are those that MLflow's search gives."""

from mlflow import MlflowClient

from vsetune.tracking import open_store


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
    searching._reading = None
    found = mlflow_store.attempts("nightly")
    assert found == searching.attempts("nightly")
    assert [attempt.start.trial for attempt in found] == [name for name in names if name != "deleted"]


def test_what_attempts_have_in_common_is_kept_once_in_memory(mlflow_store, study, start):
    mlflow_store.open_study(study, resume=False)
    for number in range(1, 3):
        mlflow_store.start_attempt(start(number=number))
    one, other = mlflow_store.attempts("nightly")
    assert one.start.environment is other.start.environment
    assert one.start.resolved["data"] is other.start.resolved["data"]
    assert one.start != other.start
