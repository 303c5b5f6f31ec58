"""Intervals over images of a finished study: its best weights give what was recorded, whatever it is asked through."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from refusals import fits, refused
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import vsetune
from vsetune.api.recorded import RecordedStudy
from vsetune.cli.main import app
from vsetune.data.progress import SilentProgress
from vsetune.metrics.image_intervals import interval_with_images
from vsetune.records.studies import Studies
from vsetune.study import messages
from vsetune.study.image_intervals import ImageRow, image_rows
from vsetune.training import messages as of_training


@pytest.fixture(scope="module")
def _ended(home_of_study: Path) -> Path:
    return home_of_study


def rows_of(study: str = "small") -> list[ImageRow]:
    return image_rows(Studies(), study, device=torch.device("cpu"), progress=SilentProgress())[1]


def hits_by_hand(trial: vsetune.Trial) -> np.ndarray:
    """(images,) contributions to M-Recall, per cent, from the embeddings of the validation split, query by query."""
    found = trial.embed("validation")
    scores, owner = found.images @ found.captions.T, np.asarray(found.owner)
    images, captions = scores.shape
    of_image, of_captions = np.zeros(images), np.zeros(images)
    for image in range(images):
        best = max(scores[image, caption] for caption in range(captions) if owner[caption] == image)
        rank = sum(scores[image, other] >= best for other in range(captions) if owner[other] != image)
        of_image[image] = sum(rank < k for k in (1, 5, 10)) / 3
    for caption in range(captions):
        own = scores[owner[caption], caption]
        rank = sum(scores[other, caption] >= own for other in range(images) if other != owner[caption])
        of_captions[owner[caption]] += sum(rank < k for k in (1, 5, 10)) / 3
    return 50 * (of_image + of_captions * images / captions)  # all images have five captions


def test_the_best_weights_of_every_seed_are_scored_image_by_image(finished: RecordedStudy) -> None:
    rows = rows_of()
    assert [row.row.loss for row in rows] == ["lmh", "info_nce"]
    by_hand = {}
    for each in rows:
        assert each.problems == ()
        assert (each.images, each.captions) == (16, 80)
        assert {*each.scored} == {seed.trial for seed in each.row.headline}
        for seed in each.row.headline:
            by_hand[seed.trial] = hits_by_hand(finished.trial(seed.trial))
            assert each.scored[seed.trial] == pytest.approx(seed.best_m_recall, abs=1e-6)
            assert by_hand[seed.trial].mean() == pytest.approx(seed.best_m_recall, abs=1e-6)
    baseline, loss = rows
    units = [np.stack([by_hand[seed.trial] for seed in each.row.headline]) for each in rows]
    assert [seed.seed for seed in baseline.row.headline] == [seed.seed for seed in loss.row.headline]
    assert loss.difference_bounds == pytest.approx(interval_with_images([units[1] - units[0]]))
    low, high = interval_with_images([units[1]])
    assert loss.m_recall_bounds == pytest.approx((max(low, 0), min(high, 100)))
    assert baseline.difference_bounds is None


def test_the_command_and_python_have_the_same_numbers(finished: RecordedStudy) -> None:
    said = CliRunner().invoke(app, ["leaderboard", "images", "small", "--json", "--device", "cpu"])
    assert said.exit_code == 0, said.output
    shown, table = json.loads(said.stdout), finished.image_intervals(device="cpu")
    assert [row["loss"] for row in shown["rows"]] == [*table["loss"]]
    for name in ("m_recall_image_bounds", "difference_image_bounds", "m_recall_bounds", "difference"):
        for row, value in zip(shown["rows"], table[name], strict=True):
            assert row[name] == (list(value) if isinstance(value, tuple) else value)
    assert shown["rows"][1]["difference_image_bounds"]
    text = CliRunner().invoke(app, ["leaderboard", "images", "small", "--device", "cpu"], env={"COLUMNS": "160"}).stdout
    assert "vsepp on scenes" in text


@pytest.fixture
def copied(home_of_study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the home of the study, to be damaged."""
    home = tmp_path / "home"
    shutil.copytree(home_of_study, home)
    monkeypatch.setenv("VSETUNE_HOME", str(home))
    return home


def test_other_weights_give_a_warning_and_no_interval(copied: Path) -> None:
    trial = rows_of()[0].row.headline[0].trial
    weights = copied / "studies" / "small" / "trials" / trial / "best.safetensors"
    from safetensors import safe_open

    with safe_open(weights, "pt") as file:
        notes = file.metadata()
    spoilt = {name: torch.zeros_like(value) for name, value in load_file(weights).items()}
    save_file(spoilt, weights, metadata=notes)
    baseline, loss = rows_of()
    assert [fits(problem, messages.OTHER_BEST_WEIGHTS, trial=trial) for problem in baseline.problems] == [True]
    assert baseline.m_recall_bounds is None
    assert loss.difference_bounds is None
    assert loss.m_recall_bounds is not None


def test_missing_weights_and_data_are_refused(copied: Path) -> None:
    trial = rows_of()[1].row.headline[1].trial
    weights = copied / "studies" / "small" / "trials" / trial / "best.safetensors"
    weights.rename(weights.with_suffix(".gone"))
    with refused(messages.NO_CHECKPOINT, where=f"attempt small/{trial}/1"):
        rows_of()
    weights.with_suffix(".gone").rename(weights)
    manifest = next((copied / "data" / "scenes").glob("manifest*"))
    manifest.rename(manifest.with_suffix(".gone"))
    with pytest.raises(vsetune.errors.DataError):
        rows_of()
