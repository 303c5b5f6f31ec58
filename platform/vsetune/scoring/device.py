"""Where an attempt computes: a device that is passed on, never assumed, and its share of threads."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import Literal

import torch

from vsetune.config.study.training import TrainingSpec
from vsetune.data.devices import device_named
from vsetune.errors import ConfigError


def choose_device(name: str) -> torch.device:
    """`auto` takes the GPU when there is one. ConfigError for a device that is unknown or not here."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return device_named(name, key="device", choices="auto, cpu, cuda or cuda:N")


def use_threads(threads: int | None) -> None:
    """Limit the threads of one operation in this process; None leaves the limit as it is."""
    if threads is None:
        return
    if threads < 1:
        raise ConfigError(f"threads: got {threads}, need at least 1.")
    torch.set_num_threads(threads)


def effective_precision(training: TrainingSpec, device: torch.device) -> Literal["float32", "bfloat16"]:
    """What the encoders really compute in: bfloat16 is for GPUs, elsewhere it would be slower and coarser."""
    return training.precision if device.type == "cuda" else "float32"


def tower_precision(training: TrainingSpec, device: torch.device) -> AbstractContextManager[object]:
    """Context for the encoders, see `effective_precision`."""
    if effective_precision(training, device) == "bfloat16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext()


def wait_for(device: torch.device) -> None:
    """Let queued GPU work end, so that a clock read next means something."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def device_name(device: torch.device) -> str:
    """For people: `cpu`, or the name of the GPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
