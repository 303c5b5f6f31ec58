"""The one place where networks ask which device numbers are on.

The answer may decide how much is computed at a time, what is asked before work is saved, and whether a gradient is
written out by hand or found by automatic differentiation of the same formula: never the formula.
"""

from __future__ import annotations

from torch import Tensor


def is_on_cpu(tensor: Tensor) -> bool:
    """False on a GPU, which waits for every question about values and would rather compute too much."""
    return tensor.device.type == "cpu"


def numbers_at_once(tensor: Tensor, *, cpu: int, gpu: int) -> int:
    """How many numbers of a block to compute at once: what fits the cache of a CPU, or what keeps a GPU busy."""
    return cpu if is_on_cpu(tensor) else gpu


def on_host(values: Tensor, copy: Tensor | None) -> Tensor:
    """The values on the CPU: themselves, or the copy that was kept there, or else a new one, for which a GPU is waited
    for."""
    if is_on_cpu(values):
        return values
    return copy if copy is not None else values.cpu()


def beside(values: Tensor, tensor: Tensor) -> Tensor:
    """Numbers of the CPU on the device of `tensor`. No GPU is waited for: pinned memory is copied when its turn comes.

    Nobody may change `values` afterwards.
    """
    pinned = values.pin_memory() if tensor.device.type == "cuda" else values
    return pinned.to(tensor.device, non_blocking=True)
