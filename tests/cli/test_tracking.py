"""`vsetune tracking flush` exports what a study recorded while MLflow was away."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from mlflow import MlflowClient
from studied import RECORD, point, start

from vsetune.cli import tracking
from vsetune.records.studies import Studies
from vsetune.records.study_lock import locked_study
from vsetune.records.writer import StudyWriter

pytestmark = pytest.mark.filterwarnings("default")  # MLflow's dependencies warn about themselves


@pytest.fixture
def waiting(opened: Callable[..., StudyWriter], home: Path) -> Path:
    """The folder of the study `tiny`, whose four events nothing has exported."""
    writer = opened(RECORD)
    attempt = writer.start_attempt(start())
    writer.record_points(attempt, [point(10, m_recall=51.5)])
    writer.finish_attempt(attempt, "finished", summary={"best_m_recall": 51.5}, error=None)
    return home / "runs" / "tiny"


def test_what_waits_is_exported_once_whether_the_study_or_its_file_is_named(
    vsetune: Any, study: Any, waiting: Path, mlflow_here: str
) -> None:
    done = vsetune("tracking", "flush", str(study()))
    assert (done.code, done.out, done.err) == (0, "tiny: 0 events left\n", "")
    again = vsetune("tracking", "flush", "tiny")
    assert (again.code, again.out) == (0, "tiny: 0 events left\n")
    experiment, runs = Studies().in_mlflow("tiny")
    client = MlflowClient(mlflow_here)
    assert len(client.search_runs([experiment])) == 2
    (history,) = client.get_metric_history(runs["tiny/vsepp.lmh-c000-s0/1"], "m_recall")
    assert (history.step, history.value) == (10, 51.5)


def test_a_store_that_is_still_away_leaves_everything_where_it_is(
    vsetune: Any, waiting: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "_PATIENCE_S", 1.0)
    before = (waiting / "study.log").read_bytes()
    said = vsetune("tracking", "flush", "tiny", "--tracking-uri", "http://user:secret@127.0.0.1:9")
    assert said.code == 1
    assert said.out.startswith("tiny: 4 events left: ")
    assert "cannot reach 127.0.0.1:9" in said.out
    assert said.out.count("\n") == 1
    assert "secret" not in said.out + said.err
    assert (waiting / "study.log").read_bytes() == before


def test_a_study_that_runs_is_exported_by_its_driver(vsetune: Any, waiting: Path, mlflow_here: str) -> None:
    with locked_study(waiting):
        said = vsetune("tracking", "flush", "tiny")
    assert said.code == 2
    assert said.lines == ["error VSE-R010: study tiny: another process is running it; wait for it or stop it"]


def test_a_study_without_a_log_or_without_an_mlflow_is_named(
    vsetune: Any, study: Any, waiting: Path, home: Path
) -> None:
    said = vsetune("tracking", "flush", "tiny")
    assert (said.code, said.lines) == (
        2, ["error study tiny: is not exported; give --tracking-uri, or set MLFLOW_TRACKING_URI"]
    )
    shutil.rmtree(home / "runs")
    for word in ("tiny", str(study())):
        said = vsetune("tracking", "flush", word)
        assert (said.code, len(said.lines)) == (2, 1)
        assert "study tiny: not in" in said.err


def test_the_file_of_a_study_says_to_which_mlflow(vsetune: Any, waiting: Path, study: Any, tmp_path: Path) -> None:
    file = study()
    elsewhere = f"sqlite:///{tmp_path / 'elsewhere.db'}"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"tracking": {"uri": elsewhere}}))
    assert vsetune("tracking", "flush", str(file)).code == 0
    assert MlflowClient(elsewhere).get_experiment_by_name("tiny") is not None
