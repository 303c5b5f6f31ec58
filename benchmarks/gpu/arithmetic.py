"""Two ways to steer what PyTorch computes: numbers drawn alike everywhere, and products of coarser numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

DRAWS = frozenset({
    "bernoulli", "bernoulli_", "native_dropout", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like",
    "randperm", "normal", "normal_", "uniform", "uniform_", "multinomial", "exponential_", "log_normal_",
})
"""Operations that draw numbers and do no more. PyTorch's own tag also names GRUs and attention, for their dropout."""
PRODUCTS = frozenset({
    "mm", "addmm", "addmm_", "bmm", "baddbmm", "baddbmm_", "convolution", "convolution_backward", "mv", "addmv", "dot",
})
FLOAT32_BITS = 23
BFLOAT16_BITS = 7


class DrawnOnTheCpu(TorchDispatchMode):
    """Inside, whatever draws random numbers draws them on the CPU in float32 and carries them over.

    Dropped words, masks and samples are then the same on every device and in every precision, and what is left of a
    difference between two curves is arithmetic.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.overloadpacket.__name__ not in DRAWS or kwargs.get("generator") is not None:
            return func(*args, **kwargs)
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        device = torch.device(kwargs.get("device") or (tensors[0].device if tensors else "cpu"))
        wide = kwargs.get("dtype") == torch.float64 or any(tensor.dtype == torch.float64 for tensor in tensors)
        here_args, here_kwargs = tree_map_only(Tensor, _on_the_cpu, (args, kwargs))
        for name, value in (("device", torch.device("cpu")), ("pin_memory", False)):
            if name in here_kwargs:
                here_kwargs[name] = value
        if here_kwargs.get("dtype") == torch.float64:
            here_kwargs["dtype"] = torch.float32
        drawn = func(*here_args, **here_kwargs)
        if func.overloadpacket.__name__.endswith("_"):
            args[0].copy_(drawn)
            return args[0]
        return tree_map_only(Tensor, lambda tensor: _back(tensor, device, wide=wide), drawn)


class CoarseProducts(TorchDispatchMode):
    """Inside, the factors of every product of matrices keep so many bits of their mantissa, as the matrix units of a
    GPU keep them: 10 for TF32, 7 for bfloat16. Sums are float32; with bfloat16 what comes out is rounded as well."""

    def __init__(self, bits: int) -> None:
        super().__init__()
        self._bits = bits

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ not in PRODUCTS:
            return func(*args, **(kwargs or {}))
        in_place = func.overloadpacket.__name__.endswith("_")
        first = args[:1] if in_place else ()
        coarse = tree_map_only(Tensor, lambda tensor: rounded(tensor, self._bits), args[len(first):])
        made = func(*first, *coarse, **(kwargs or {}))
        if in_place or self._bits != BFLOAT16_BITS:
            return made
        return tree_map_only(Tensor, lambda tensor: rounded(tensor, self._bits), made)


def rounded(values: Tensor, bits: int) -> Tensor:
    """float32 numbers to the nearest that have so many bits of mantissa; other types stay."""
    if values.dtype != torch.float32 or bits >= FLOAT32_BITS:
        return values
    dropped = FLOAT32_BITS - bits
    whole = values.contiguous().view(torch.int32)
    near = (whole + (1 << (dropped - 1))) & -(1 << dropped)
    return torch.where(torch.isfinite(values), near.view(torch.float32), values)


def _on_the_cpu(tensor: Tensor) -> Tensor:
    here = tensor.detach().cpu()
    return here.float() if here.dtype == torch.float64 else here.clone()


def _back(tensor: Tensor, device: torch.device, *, wide: bool) -> Tensor:
    there = tensor.to(device)
    return there.double() if wide and there.dtype == torch.float32 else there
