"""What boards show of single runs beyond their M-Recall: curves of metrics, galleries, pages in MLflow's UI."""

from __future__ import annotations

import pytest

from vsetune.errors import UsageError
from vsetune.tracking import open_store

pytestmark = pytest.mark.filterwarnings("default")  # MLflow warns about itself


def test_metrics_are_read_over_epochs(mlflow_store, study, start, points):
    mlflow_store.open_study(study, resume=False)
    runs = [mlflow_store.start_attempt(start(trial=name)) for name in ("a", "b", "empty")]
    for run, last in zip(runs, (3, 1), strict=False):
        mlflow_store.record_points(run, points(1, last))
    found = mlflow_store.metric_curves(runs, ["i2t_r1", "none"])
    epochs = [1 / 3, 2 / 3, 1.0]
    assert set(found) == set(runs[:2])
    assert found[runs[0]] == {"i2t_r1": tuple((pytest.approx(at), 31.0 + index) for index, at in enumerate(epochs))}
    assert found[runs[1]] == {"i2t_r1": ((pytest.approx(1 / 3), 31.0),)}


def test_galleries_of_a_run_are_listed_and_a_study_has_an_experiment(mlflow_store, study, start, tmp_path):
    mlflow_store.open_study(study, resume=False)
    run = mlflow_store.start_attempt(start())
    assert mlflow_store.artifact_names(run, "gallery") == []
    page = tmp_path / "test.html"
    page.write_text("<p>")
    mlflow_store.keep_artifacts(run, [page], folder="gallery")
    assert mlflow_store.artifact_names(run, "gallery") == ["gallery/test.html"]
    assert mlflow_store.experiment_of("nightly").isdecimal()
    with pytest.raises(UsageError, match="study none: not in this store"):
        mlflow_store.experiment_of("none")


def test_a_store_in_memory_has_neither_galleries_nor_experiments(study, start, tmp_path):
    store = open_store("memory:", tmp_path)
    store.open_study(study, resume=False)
    run = store.start_attempt(start())
    assert (store.metric_curves([run], ["i2t_r1"]), store.artifact_names(run, "gallery")) == ({}, [])
    assert store.experiment_of("nightly") is None
