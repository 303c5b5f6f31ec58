"""What a person reads when a study has run says where in MLflow its charts are, and each chart has a number to show."""

from __future__ import annotations

import json

import pytest
from mlflow import MlflowClient

from vsetune.cli.study import in_mlflow
from vsetune.records.mlflow_descriptions import VIEW_TAG
from vsetune.records.studies import Studies

pytestmark = pytest.mark.filterwarnings("default")  # MLflow's dependencies warn about themselves
CHARTS = (
    "#/experiments/7/runs?workflowType=machine_learning&viewStateShareKey=vsetune&compareRunsMode=CHART"
)


def test_a_database_needs_a_server_and_the_charts_are_at_its_address() -> None:
    charts = f"charts:    http://127.0.0.1:5000/{CHARTS}"
    assert in_mlflow("sqlite:////h/mlflow.db", "7", ["vsepp", "scan"]) == ["MLflow:    vsetune ui", charts]
    assert in_mlflow("sqlite:////h/mlflow.db", None, ["vsepp"]) == []


def test_charts_of_a_single_network_are_those_of_its_mean_curves() -> None:
    means = CHARTS.replace("viewStateShareKey=vsetune", "viewStateShareKey=vsetune-vsepp")
    assert in_mlflow("http://mlflow:5000", "7", ["vsepp"]) == [f"charts:    http://mlflow:5000/{means}"]


def test_a_server_that_answers_is_named_without_its_password() -> None:
    assert in_mlflow("http://ann:secret@mlflow:5000", "7", []) == [f"charts:    http://mlflow:5000/{CHARTS}"]


def test_every_chart_of_the_prepared_view_shows_a_number_that_runs_have_in_mlflow(record, vsetune, mlflow_here) -> None:
    attempt = record(training={"epochs": 2, "batch_size": 40, "learning_rate": 1e-3})
    assert vsetune("tracking", "flush", "tiny").code == 0
    client = MlflowClient(mlflow_here)
    experiment, runs = Studies().in_mlflow("tiny")
    run = client.get_run(runs[attempt])
    view = json.loads(client.get_experiment(experiment).tags[VIEW_TAG])
    shown = [chart for chart in view["compareRunCharts"] if not chart["deleted"]]
    assert {chart["metricKey"] for chart in shown} <= run.data.metrics.keys()
    columns = [name.removesuffix("`").split(".`") for name in view["selectedColumns"] if "attributes" not in name]
    known = {"metrics": run.data.metrics, "params": run.data.params, "tags": run.data.tags}
    assert [name for kind, name in columns if name not in known[kind]] == []
    for chart in shown:
        if chart["type"] == "LINE":
            assert len(client.get_metric_history(run.info.run_id, chart["metricKey"])) == 2
    filled = {chart["metricSectionId"] for chart in shown}
    empty = {each["name"] for each in view["compareRunSections"] if each["uuid"] not in filled}
    assert empty == {"Model metrics", "System metrics"}  # MLflow fills these two itself
