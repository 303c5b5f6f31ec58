"""A study carried from SQLite to an MLflow server on PostgreSQL, looked at there, and carried back."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from mlflow import MlflowClient
from real_servers import mlflow_on_postgres
from short_folders import place

from vsetune.errors import UsageError
from vsetune.leaderboard.building import build
from vsetune.leaderboard.export import curves_to_csv, to_csv
from vsetune.tracking import moving, open_store
from vsetune.tracking.doctor import doctor_of
from vsetune.tracking.exported_study import opened_study, written_study
from vsetune.records.mlflow_views import VIEW_TAG

__all__ = ["place"]
pytestmark = pytest.mark.slow


@pytest.fixture
def server(place):
    with mlflow_on_postgres(place) as (address, uri):
        yield address, uri


def carry(source: str, target: str, file: Path) -> moving.Imported:
    with written_study(file) as writer:
        moving.exporter(source).export("nightly", writer, search=None, on_run=lambda name: None)
    with opened_study(file) as exported:
        return moving.importer(target, None).bring(exported, on_run=lambda name: None)


def boards(uri: str) -> tuple[str, str]:
    board = build(open_store(uri, None).attempts("nightly"), baseline="lmh")
    return to_csv(board), curves_to_csv(board)


def test_a_study_goes_to_a_server_on_postgresql_and_back_and_its_board_stays(
    database, study, start, points, server, tmp_path, monkeypatch
):
    mlflow_store = open_store(f"sqlite:///{database}", None)
    stands = tmp_path / "stands"
    stands.mkdir()
    monkeypatch.chdir(stands)
    weights = tmp_path / "best.safetensors"
    weights.write_bytes(safetensors.numpy.save({"a": np.arange(250_000, dtype=np.float32)}))
    mlflow_store.open_study(study, resume=False)
    for seed in range(3):
        run = mlflow_store.start_attempt(start(
            trial=f"t{seed}", seed=seed, protocol={"validate_every_steps": 10, "data_fingerprint": "d"},
        ))
        mlflow_store.record_points(run, points(1, 5 + seed))
        mlflow_store.finish_attempt(run, "finished", {"best_m_recall": 50.0 + seed, "epochs_to_best": 1.0}, [weights],
                                    None)
    mlflow_store.finish_study("nightly", "finished", [])
    address, uri = server
    here = f"sqlite:///{database}"
    assert carry(here, address, tmp_path / "to-server.zip") == moving.Imported(4, 0, 0)
    with opened_study(tmp_path / "to-server.zip") as exported:
        again = moving.importer(address, None).bring(exported, on_run=lambda name: None)
    assert again == moving.Imported(0, 0, 4)
    assert boards(address) == boards(uri) == boards(here)
    client = MlflowClient(address)
    experiment = client.get_experiment_by_name("nightly")
    assert json.loads(experiment.tags[VIEW_TAG])["compareRunCharts"]
    attempt = open_store(address, None).attempts("nightly")[0]
    assert client.get_run(attempt.attempt_id).inputs.dataset_inputs[0].dataset.name == "scenes"
    kept = open_store(address, None).fetch_artifact(attempt.attempt_id, "best.safetensors", tmp_path / "stands")
    assert kept is not None
    assert kept.read_bytes() == weights.read_bytes()
    kept.unlink()
    assert doctor_of(address).examine("nightly", weights=lambda start: None) == []
    client.log_text(attempt.attempt_id, "cut short", "best.safetensors")
    (finding,) = doctor_of(address).examine("nightly", weights=lambda start: weights)
    assert "best.safetensors is damaged (cut short at 9 bytes)" in finding.what
    finding.mend()
    assert doctor_of(address).examine("nightly", weights=lambda start: None) == []
    back = f"sqlite:///{tmp_path / 'back' / 'mlflow.db'}"
    with pytest.raises(UsageError, match="kept by an MLflow server in front of this database"):
        carry(uri, back, tmp_path / "refused.zip")
    assert carry(address, back, tmp_path / "back.zip") == moving.Imported(4, 0, 0)
    assert boards(back) == boards(here)
    client.set_tag(attempt.attempt_id, "status", "killed")
    (finding,) = doctor_of(uri).examine("nightly", weights=lambda start: None)
    finding.mend()
    assert doctor_of(address).examine("nightly", weights=lambda start: None) == []
    assert list(stands.iterdir()) == []
