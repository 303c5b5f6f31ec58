"""Nights in MLflow: one run for each date, apart from studies; a store that is away is a line of the report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from mlflow import MlflowClient
from night_reports import sample_report

from vsetune.nightly.delivering import deliver
from vsetune.nightly.night import NightReport
from vsetune.nightly.nightly_spec import ReportSpec

pytestmark = pytest.mark.filterwarnings("default")  # MLflow's dependencies warn about themselves


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('store') / 'mlflow.db'}"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path))
    monkeypatch.delenv("VSETUNE_PUSHGATEWAY", raising=False)


def send_out(report: NightReport, uri: str, **wanted: object) -> NightReport:
    return deliver(report, lambda *_: None, ReportSpec.model_validate(wanted), last_complete="", tracking_uri=uri)


def test_a_night_is_one_run_and_a_repeated_night_takes_its_place(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CHAT", raising=False)
    sent = send_out(sample_report(), uri)
    again = send_out(sample_report(seed=1), uri, webhook="CHAT")
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("nightly/scenes")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_id == again.mlflow_run != sent.mlflow_run
    assert run.info.status == "FINISHED"
    expected = {"date": "2026-11-21", "nightly": "scenes", "exit_code": "1", "verdict": "regression"}
    assert {name: run.data.tags[name] for name in expected} == expected
    row = next(row for row in again.rows if row.measure and (row.cell, row.measure.name) == ("scan.lmh", "epoch_time"))
    assert run.data.metrics["scan.lmh.epoch_time"] == row.tonight
    assert run.data.metrics["rows.regression"] == 2
    assert run.info.end_time - run.info.start_time == (9 * 60 + 37) * 1000
    (note,) = again.notes[len(sample_report().notes) :]
    files = {name: Path(client.download_artifacts(run.info.run_id, name, str(tmp_path))).read_text()
             for name in ("report.html", "report.md", "report.json")}
    assert again.mlflow_run in files["report.md"]
    assert note in files["report.html"].replace("&#39;", "'")
    assert json.loads(files["report.json"])["notes"][-1] == note


def test_a_night_of_another_home_stays(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = replace(sample_report(), nightly="shared")
    first = send_out(report, uri).mlflow_run
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path / "elsewhere"))
    second, again = (send_out(report, uri).mlflow_run for _ in range(2))
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("nightly/shared")
    assert experiment is not None
    assert {run.info.run_id for run in client.search_runs([experiment.experiment_id])} == {first, again} != {second}


def test_a_night_that_could_not_run_has_a_run_too(uri: str) -> None:
    report = replace(sample_report(), date="2026-11-23", rows=[], exit_code=2, headline="could not run", ended="")
    assert send_out(report, uri).mlflow_run is not None


@pytest.mark.parametrize(
    ("away", "told"),
    [
        ("http://127.0.0.1:9", "tracking uri http://127.0.0.1:9: cannot reach 127.0.0.1:9"),
        ("postgresql://me:storepassword@127.0.0.1:9/x", "cannot reach 127.0.0.1:9"),
    ],
)
def test_a_store_that_is_away_is_one_line(away: str, told: str) -> None:
    report = send_out(sample_report(), away)
    (note,) = report.notes[len(sample_report().notes) :]
    assert told in note
    assert "storepassword" not in note
    assert report.mlflow_run is None


def test_an_experiment_in_the_bin_is_told_how_to_be_restored(uri: str) -> None:
    client = MlflowClient(tracking_uri=uri)
    sent = send_out(replace(sample_report(), nightly="binned"), uri)
    assert sent.mlflow_run is not None
    experiment_id = client.get_run(sent.mlflow_run).info.experiment_id
    client.delete_experiment(experiment_id)
    after = send_out(replace(sample_report(), nightly="binned"), uri)
    assert after.notes[-1].endswith(f"`mlflow experiments restore --experiment-id {experiment_id}`")
