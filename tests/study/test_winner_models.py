"""Winners become MLflow models at the end of a study; what goes wrong there is a line and no failure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import safetensors.torch
import torch

from vsetune.config.study.study_spec import TrackingSpec
from vsetune.config.study.training import TrialSpec
from vsetune.data.stored.vocabulary import SPECIAL_WORDS
from vsetune.errors import StorageError
from vsetune.home.hashes import sha256_of_file
from vsetune.networks.importing.stored import StoredNetwork, WeightNotes
from vsetune.networks.network_building import build_network
from vsetune.records import mlflow_models
from vsetune.records.events import AttemptStart, StudyRecord, ValidationPoint
from vsetune.records.log import LogWriter
from vsetune.records.state import Attempt
from vsetune.records.studies import folder_of_study
from vsetune.records.writer import StudyWriter
from vsetune.study.results import log_winners, winners_of


class Models:
    """Remembers what was logged."""

    def __init__(self) -> None:
        self.logged: dict[tuple[str, str], str] = {}

    def known(self, record: Any, *, weights_sha256: str, index: str | None) -> str | None:
        return self.logged.get((record.start.trial, weights_sha256))

    def log(self, record: Any, folder: Path, *, weights_sha256: str, index: str | None, reads_pieces: bool) -> str:
        assert (folder / "model.json").is_file()
        return self.logged.setdefault((record.start.trial, weights_sha256), f"models:/m-{len(self.logged)}")


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> Models:
    made = Models()
    monkeypatch.setattr(mlflow_models, "MlflowModels", lambda uri, studies: made)
    return made


def trial_named(trial: str, loss: str) -> TrialSpec:
    return TrialSpec.model_validate({
        "study": "demo", "trial": trial, "cell": f"vsepp.{loss}", "seed": 0, "data": {"path": "/data/gone"},
        "network": {"name": "vsepp", "embedding_size": 4, "word_size": 3}, "loss": {"name": loss}, "training": {},
    })


def write_weights(path: Path, trial: TrialSpec, *, seed: int) -> None:
    """As a training writes them."""
    torch.manual_seed(seed)
    words = (*SPECIAL_WORDS, "a", "dog")
    sizes = {"regions": 1, "width": 4, "vocabulary_size": len(words)}
    network = build_network(trial.network, **sizes)
    described = StoredNetwork(f"demo/{trial.trial}", "vsepp", trial.network, words=words, **sizes)
    notes = WeightNotes.of(network, "vsepp", words, described.to_plain())
    safetensors.torch.save_file(network.state_dict(), path, metadata=notes.to_metadata(step=1))


@pytest.fixture
def attempts() -> Iterator[list[Attempt]]:
    """Two cells of two configurations with weights, and one that has not finished."""
    log = LogWriter(folder_of_study("demo"))
    writer = StudyWriter(log)
    writer.open_study(StudyRecord("demo", "beef", {}, {}), resume=False)
    for number, (loss, recall, status) in enumerate([
        ("lmh", 40.0, "finished"), ("lmh", 50.0, "finished"), ("lseh", 60.0, "finished"), ("lseh", 30.0, "finished"),
        ("top_f", 70.0, "killed"),
    ]):
        trial = trial_named(f"vsepp.{loss}-c{number:03d}-s0", loss)
        run = writer.start_attempt(AttemptStart(
            "demo", trial.trial, trial.cell, "vsepp", loss, 1, 0, "search", {"loss.margin": 0.1 * number},
            trial.to_plain(),
        ))
        writer.record_points(run, [ValidationPoint(10, 1.0, 10, recall, 1.0)])
        if number < 3:
            weights_of(trial.trial).parent.mkdir(parents=True)
            write_weights(weights_of(trial.trial), trial, seed=number)
        writer.finish_attempt(run, status, summary={}, error=None)  # type: ignore[arg-type]
    yield writer.attempts()
    log.close()


def weights_of(trial: str) -> Path:
    return folder_of_study("demo") / "trials" / trial / "best.safetensors"


def prepared(tmp_path: Path, **tracking: Any) -> Any:
    tracked = TrackingSpec(**{"uri": f"sqlite:///{tmp_path / 'mlflow.db'}", **tracking})
    spec = SimpleNamespace(study="demo", tracking=tracked)
    return SimpleNamespace(spec=spec, trial_folder=lambda trial: weights_of(trial).parent)


def logged(tmp_path: Path, attempts: list[Attempt], *, is_exported: bool = True, **tracking: Any) -> list[str]:
    return log_winners(prepared(tmp_path, **tracking), attempts, is_exported=is_exported)


WINNERS = ("vsepp.lmh-c001-s0", "vsepp.lseh-c002-s0")


def test_the_best_finished_trial_of_every_cell_is_logged_once(
    attempts: list[Attempt], models: Models, tmp_path: Path
) -> None:
    assert logged(tmp_path, attempts) == ["2 winners logged as MLflow models"]
    assert set(models.logged) == {(trial, sha256_of_file(weights_of(trial))) for trial in WINNERS}
    assert logged(tmp_path, attempts) == []
    assert len(models.logged) == 2
    assert "vsepp.top_f-c004-s0" not in {winner.start.trial for winner in winners_of(attempts)}


def test_weights_that_are_gone_are_a_line(attempts: list[Attempt], models: Models, tmp_path: Path) -> None:
    for trial in WINNERS:
        weights_of(trial).unlink()
    assert logged(tmp_path, attempts) == [
        "no checkpoint is left of vsepp.lmh-c001-s0, vsepp.lseh-c002-s0: not logged as MLflow models"
    ]
    write_weights(weights_of(WINNERS[1]), trial_named(WINNERS[1], "lseh"), seed=2)
    assert logged(tmp_path, attempts)[0] == "1 winner logged as MLflow models"


def test_an_mlflow_that_is_away_or_full_is_a_line_that_says_what_to_do(
    attempts: list[Attempt], models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise StorageError("tracking store x: no space left")

    (line,) = logged(tmp_path, attempts, is_exported=False)
    assert "MLflow does not have them yet; log one later with: vsetune trial model STUDY/TRIAL" in line
    monkeypatch.setattr(models, "log", full)
    (line,) = logged(tmp_path, attempts)
    assert line.startswith("winners are not all logged as MLflow models: tracking store x: no space left; ")


def test_nothing_is_logged_where_it_is_turned_off_or_nothing_is_exported(
    attempts: list[Attempt], models: Models, tmp_path: Path
) -> None:
    assert logged(tmp_path, attempts, models="none") == []
    assert logged(tmp_path, attempts, uri="none") == []
    assert not models.logged
