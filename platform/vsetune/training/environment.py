"""What a result depends on besides its configuration: code, packages, machine, data."""

from __future__ import annotations

import platform
from functools import cache
from importlib import metadata
from pathlib import Path

import torch

import vsetune
from vsetune.config.study.training import TrainingSpec
from vsetune.scoring.device import device_name, effective_precision
from vsetune.training.code_revision import git_revision

_PACKAGES = (
    "torch", "numpy", "scikit-learn", "pillow", "transformers", "webdataset", "ray", "optuna", "mlflow",
)


def describe_environment(training: TrainingSpec, *, device: torch.device, data_fingerprint: str) -> dict[str, str]:
    """Strings for `AttemptStart.environment`: git revision, versions, platform, device, precision, threads, data."""
    described = {
        "git_revision": git_revision(Path(__file__).parent),
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
    return described | {f"package_{name}": version for name, version in _versions().items()}


def processor_name() -> str:
    """The processor model of this machine, if the system reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()


@cache
def _versions() -> dict[str, str]:
    found = {"vsetune": vsetune.__version__}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
