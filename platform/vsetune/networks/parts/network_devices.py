"""The only code in which networks depend on their device, and the switch of hand-written gradients."""

from __future__ import annotations

import os

import torch
from torch import Tensor

from vsetune.errors import UsageError


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
    return sent(values, tensor.device)


def sent(values: Tensor, device: str | torch.device) -> Tensor:
    """The values on a device. Pinned memory lets a copy from the CPU to a GPU run beside both."""
    target = torch.device(device)
    pinned = values.pin_memory() if target.type == "cuda" and is_on_cpu(values) else values
    return pinned.to(target, non_blocking=target.type != "cpu")


PLAIN_AUTOGRAD = "VSETUNE_PLAIN_AUTOGRAD"


def hand_derived(inputs: Tensor) -> bool:
    """Whether to use a hand-written gradient: on a CPU, unless the switch is set; a GPU is faster without.

    UsageError unless the variable is unset, empty, 0 or 1.
    """
    value = os.environ.get(PLAIN_AUTOGRAD, "")
    if value not in ("", "0", "1"):
        raise UsageError(
            "VSE-N018", "{variable}: got {got!r}, need 1 (automatic differentiation only), 0 or nothing",
            variable=PLAIN_AUTOGRAD, got=value[:40],
        )
    return value != "1" and is_on_cpu(inputs)
