"""Every loss teaches both networks the embedded scenes: far above chance within a few epochs."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from vsetune.config.losses import LOSSES
from vsetune.config.study import ScenesSpec
from vsetune.config.training import TrialSpec
from vsetune.jobs.preparation import make_scenes
from vsetune.training.attempt import Attempt

pytestmark = pytest.mark.slow

VALIDATION_IMAGES = 300
WARMED_UP = {"lmh", "lseh", "adaptive_margin"}
NETWORKS = {
    "vsepp": {"name": "vsepp", "embedding_size": 256, "word_size": 100},
    "vse_infinity": {"name": "vse_infinity", "embedding_size": 128, "word_size": 64},
}


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "scenes"
    make_scenes(folder, ScenesSpec(train=2000, validation=VALIDATION_IMAGES, test=4), Console(stderr=True))
    return folder


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_a_loss_learns_scenes_to_three_times_chance(loss: str, network: str, scenes: Path, tmp_path: Path) -> None:
    trial = TrialSpec.model_validate({
        "study": "learning", "trial": f"{network}.{loss}", "cell": f"{network}.{loss}", "seed": 0,
        "data": {"path": str(scenes), "test_split": None},
        "network": NETWORKS[network],
        "loss": {"name": loss} | ({"warmup_epochs": 1} if loss in WARMED_UP else {}),
        "training": {"epochs": 4, "batch_size": 50, "learning_rate": 1e-3},
    })
    attempt = Attempt(trial, tmp_path, device="cpu", threads=2)
    while not attempt.is_finished:
        point = attempt.advance()
    attempt.finish()
    chance = 100 / VALIDATION_IMAGES
    assert point.metrics["i2t_r1"] > 3 * chance
    assert point.metrics["t2i_r1"] > 3 * chance
    assert max(each.m_recall for each in attempt.history) > 20
