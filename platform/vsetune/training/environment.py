"""What a result depends on besides its configuration: code, packages, machine, data, protocol."""

from __future__ import annotations

import platform
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from vsetune.config.study.evaluation_settings import RerankSpec
from vsetune.config.study.training import TrainingSpec, TrialSpec
from vsetune.data.stored.dataset import Dataset
from vsetune.metrics.ranks import RANKING_PROTOCOL
from vsetune.metrics.score_blocks import RERANKING_VERSION
from vsetune.training.batches import TrainingBatches
from vsetune.training.device import device_name, effective_precision
from vsetune.training.evaluation import PROTOCOLS
from vsetune.version import __version__, git_revision

_PACKAGES = (
    "torch", "numpy", "scikit-learn", "pillow", "transformers", "webdataset", "ray", "optuna", "mlflow",
)


def describe_environment(training: TrainingSpec, *, device: torch.device, data_fingerprint: str) -> dict[str, str]:
    """Strings for `AttemptStart.environment`: git revision, versions, platform, device, precision, threads, data."""
    described = {
        "git_revision": git_revision(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "processor": processor_name(),
        "device": str(device),
        "device_name": device_name(device),
        "precision": effective_precision(training, device),
        "threads": str(torch.get_num_threads()),
        "data_fingerprint": data_fingerprint,
    }
    if device.type == "cuda":
        described["cuda"] = str(torch.version.cuda)
    return described | {f"package_{name}": version for name, version in package_versions().items()}


def processor_name() -> str:
    """The processor model of this machine, if the system reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()


@cache
def package_versions() -> dict[str, str]:
    """Versions of the packages that results depend on, by name; ours included."""
    found = {"vsetune": __version__}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


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
