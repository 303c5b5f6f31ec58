"""The one place where losses ask which device numbers are on.

The answer may decide by which way a result is found, and what is asked before work is saved; never the result.
"""

from __future__ import annotations

from torch import Tensor


def is_on_cpu(tensor: Tensor) -> bool:
    """False on a GPU, which waits for every question about values and would rather compute too much."""
    return tensor.device.type == "cpu"


def beside(values: Tensor, tensor: Tensor) -> Tensor:
    """Numbers of the CPU on the device of `tensor`. No GPU is waited for: pinned memory is copied when its turn comes.

    Nobody may change `values` afterwards.
    """
    pinned = values.pin_memory() if tensor.device.type == "cuda" else values
    return pinned.to(tensor.device, non_blocking=True)
