"""TAGS-DC, small and from random weights, learns the embedded scenes in both of its stages."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from vsetune.config.sources.recipe import IngestRecipe, PixelsSpec, ScenesSource
from vsetune.config.study.training import TrialSpec
from vsetune.data.making.ingest import ingest
from vsetune.data.progress import SilentProgress
from vsetune.training.attempt import TrainingAttempt

VALIDATION_IMAGES, CAPTIONS = 100, 5
NETWORK: dict[str, Any] = {
    "name": "tags", "embedding_size": 64, "layers": 2, "heads": 4, "dropout": 0.0, "masked_copies": 2, "refills": 3,
    "synthetic_negatives": 3, "istm_weight": 0.1, "wod_weight": 0.01, "woc_weight": 0.01,
}
TRAINING: dict[str, Any] = {
    "epochs": 2, "batch_size": 16, "learning_rate": 1e-3, "linear_schedule": {"warmup_fraction": 0.1},
    "optimizer": "adamw", "betas": [0.9, 0.98], "weight_decay": 0.01, "decay_vectors": False,
    "phases": [{"epochs": 1.6, "network": {"wod_weight": 0, "woc_weight": 0}}, {"learning_rate_factor": 0.3}],
}


def chance() -> float:
    """M-Recall, per cent, of scores drawn at random."""
    total = VALIDATION_IMAGES * CAPTIONS
    of_captions = [1 - math.comb(total - CAPTIONS, k) / math.comb(total, k) for k in (1, 5, 10)]
    return 100 * sum([*of_captions, *(k / VALIDATION_IMAGES for k in (1, 5, 10))]) / 6


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_tags_learns_scenes_to_an_m_recall_of_five_times_chance(tmp_path: Path) -> None:
    ingest(
        IngestRecipe(
            name="scenes", output=str(tmp_path / "scenes"), features=PixelsSpec(grid=4),
            source=ScenesSource(train=2000, validation=VALIDATION_IMAGES, test=4),
        ),
        progress=SilentProgress(),
    )
    trial = TrialSpec.model_validate({
        "study": "learning", "trial": "tags", "cell": "tags.irtm", "seed": 0,
        "data": {"path": str(tmp_path / "scenes"), "test_split": None}, "network": NETWORK,
        "loss": {"name": "irtm", "hardest": 15}, "training": TRAINING,
    })
    attempt = TrainingAttempt(trial, tmp_path / "trial", device="cpu", threads=2)
    while not attempt.is_finished:
        point = attempt.advance()
    attempt.close()
    assert {f"loss_network_{term}" for term in ("mlm", "istm", "wod", "woc")} <= point.metrics.keys()
    assert max(each.m_recall for each in attempt.history) > 5 * chance()
