"""The peak memory of a process since a given moment."""

from __future__ import annotations

import contextlib
from pathlib import Path

import torch

from vsetune.data.freed_memory import give_back_freed_memory

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
