"""Matrix products of float32 on a CPU, by oneDNN where torch would take MKL and that is slower (decision 0050).

torch hands products of float32 to MKL, which uses half of an AVX-512 unit that is not Intel's. oneDNN, which torch
brings along for convolutions, does not ask whose processor it is: 200 instead of 90 GFLOP/s of one core of a Zen 5. On
Intel's own MKL is the faster one, 215 against 175 to 205 of one core of a Xeon of 2024, but for a weight that is laid
out once for many products. Results are equal up to rounding. Small products, other types and devices, and autocast stay
with torch.

Letters of shapes: n rows, k numbers of a row, m columns of a product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, reduce
from pathlib import Path
from platform import processor
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from vsetune.networks.parts.gradients import hand_derived
from vsetune.networks.parts.network_devices import is_on_cpu

_FEWEST = 2**20
"""Multiplications of a product that pays: below, oneDNN's call costs more than it saves."""
_SHORTEST = 8
"""Rows, columns and numbers of a row that a product needs on top; narrower ones are no products of matrices."""
_SMALLEST_PACKED, _FEWEST_TIMES = 2**19, 8
"""Numbers of a weight that is laid out once for several products, and how many must follow: it takes as long as some
five of them gain."""
LONGEST_SUM, LONGEST_FORWARD_SUM = 1024, 256
"""Numbers that oneDNN adds up in one product. Its error grows with them, MKL's does not: 2.3 times MKL's of 2,048, 1.6
times of 1,024, 1.2 times of 256. Longer sums are added up in parts, which takes time: of a forward pass, whose errors
what follows multiplies, shorter ones (decision 0050)."""

_TOLD_IN = Path("/proc/cpuinfo")
"""Where Linux tells of the processor."""


def linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """(..., m): `torch.nn.functional.linear`, differentiable once. inputs: (..., k); weight: (m, k); bias: (m,)."""
    if not _pays(inputs, weight, inputs.numel() // max(1, inputs.shape[-1])) or not hand_derived(inputs):
        return functional.linear(inputs, weight, bias)
    return _Linear.apply(inputs, weight, bias)  # type: ignore[no-any-return, no-untyped-call]


def product(
    left: Tensor, right: Tensor, bias: Tensor | None = None, *, longest_sum: int = LONGEST_SUM
) -> Tensor:
    """(n, m): left @ right + bias, without gradient: for gradients written out by hand.

    left: (n, k); right: (k, m), itself or its transpose contiguous, or else it is copied; bias: (m,).
    """
    if not _pays(left, right.T, len(left)):
        return left @ right if bias is None else torch.addmm(bias, left, right)
    parts = _parts(len(right), longest_sum)
    return _by_onednn(left, [(part, _as_it_may_lie(right.T[:, part])) for part in parts], bias)


def products_with(weight: Tensor, bias: Tensor | None = None, *, times: int) -> Callable[[Tensor], Tensor]:
    """From (n, k) rows to (n, m): rows @ weight.T + bias, without gradient, that many times with the same weight.

    weight: (m, k), itself or its transpose contiguous; bias: (m,). Where it pays the weight is laid out once as oneDNN
    reads it: few rows with a large weight otherwise wait for its being laid out each time.
    """
    if not (times >= _FEWEST_TIMES and weight.numel() >= _SMALLEST_PACKED and _may_use_onednn(weight)):
        return lambda rows: product(rows, weight.T, bias)
    lay_out = torch.ops.mkldnn._reorder_linear_weight
    packed = [(part, lay_out(weight[:, part].contiguous())) for part in _parts(weight.shape[1], LONGEST_SUM)]
    return lambda rows: _by_onednn(rows, packed, bias)


def _parts(numbers: int, longest: int) -> list[slice]:
    """The numbers of a row, so many in a part at most."""
    step = math.ceil(numbers / math.ceil(numbers / longest))
    return [slice(first, first + step) for first in range(0, numbers, step)]


def _as_it_may_lie(weight: Tensor) -> Tensor:
    """The weight, copied where oneDNN would take a hundred times as long with it."""
    return weight if weight.is_contiguous() or weight.T.is_contiguous() else weight.contiguous()


def _by_onednn(rows: Tensor, weights: Sequence[tuple[slice, Tensor]], bias: Tensor | None) -> Tensor:
    """weights: which numbers of a row, and what they are multiplied with, (m, so many)."""
    products = (
        torch.ops.mkldnn._linear_pointwise(rows[:, part], weight, bias if part.start == 0 else None, "none", [], "")
        for part, weight in weights
    )
    found: Tensor = reduce(Tensor.add_, products)
    return found


def _pays(inputs: Tensor, weight: Tensor, rows: int) -> bool:
    """Whether oneDNN multiplies (rows, k) inputs with a weight (m, k)."""
    columns, numbers = weight.shape
    return (
        not _is_intels()
        and inputs.dtype == torch.float32
        and rows * columns * numbers >= _FEWEST
        and min(rows, columns, numbers) >= _SHORTEST
        and inputs.shape[-1] == numbers  # or else torch says what is wrong
        and is_on_cpu(inputs) and _may_use_onednn(weight)
    )


def _may_use_onednn(weight: Tensor) -> bool:
    return (
        weight.dtype == torch.float32 and is_on_cpu(weight) and _has_onednn()
        and bool(torch.backends.mkldnn.enabled)
        and not torch.is_autocast_enabled("cpu")
    )


@cache
def _has_onednn() -> bool:
    """Of processors without AVX-512 MKL uses all there is."""
    is_there: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return is_there and torch.backends.cpu.get_cpu_capability() == "AVX512"


@cache
def _is_intels() -> bool:
    """Whether the processor says that it is of Intel's make."""
    return "GenuineIntel" in (_TOLD_IN.read_text() if _TOLD_IN.exists() else processor())


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        rows = inputs.flatten(end_dim=-2)
        return product(rows, weight.T, bias, longest_sum=LONGEST_FORWARD_SUM).view(*inputs.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight = ctx.saved_tensors
        of_inputs, of_weight, of_bias = ctx.needs_input_grad
        rows = gradient.flatten(end_dim=-2)
        return (
            product(rows, weight).view_as(inputs) if of_inputs else None,
            product(rows.T, inputs.flatten(end_dim=-2)) if of_weight else None,
            rows.sum(dim=0) if of_bias else None,
        )
