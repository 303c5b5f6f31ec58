"""The settings besides those of the trial that a curve depends on. Curves under different protocols are not
comparable."""

from __future__ import annotations

from typing import Any

from vsetune.config.study.evaluation_settings import RerankSpec
from vsetune.config.study.training import TrialSpec
from vsetune.data.stored.dataset import Dataset
from vsetune.metrics.ranks import RANKING_PROTOCOL
from vsetune.metrics.reranked_scores import RERANKING_VERSION
from vsetune.scoring.evaluation import PROTOCOLS
from vsetune.training.batches import TrainingBatches


def describe_protocol(trial: TrialSpec, dataset: Dataset, batches: TrainingBatches) -> dict[str, Any]:
    """What is ranked, and how often. images, captions: of the split; validation_images: number of images in validations
    that rank fewer."""
    split = trial.data.validation_split
    info = dataset.split(split)
    wanted = trial.evaluation
    named = {name: PROTOCOLS[name].as_dict() for name in wanted.protocols}
    optional = {
        "evaluation_protocols": named or None,
        "reranking": None if wanted.rerank is None else _reranking(wanted.rerank),
        "validation_images": wanted.validation_images,
    }
    return {key: value for key, value in optional.items() if value is not None} | {
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


def _reranking(wanted: RerankSpec) -> str:
    """Which first stage proposes how many candidates. Its weights are identified by content, not by name."""
    return f"top {wanted.top} of {wanted.first} ({(wanted.content or 'any')[:16]}), version {RERANKING_VERSION}"
