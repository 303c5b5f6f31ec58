"""What is recorded already: studies that changed, data that changed, attempts that do not compare."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from vsetune.records.events import AttemptStart, ValidationPoint
from vsetune.records.studies import Studies
from vsetune.records.writer import StudyWriter
from vsetune.study.preparation import prepare_study

pytestmark = pytest.mark.filterwarnings("default")  # Ray and MLflow warn about themselves


@pytest.fixture
def recorded(study: Callable[..., Path], opened: Callable[..., StudyWriter]) -> tuple[Path, StudyWriter]:
    """A study file, and the log of the study, which has begun."""
    path = study()
    return path, opened(prepare_study(path, Console(file=io.StringIO())).record())


def test_a_study_name_in_use_is_refused_with_what_changed(vsetune, study, recorded) -> None:
    changed = study(training={"epochs": 2, "batch_size": 40, "learning_rate": 1e-3}, resources={"cpus": 2})
    said = vsetune("study", "run", str(changed), "--resume")
    assert said.refused("study tiny", "training.epochs", "1.0", "2.0")
    assert "resources" not in said.err
    assert Studies().attempts("tiny") == []


def test_a_study_that_is_recorded_goes_on_only_with_resume(vsetune, recorded) -> None:
    assert vsetune("study", "run", str(recorded[0])).refused("study tiny", "--resume")


def test_a_study_resumed_on_data_of_another_width_is_refused(vsetune, study, recorded, tmp_path) -> None:
    recipe = tmp_path / "narrow.yaml"
    recipe.write_text(
        "name: scenes\noutput: data/narrow\nsource: {layout: scenes, train: 24, validation: 8, test: 8}\n"
        "features: {extractor: pixels, width: 64}\n"
    )
    assert vsetune("data", "ingest", str(recipe)).code == 0
    scenes = {"train": 24, "validation": 8, "test": 8}
    said = vsetune("study", "run", str(study(data={"path": "data/narrow"})), "--resume")
    assert said.refused("study tiny", "data set")
    for words in (("study", "run", "--resume"), ("study", "validate")):
        said = vsetune(*words, str(study(data={"path": "data/narrow", "scenes": scenes})))
        assert said.refused("data.scenes", "data/narrow")


def test_a_trial_trained_on_other_settings_names_the_way_out(vsetune, study) -> None:
    assert vsetune("train", str(study())).code == 0
    longer = str(study(training={"epochs": 2, "batch_size": 40, "learning_rate": 1e-3}))
    assert vsetune("train", longer).refused("checkpoint.pt", "--fresh")
    said = vsetune("train", longer, "--fresh", "--json")
    assert json.loads(said.out)["epochs"] == 2.0


def test_a_study_without_attempts_has_no_leaderboard(vsetune, recorded) -> None:
    assert vsetune("leaderboard", "show", "tiny").refused("VSE-X030", "study tiny")
    assert vsetune("leaderboard", "show", "tiny", "tiny").refused("VSE-X030", "tiny")
    assert vsetune("leaderboard", "show", "--all").refused("VSE-X030", "tiny")
    assert vsetune("leaderboard", "show", "tinny").refused("study tinny", "tiny")


@pytest.fixture
def attempts(recorded: tuple[Path, StudyWriter]) -> Callable[..., None]:
    """Records a finished attempt of a cell, validated at these epochs."""
    _, writer = recorded

    def record(loss: str, epochs: list[float]) -> None:
        start = AttemptStart(
            study="tiny", trial=f"vsepp.{loss}-c00-s0", number=1, cell=f"vsepp.{loss}", network="vsepp", loss=loss,
            seed=0, phase="search", configuration={}, resolved={}, protocol={"dataset": "scenes", "captions": 40},
        )
        attempt = writer.start_attempt(start)
        writer.record_points(attempt, [
            ValidationPoint(round(30 * epoch), epoch, round(120 * epoch), 10 + epoch, epoch) for epoch in epochs
        ])
        writer.finish_attempt(attempt, "finished", summary={"seconds_per_epoch": 1.0}, error=None)

    return record


def test_curves_that_must_not_be_compared_are_shown_and_said_not_to_be(vsetune, attempts) -> None:
    attempts("lmh", [1, 2, 3, 4])
    attempts("lseh", [0.1, 0.2, 0.3, 0.4])
    said = vsetune("leaderboard", "show", "tiny")
    assert (said.code, said.err) == (0, "")
    assert "validated every 0.1 epochs, the other every 1" in " ".join(said.out.split())


def test_a_leaderboard_is_shown_as_json_and_exported_whole(vsetune, attempts, tmp_path, home) -> None:
    attempts("lmh", [1, 2, 3, 4])
    attempts("lseh", [1, 2, 3, 4])
    said = vsetune("leaderboard", "show", "tiny", "--json")
    assert said.code == 0, said.err
    assert {row["loss"] for row in json.loads(said.out)["rows"]} == {"lmh", "lseh"}
    said = vsetune("leaderboard", "export", "tiny", "--csv", str(tmp_path / "new" / "board.csv"))
    assert said.code == 0, said.err
    assert (tmp_path / "new" / "board.csv").read_text().count("\n") == 3
    assert said.out == ""
    assert vsetune("leaderboard", "export", "tiny").code == 0
    assert (home / "leaderboards" / "tiny.html").stat().st_size > 1000
    assert vsetune("leaderboard", "show", "tiny", "--baseline", "lsh").refused("lsh", "lmh, lseh")
    assert vsetune("leaderboard", "export", "tiny", "--csv", "/dev/null/x").refused("/dev/null/x")


def test_the_environment_names_the_home_for_running_and_for_showing(
    vsetune, study, attempts, home, tmp_path, monkeypatch
) -> None:
    attempts("lmh", [1, 2])
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path / "other"))
    assert vsetune("leaderboard", "show", "tiny").refused("study tiny", str(tmp_path / "other"))
    assert not (tmp_path / "other").exists()
    monkeypatch.setenv("VSETUNE_HOME", str(home))
    assert vsetune("leaderboard", "show", "tiny").code == 0
    said = vsetune("study", "run", str(study()))
    assert said.code == 2
    assert "study tiny" in said.lines[-1]


def test_a_tracking_uri_that_is_none_is_refused_and_leaves_no_study_behind(vsetune, study, home, monkeypatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "folder")
    said = vsetune("study", "run", str(study()))
    assert said.code == 2
    assert "folder" in said.lines[-1]
    assert not (home / "runs" / "tiny").exists()
