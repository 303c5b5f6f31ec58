"""The only code in which networks depend on the device of their tensors.

The device may decide how much is computed at a time, which checks are made to save work, and whether a gradient is
hand-written or found by automatic differentiation of the same formula; it never changes the formula.
"""

from __future__ import annotations

from torch import Tensor


def is_on_cpu(tensor: Tensor) -> bool:
    """False on a GPU, where every check of a value waits for the queue, and some extra computation is cheaper."""
    return tensor.device.type == "cpu"


def numbers_at_once(tensor: Tensor, *, cpu: int, gpu: int) -> int:
    """Numbers of a block to compute at once: as many as fit the cache of a CPU, or keep a GPU busy."""
    return cpu if is_on_cpu(tensor) else gpu


def on_host(values: Tensor, copy: Tensor | None) -> Tensor:
    """The values on the CPU: unchanged if they are there, else the CPU copy, or a new copy, which waits for a GPU."""
    if is_on_cpu(values):
        return values
    return copy if copy is not None else values.cpu()


def beside(values: Tensor, tensor: Tensor) -> Tensor:
    """CPU values on the device of `tensor`. The call does not wait for a GPU: pinned memory is copied asynchronously.

    `values` must not be changed afterwards.
    """
    pinned = values.pin_memory() if tensor.device.type == "cuda" else values
    return pinned.to(tensor.device, non_blocking=True)
