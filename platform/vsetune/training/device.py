"""Where an attempt computes: its device, its share of threads, and the peak memory of its process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import torch

from vsetune.config.study.training import Precision, TrainingSpec
from vsetune.data.devices import device_named
from vsetune.data.freed_memory import give_back_freed_memory
from vsetune.errors import ConfigError


def choose_device(name: str) -> torch.device:
    """`auto` takes the GPU when there is one. ConfigError for an unknown or unavailable device.

    On a GPU this process then computes float32 products in float32: by default cuDNN uses TF32 for convolutions and
    GRUs.
    """
    if name == "auto":
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    else:
        device = device_named(name, key="device", choices="auto, cpu, cuda or cuda:N")
    if device.type == "cuda":
        _allow_tf32(False)
    return device


def take_share(device: torch.device, share: float) -> None:
    """Limit this process to its share of a GPU's memory, so that a process that requests too much fails itself and does
    not disturb the trial beside it. share: of one GPU; from 1 on, and on the CPU: no limit."""
    if device.type == "cuda" and share > 0:
        index = torch.cuda.current_device() if device.index is None else device.index
        torch.cuda.set_per_process_memory_fraction(min(1.0, share), index)


def use_threads(threads: int | None) -> None:
    """Limit the threads of one operation in this process; None leaves the limit as it is."""
    if threads is None:
        return
    if threads < 1:
        raise ConfigError("VSE-T005", "threads: got {threads}, need at least 1.", threads=threads)
    torch.set_num_threads(threads)


def effective_precision(training: TrainingSpec, device: torch.device) -> Precision:
    """The precision that a training actually uses: TF32 and bfloat16 are for GPUs, elsewhere they would be slower or
    coarser."""
    return training.precision if device.type == "cuda" else "float32"


def tower_precision(training: TrainingSpec, device: torch.device) -> AbstractContextManager[object]:
    """Context for the encoders, see `effective_precision`."""
    if effective_precision(training, device) == "bfloat16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext()


def product_precision(training: TrainingSpec, device: torch.device) -> AbstractContextManager[object]:
    """Context for a whole training step, backward included: with `tf32` products of float32 numbers, convolutions and
    GRUs go to the matrix units of a GPU, which keep 10 bits of each factor's mantissa and sum in float32."""
    return _tf32_allowed() if effective_precision(training, device) == "tf32" else contextlib.nullcontext()


@contextmanager
def _tf32_allowed() -> Iterator[None]:
    _allow_tf32(True)
    try:
        yield
    finally:
        _allow_tf32(False)


def _allow_tf32(allowed: bool) -> None:
    """Applies to the whole process: PyTorch has no other setting, and its backward pass runs in its own threads."""
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def wait_for(device: torch.device) -> None:
    """Wait for queued GPU work, so that a clock read next is meaningful."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def device_name(device: torch.device) -> str:
    """For people: `cpu`, or the name of the GPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


def reset_peak_memory(device: torch.device) -> None:
    """Restart the measurement here. Where the system does not allow it, the peak remains that of the whole process.
    Unused memory cached for later steps (`freed_memory.py`) is released first, so that it does not count for a trial.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    give_back_freed_memory()
    with contextlib.suppress(OSError), open(_CLEAR, "w") as stream:
        stream.write(_RESET_PEAK)


def peak_memory_bytes(device: torch.device) -> int | None:
    """On a GPU the peak memory of tensors, else the resident memory of this process; None where it is not available."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    peak = next((line.split() for line in lines if line.startswith("VmHWM:")), None)
    return None if peak is None else int(peak[1]) * 1024
