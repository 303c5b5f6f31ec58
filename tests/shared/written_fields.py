"""The names of all that a worker and the driver write of an attempt; what a test makes by hand has no others.

`tests/study/test_end_of_study.py` compares them with the attempts of a study that was trained.
"""

from __future__ import annotations

from typing import TypeVar

from vsetune.records.events import CONSTRAINT_EXCESS, SEARCH_VALUE, AttemptStart, ValidationPoint
from vsetune.records.state import Attempt

RECALLS = frozenset(f"{way}_{name}" for way in ("i2t", "t2i") for name in ("r1", "r5", "r10", "mean", "median_rank",
                                                                          "mean_rank")) | {"rsum", "tie_share"}
POINT = RECALLS | {
    "train_loss", "loss_active_share", "gradient_norm", "learning_rate", "train_seconds", "load_seconds",
    "validation_seconds", "device_seconds", "pairs_per_second",
} | {f"unique_negatives_{of}" for of in (
    "captions", "images", "active_captions", "active_images", "image_queries", "caption_queries",
)}
SUMMARY = frozenset({
    "epochs", "steps", "pairs_seen", "validations", "train_seconds", "load_seconds", "validation_seconds",
    "checkpoint_seconds", "device_seconds", "wasted_epochs", "wasted_seconds", "seconds_per_epoch", "best_m_recall",
    "best_step", "epochs_to_best", "train_seconds_to_best", "peak_memory_bytes", "start_seconds",
}) | {f"test_{name}" for name in (*RECALLS, "m_recall", "seconds")}
ENVIRONMENT = frozenset({
    "git_revision", "python", "platform", "machine", "processor", "device", "device_name", "precision", "threads",
    "data_fingerprint", "drawn_by", "budget_epochs", "budget_epochs_of_a_trial",
}) | {f"package_{name}" for name in (
    "vsetune", "torch", "numpy", "scikit-learn", "pillow", "transformers", "webdataset", "ray", "optuna", "mlflow",
)}
PROTOCOL = frozenset({
    "dataset", "split", "images", "captions", "data_fingerprint", "train_pairs", "steps_per_epoch", "batch_size",
    "batch_unit", "validate_every_steps", "tie_rule", "score_dtype", "ranking_version",
})
IF_ASKED = frozenset({"evaluation_protocols", "reranking", "validation_images"})
"""In the protocol of a study that sets `evaluation`."""
RESOLVED = frozenset({"study", "trial", "cell", "data", "network", "loss", "training", "evaluation", "seed"})
PLACED = frozenset({"node", "node_type", "usd_per_hour"})
"""In the environment of a trial that Ray has placed."""
ASKED_FOR = frozenset({
    "calibration_seconds", "epoch_products", "epoch_wall_products", "pairs_per_product", "start_products", SEARCH_VALUE,
    CONSTRAINT_EXCESS,
})
"""In summaries of a night, and of a study with an objective or constraints of its own."""
OPENED = ("test_srd_", "test.", "test_eccv_", "test_cxc_")
"""Open the names that `evaluation.srd_at`, `data.tests` and `evaluation.coco` ask for."""
Made = TypeVar("Made", ValidationPoint, AttemptStart, Attempt)


def as_written(made: Made) -> Made:
    """The same. AssertionError where it has a name that vsetune never writes."""
    assert unknown_names(made) == set()
    return made


def unknown_names(made: ValidationPoint | AttemptStart | Attempt) -> set[str]:
    if isinstance(made, ValidationPoint):
        return set(made.metrics) - POINT
    if isinstance(made, Attempt):
        named = {name for name in made.summary if not name.startswith(OPENED)}
        return (named - SUMMARY - ASKED_FOR) | unknown_names(made.start)
    parts = {"resolved": RESOLVED, "environment": ENVIRONMENT | PLACED, "protocol": PROTOCOL | IF_ASKED}
    return {name for part, known in parts.items() for name in set(getattr(made, part)) - known}
