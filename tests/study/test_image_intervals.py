"""Intervals over images of a finished study: its best weights give what was recorded, whatever it is asked through."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from refusals import fits, refused
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from small_study import small_study
from trials_here import without_ray
from typer.testing import CliRunner

import vsetune
from vsetune.api.recorded import RecordedStudy
from vsetune.board.image_rows import ImageRow
from vsetune.cli.main import app
from vsetune.data.progress import SilentProgress
from vsetune.errors import DataError
from vsetune.metrics.image_intervals import interval_with_images
from vsetune.records.studies import BEST_FILE, Studies, folder_of_study
from vsetune.study.image_intervals import image_rows
from vsetune.training.validation import evenly_spread

DATA = {"path": "data/scenes", "scenes": {"train": 160, "validation": 80, "test": 16}}
VALIDATED = 60


@pytest.fixture(scope="module")
def home_of_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a finished study of two losses and two seeds, whose networks have learned something."""
    home = tmp_path_factory.mktemp("learned")
    training = {"epochs": 4, "batch_size": 40, "validate_every_steps": 30, "learning_rate": 5e-3}
    ranked = {"validation_images": VALIDATED}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VSETUNE_HOME", str(home))
        patch.setenv("MLFLOW_TRACKING_URI", "none")
        without_ray(patch)
        small_study(data=DATA, training=training, evaluation=ranked, baseline="info_nce").run(progress=False)
    return home


@pytest.fixture
def finished(home_of_study: Path, monkeypatch: pytest.MonkeyPatch) -> RecordedStudy:
    monkeypatch.setenv("VSETUNE_HOME", str(home_of_study))
    return vsetune.open_study("small")


def rows_of(study: str = "small") -> list[ImageRow]:
    return image_rows(Studies(), study, device=torch.device("cpu"), progress=SilentProgress())[1]


def hits_by_hand(trial: vsetune.Trial) -> np.ndarray:
    """(images,) contributions to M-Recall, per cent, from the embeddings of the validation split, query by query."""
    found = trial.embed("validation")
    kept = evenly_spread(VALIDATED, len(found.images))
    captions = np.isin(found.owner, kept)
    scores, owner = found.images[kept] @ found.captions[captions].T, np.searchsorted(kept, found.owner[captions])
    images, texts = scores.shape
    of_image, of_captions = np.zeros(images), np.zeros(images)
    for image in range(images):
        best = max(scores[image, caption] for caption in range(texts) if owner[caption] == image)
        rank = sum(scores[image, other] >= best for other in range(texts) if owner[other] != image)
        of_image[image] = sum(rank < k for k in (1, 5, 10)) / 3
    for caption in range(texts):
        own = scores[owner[caption], caption]
        rank = sum(scores[other, caption] >= own for other in range(images) if other != owner[caption])
        of_captions[owner[caption]] += sum(rank < k for k in (1, 5, 10)) / 3
    return 50 * (of_image + of_captions * images / texts)  # all images have five captions


def test_the_best_weights_of_every_seed_are_scored_image_by_image(finished: RecordedStudy) -> None:
    rows = rows_of()
    assert [row.row.loss for row in rows] == ["info_nce", "lmh"]
    by_hand = {}
    for each in rows:
        assert each.problems == ()
        assert (each.images, each.captions) == (VALIDATED, 5 * VALIDATED)
        assert {*each.scored} == {seed.trial for seed in each.row.headline}
        for seed in each.row.headline:
            by_hand[seed.trial] = hits_by_hand(finished.trial(seed.trial))
            assert each.scored[seed.trial] == pytest.approx(seed.best_m_recall, abs=1e-6)
            assert by_hand[seed.trial].mean() == pytest.approx(seed.best_m_recall, abs=1e-6)
    baseline, loss = rows
    units = [np.stack([by_hand[seed.trial] for seed in each.row.headline]) for each in rows]
    assert [seed.seed for seed in baseline.row.headline] == [seed.seed for seed in loss.row.headline]
    assert loss.difference_bounds == pytest.approx(
        interval_with_images([units[1] - units[0]], loss.row.comparison.height_level)
    )
    low, high = interval_with_images([units[1]])
    assert loss.m_recall_bounds == pytest.approx((max(low, 0), min(high, 100)))
    assert baseline.difference_bounds is None


def test_the_command_and_python_have_the_same_numbers(finished: RecordedStudy) -> None:
    said = CliRunner().invoke(app, ["leaderboard", "images", "small", "--json", "--device", "cpu"])
    assert said.exit_code == 0, said.output
    shown, table = json.loads(said.stdout), finished.image_intervals(device="cpu")
    assert [row["loss"] for row in shown["rows"]] == [*table["loss"]]
    loss = shown["rows"][1]
    for name in ("m_recall_image_bounds", "difference_image_bounds", "m_recall_bounds", "difference_bounds"):
        assert loss[name] == [*table[name][1]]
    assert loss["difference"] == table["difference"][1]
    text = CliRunner().invoke(app, ["leaderboard", "images", "small", "--device", "cpu"], env={"COLUMNS": "160"}).stdout
    assert "vsepp on scenes" in text


@pytest.fixture
def copied(home_of_study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the home of the study, to be damaged."""
    home = tmp_path / "home"
    shutil.copytree(home_of_study, home)
    monkeypatch.setenv("VSETUNE_HOME", str(home))
    return home


def test_a_trial_that_reranks_is_scored_with_its_first_stage(finished: RecordedStudy, monkeypatch) -> None:
    without_ray(monkeypatch)
    small_study(
        study="second", data=DATA, networks=[{"name": "scan", "fixed": {"embedding_size": 8, "word_size": 8}}],
        losses=["lmh"], evaluation={"rerank": {"first": f"small/{finished.trials[0]}", "top": 10}},
        training={"epochs": 1, "batch_size": 40, "learning_rate": 1e-2},
    ).run(progress=False)
    (row,) = rows_of("second")
    assert (len(row.scored), row.problems, row.images) == (2, (), 80)
    low, high = row.m_recall_bounds
    assert low < row.row.best_m_recall < high


def test_other_weights_give_a_warning_and_no_interval(copied: Path) -> None:
    trial = rows_of()[0].row.headline[0].trial
    weights = folder_of_study("small") / "trials" / trial / BEST_FILE
    with safe_open(weights, "pt") as file:
        notes = file.metadata()
    spoilt = {name: torch.zeros_like(value) for name, value in load_file(weights).items()}
    save_file(spoilt, weights, metadata=notes)
    baseline, loss = rows_of()
    assert [fits(problem, "VSE-B026", trial=trial) for problem in baseline.problems] == [True]
    assert baseline.m_recall_bounds is None
    assert loss.difference_bounds is None
    low, high = loss.m_recall_bounds
    assert low < loss.row.best_m_recall < high


def test_missing_weights_are_refused(copied: Path) -> None:
    trial = rows_of()[1].row.headline[1].trial
    weights = folder_of_study("small") / "trials" / trial / BEST_FILE
    weights.rename(weights.with_suffix(".gone"))
    with refused("VSE-S065", where=f"attempt small/{trial}/1"):
        rows_of()


def test_a_missing_data_set_is_refused(finished: RecordedStudy, home_of_study: Path) -> None:
    data = home_of_study / "data" / "scenes"
    away = data.rename(data.with_name("away"))
    try:
        with pytest.raises(DataError):
            rows_of()
    finally:
        away.rename(data)
