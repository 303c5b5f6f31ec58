"""What a study exports to PostgreSQL: every number of its log, its winner as a model, its page and its log."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import mlflow
import pandas
import pytest
import yaml
from mlflow import MlflowClient
from real_servers import mlflow_on_postgres
from short_folders import place

from chaos.logged import export_problems, read_log, twice

__all__ = ["place"]
pytestmark = [
    pytest.mark.slow, pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("default"),  # MLflow warns about itself
]
PLATFORM = Path(__file__).parents[2] / "platform"
STUDY = {
    "study": "tiny",
    "data": {"path": "data/scenes", "scenes": {"train": 48, "validation": 16, "test": 16}},
    "networks": [{"name": "vsepp", "fixed": {"embedding_size": 16, "word_size": 8}}], "losses": [{"name": "lmh"}],
    "training": {"epochs": 2, "batch_size": 40, "validate_every_steps": 3, "learning_rate": 1e-3},
    "search": {"configurations": 2, "sampler": "random"}, "scheduler": {"kind": "none"}, "seeds": [0],
    "resources": {"cpus": 1, "retries": 0}, "tracking": {"system_metrics": True},
}


@pytest.fixture(params=["behind a server", "without one"])
def uri(request: pytest.FixtureRequest, place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A fresh PostgreSQL, as this process and its children are told of it."""
    with mlflow_on_postgres(place) as (address, database):
        there = address if request.param == "behind a server" else database
        monkeypatch.setenv("MLFLOW_TRACKING_URI", there)
        monkeypatch.setattr("mlflow.tracking._tracking_service.utils._tracking_uri", None)
        monkeypatch.setenv("RAY_TMPDIR", str(place))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(PLATFORM), os.environ.get("PYTHONPATH", "")]))
        yield there


def vsetune(*words: str | Path) -> str:
    """What a command said to people. Its exit code is 0."""
    command = [sys.executable, "-m", "vsetune.cli.main", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, cwd=os.environ["VSETUNE_HOME"])
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_study_is_exported_whole_with_its_winner_as_a_model_and_its_page(uri: str, tmp_path: Path) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(STUDY))
    assert "1 winner logged as MLflow models" in vsetune("study", "run", file)
    assert "MLflow models" not in vsetune("study", "run", file, "--resume"), "logged twice"

    logged = read_log(Path(os.environ["VSETUNE_HOME"]) / "runs" / "tiny")
    assert len(logged.attempts) == 2
    assert logged.problems + twice(logged) + export_problems(uri, "tiny", logged) == []
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("tiny")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    attempts = [run for run in runs if run.data.tags["vsetune.kind"] == "attempt"]
    attempts.sort(key=lambda run: run.data.tags["trial"])  # of equals the earlier configuration wins
    (parent,) = [run for run in runs if run.data.tags["vsetune.kind"] == "study"]
    assert [run.info.status for run in runs] == 3 * ["FINISHED"]

    for attempt in attempts:
        measured = client.get_metric_history(attempt.info.run_id, "system/process_memory_usage_megabytes")
        recalls = client.get_metric_history(attempt.info.run_id, "m_recall")
        assert [each.step for each in measured] == [each.step for each in recalls] != []
        assert all(each.value > 10 for each in measured)

    kept_files = {each.path for each in client.list_artifacts(parent.info.run_id)}
    assert {"leaderboard.html", "leaderboard.csv", "study.log"} <= kept_files
    kept = Path(client.download_artifacts(parent.info.run_id, "leaderboard.html", str(tmp_path))).read_text("utf-8")
    page = Path(os.environ["VSETUNE_HOME"]) / "runs" / "tiny" / "leaderboard.html"
    assert kept == page.read_text("utf-8")
    has_ui = uri.startswith("http")  # links lead to a server's UI
    assert [attempt.info.run_id in kept for attempt in attempts] == [has_ui] * len(attempts)

    (model,) = client.search_logged_models([experiment.experiment_id])
    best = max(attempts, key=lambda run: max(each.value for each in client.get_metric_history(
        run.info.run_id, "m_recall",
    )))
    assert (str(model.status), model.source_run_id) == ("READY", best.info.run_id)
    loaded = mlflow.pyfunc.load_model(f"models:/{model.model_id}")
    question = pandas.DataFrame({"caption": ["a red circle above a blue square"]})
    (answer,) = loaded.predict(question, params={"top": 3, "split": "validation"})
    assert len(answer["items"]) == 3
    assert answer["scores"] == sorted(answer["scores"], reverse=True)
