"""What a curve depends on besides the trial's own settings. Curves under different protocols do not compare."""

from __future__ import annotations

from typing import Any

from vsetune.config.study.training import TrialSpec
from vsetune.data.stored.dataset import Dataset
from vsetune.metrics.ranks import RANKING_PROTOCOL
from vsetune.scoring.evaluation import PROTOCOLS
from vsetune.training.batches import TrainingBatches


def describe_protocol(trial: TrialSpec, dataset: Dataset, batches: TrainingBatches) -> dict[str, Any]:
    """What is ranked, and how often."""
    split = trial.data.validation_split
    info = dataset.split(split)
    named = {name: PROTOCOLS[name].as_dict() for name in trial.evaluation.protocols}
    return ({"evaluation_protocols": named} if named else {}) | {
        "dataset": dataset.manifest.name,
        "split": split,
        "images": info.images,
        "captions": info.captions,
        "data_fingerprint": dataset.fingerprint,
        "train_pairs": batches.pairs,
        "steps_per_epoch": batches.steps_per_epoch,
        "batch_size": trial.training.batch_size,
        "batch_unit": trial.training.batch_unit,
        "validate_every_steps": trial.training.validate_every_steps,
        "tie_rule": RANKING_PROTOCOL["tie_rule"],
        "score_dtype": RANKING_PROTOCOL["score_dtype"],
        "ranking_version": RANKING_PROTOCOL["version"],
    }
