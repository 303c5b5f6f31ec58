"""The most memory that a process held at once since a certain moment."""

from __future__ import annotations

import contextlib
from pathlib import Path

import torch

from vsetune.data.freed_memory import give_back_freed_memory

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


def reset_peak_memory(device: torch.device) -> None:
    """Count anew from here. Where the system does not let us, the peak stays that of the whole process. Memory that is
    kept for later steps (`freed_memory.py`) and not in use goes back first, so that it is no trial's."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    give_back_freed_memory()
    with contextlib.suppress(OSError), open(_CLEAR, "w") as stream:
        stream.write(_RESET_PEAK)


def peak_memory_bytes(device: torch.device) -> int | None:
    """On a GPU what tensors held there at most, else the resident memory of this process; None where nobody says."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    peak = next((line.split() for line in lines if line.startswith("VmHWM:")), None)
    return None if peak is None else int(peak[1]) * 1024
