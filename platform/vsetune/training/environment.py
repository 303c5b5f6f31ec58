"""What a result depends on besides its configuration: code, packages, machine, data."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path

import torch

import vsetune
from vsetune.config.study.training import TrainingSpec
from vsetune.scoring.device import device_name, effective_precision

_REVISION = re.compile(r"[0-9a-f]{7,40}(\+changes)?")
_PACKAGES = (
    "torch", "numpy", "scikit-learn", "pillow", "transformers", "webdataset", "ray", "optuna", "mlflow",
)

REVISION_VARIABLE = "VSETUNE_REVISION"
"""The revision of code that was sent somewhere without its repository: to the nodes of a cluster, as a job."""


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
    """The model of this machine's processor, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()


def git_revision(folder: Path) -> str:
    """Commit of the code in `folder`, with `+changes` when files differ from it.

    Outside a repository, and for an installed copy that merely lies inside one, what VSETUNE_REVISION says, else
    `unknown`: what Ray sends with a job has no repository.
    """
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None or not _git(folder, "ls-files", "--", "."):
        told = os.environ.get(REVISION_VARIABLE, "")
        return told if _REVISION.fullmatch(told) else "unknown"
    return f"{commit}+changes" if _git(folder, "status", "--porcelain", "--untracked-files=no", "--", ".") else commit


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _versions() -> dict[str, str]:
    found = {"vsetune": vsetune.__version__}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
