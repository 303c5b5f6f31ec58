"""The products of a training step alone: what is left of its time when everything else goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import flop_registry

from gpu.timing import MORE_PRODUCTS, queued_seconds


class KeptProducts(TorchDispatchMode):
    """Inside, keeps every product of matrices, convolution and recurrent layer of a GPU with what it was given.

    calls: in order. The tensors stay as they are, not copied: they keep their memory until this object goes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func.overloadpacket in flop_registry or func.overloadpacket in MORE_PRODUCTS:
            kept_args, kept_kwargs = tree_map_only(Tensor, Tensor.detach, (args, kwargs or {}))
            self.calls.append((func, kept_args, kept_kwargs))
        return made

    def run(self) -> None:
        """Once more, one after the other; what they give is thrown away."""
        with torch.no_grad():
            for func, args, kwargs in self.calls:
                func(*args, **kwargs)


def alone_seconds(step: Callable[[], object], device: torch.device, *, repeats: int) -> float:
    """Seconds of the products of one step, run alone: same shapes, types and kernels, nothing between them.

    step: takes one training step; its products, forward and backward, are those that are timed. The precision of
    float32 products is the caller's.
    """
    kept = KeptProducts()
    with kept:
        step()
    return queued_seconds(lambda _: kept.run(), device, repeats=repeats)
