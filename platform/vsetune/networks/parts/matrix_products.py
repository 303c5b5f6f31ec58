"""Matrix products of float32 on a CPU, by oneDNN where torch would take MKL and that is slower (decision 0050).

torch hands products of float32 to MKL, which uses half of an AVX-512 unit that is not Intel's. oneDNN, which torch
brings along for convolutions, does not ask whose processor it is: 200 instead of 90 GFLOP/s of one core of a Zen 5. On
Intel's own MKL is the faster one, 215 against 175 to 205 of one core of a Xeon of 2024, but for a weight that is laid
out once for many products. Results are equal up to rounding. Small products, other types and devices, and autocast stay
with torch.

Letters of shapes: n rows, k numbers of a row, m columns of a product.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
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

_TOLD_IN = Path("/proc/cpuinfo")
"""Where Linux tells of the processor."""


def linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """(..., m): `torch.nn.functional.linear`, differentiable once. inputs: (..., k); weight: (m, k); bias: (m,)."""
    if not _pays(inputs, weight, inputs.numel() // max(1, inputs.shape[-1])) or not hand_derived(inputs):
        return functional.linear(inputs, weight, bias)
    return _Linear.apply(inputs, weight, bias)  # type: ignore[no-any-return, no-untyped-call]


def product(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """(n, m): left @ right + bias, without gradient: for gradients written out by hand.

    left: (n, k); right: (k, m), itself or its transpose contiguous, or else it is copied; bias: (m,).
    """
    if not _pays(left, right.T, len(left)):
        return left @ right if bias is None else torch.addmm(bias, left, right)
    if not right.is_contiguous() and not right.T.is_contiguous():
        right = right.contiguous()
    return _by_onednn(left, right.T, bias)


def products_with(weight: Tensor, bias: Tensor | None = None, *, times: int) -> Callable[[Tensor], Tensor]:
    """From (n, k) rows to (n, m): rows @ weight.T + bias, without gradient, that many times with the same weight.

    weight: (m, k), itself or its transpose contiguous; bias: (m,). Where it pays the weight is laid out once as oneDNN
    reads it: few rows with a large weight otherwise wait for its being laid out each time.
    """
    if not (times >= _FEWEST_TIMES and weight.numel() >= _SMALLEST_PACKED and _may_use_onednn(weight)):
        return lambda rows: product(rows, weight.T, bias)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())
    return lambda rows: _by_onednn(rows, packed, bias)


def _by_onednn(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    found: Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")
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
        return product(inputs.flatten(end_dim=-2), weight.T, bias).view(*inputs.shape[:-1], -1)

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
