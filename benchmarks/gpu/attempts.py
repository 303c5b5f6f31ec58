"""Whole attempts on a device: continued after a stop, and out of memory."""

from __future__ import annotations

import gc
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gpu.cases import small_network, trial_of
from gpu.curves import FACTOR
from gpu.worker import PACKAGES
from vsetune.config.study.training import TrialSpec
from vsetune.training.attempt import TrainingAttempt
from vsetune.training.device import choose_device, take_share
from vsetune.training.failures import failure_of

ROUNDING = 1e-6
LARGE = {"embedding_size": 512, "word_size": 300}
FREE_MIB = 96
"""What a process may take beyond what it holds, so that a large step runs out of memory and a small one does not."""


@dataclass(frozen=True)
class Resumed:
    """Largest differences of the losses, as a share of the largest: of a continued training from a straight one, and
    of two straight ones, which a GPU need not repeat bit for bit."""

    continued: float
    repeated: float

    @property
    def holds(self) -> bool:
        return self.continued <= max(FACTOR * self.repeated, ROUNDING)


def resumed(data: str, device: str, network: str) -> Resumed:
    """A training stopped after half of its validations and continued by another object, against one never stopped."""
    trial = trial_of(data, small_network(network), {"name": "lmh"}, validate_every_steps=9, epochs=2.0)
    with tempfile.TemporaryDirectory() as folder:
        straight, again = (_losses(trial, Path(folder) / name, device) for name in ("straight", "again"))
        _losses(trial, Path(folder) / "stopped", device, stop_after=len(straight) // 2)
        continued = _losses(trial, Path(folder) / "stopped", device)
    return Resumed(_apart(continued, straight), _apart(again, straight))


def _losses(trial: TrialSpec, folder: Path, device: str, *, stop_after: int | None = None) -> list[float]:
    attempt = TrainingAttempt(trial, folder, device=device, threads=None)
    while not attempt.is_finished and (stop_after is None or len(attempt.history) < stop_after):
        attempt.advance()
    attempt.close()
    return [value for point in attempt.history for value in (point.metrics["train_loss"], point.m_recall)]


def _apart(losses: list[float], others: list[float]) -> float:
    if len(losses) != len(others):
        return float("inf")
    return max(abs(one - other) for one, other in zip(losses, others, strict=True)) / max(map(abs, others))


def out_of_memory(data: str, device: str) -> dict[str, Any]:
    """In a process of its own: what a step that does not fit was called, and whether a small training went on."""
    command = (
        f"import sys; sys.path[:0] = {PACKAGES!r}; from gpu.attempts import run_out; run_out(*sys.argv[1:])"
    )
    done = subprocess.run(
        [sys.executable, "-c", command, data, device], capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode != 0:
        return {"kind": f"the process ended with code {done.returncode}", "text": done.stderr[-400:], "survived": False}
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def run_out(data: str, device: str) -> None:
    """Print what a step that does not fit is called, and whether the same process can train a small network after."""
    torch.set_num_threads(1)
    small = trial_of(data, small_network("vsepp"), {"name": "lmh"}, epochs=1.0, batch_size=8)
    large = trial_of(data, small_network("scan", **LARGE), {"name": "lmh"}, epochs=1.0, batch_size=256)
    with tempfile.TemporaryDirectory() as folder:
        _losses(small, Path(folder) / "before", device)
        kind, text = "none", "it fitted"
        with little_memory(choose_device(device)):
            try:
                _losses(large, Path(folder) / "large", device)
            except Exception as error:  # which one is what we ask
                failure = failure_of(error)
                kind, text = failure.kind, failure.text
        gc.collect()
        survived = bool(_losses(small, Path(folder) / "after", device))
    print(json.dumps({"kind": kind, "text": text, "survived": survived}))


@contextmanager
def little_memory(device: torch.device) -> Iterator[None]:
    """Inside, this process may take little more memory than it has now."""
    extra = FREE_MIB * 2**20
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.empty_cache()
        take_share(device, (torch.cuda.memory_reserved(device) + extra) / total)
        try:
            yield
        finally:
            take_share(device, 1.0)
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + extra, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
