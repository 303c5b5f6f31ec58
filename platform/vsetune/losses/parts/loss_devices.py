"""The only code in which losses depend on the device of their tensors.

The device may decide which algorithm is used, and which checks are made to save work; it never changes the result.
"""

from __future__ import annotations

from torch import Tensor


def is_on_cpu(tensor: Tensor) -> bool:
    """False on a GPU, where every check of a value waits for the queue, and some extra computation is cheaper."""
    return tensor.device.type == "cpu"


def beside(values: Tensor, tensor: Tensor) -> Tensor:
    """CPU values on the device of `tensor`. The call does not wait for a GPU: pinned memory is copied asynchronously.

    `values` must not be changed afterwards.
    """
    pinned = values.pin_memory() if tensor.device.type == "cuda" else values
    return pinned.to(tensor.device, non_blocking=True)
