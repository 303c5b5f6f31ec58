"""The only code in which losses depend on the device of their tensors.

The device may decide which algorithm is used, and which checks are made to save work; it never changes the result.
"""

from __future__ import annotations

from torch import Tensor


def is_on_cpu(tensor: Tensor) -> bool:
    """False on a GPU, where every check of a value waits for the queue, and some extra computation is cheaper."""
    return tensor.device.type == "cpu"


def beside(values: Tensor, tensor: Tensor) -> Tensor:
    """Values on the device of `tensor`. From the CPU the call does not wait for a GPU: pinned memory is copied
    asynchronously.

    `values` must not be changed afterwards.
    """
    if values.device.type != "cpu":
        return values.to(tensor.device)
    pinned = values.pin_memory() if tensor.device.type == "cuda" else values
    return pinned.to(tensor.device, non_blocking=True)
