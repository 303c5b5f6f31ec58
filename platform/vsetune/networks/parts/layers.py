"""Small layers: linear maps with the papers' initialisation, and vectors of unit length."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


def xavier_linear(inputs: int, outputs: int, *, bias: bool = True) -> nn.Linear:
    """Xavier-uniform weights, zero bias."""
    linear = nn.Linear(inputs, outputs, bias=bias)
    nn.init.xavier_uniform_(linear.weight)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear


def unit_by_hand(vectors: Tensor, shortest: float) -> Tensor:
    """Vectors along the last axis divided by their length; those not longer than `shortest` become zero and get no
    gradient, one with a NaN or of infinite length is NaN. Differentiable once."""
    return _UnitLength.apply(vectors, shortest)  # type: ignore[no-any-return, no-untyped-call]


def lengths(vectors: Tensor) -> Tensor:
    """(..., 1) lengths along the last axis; NaN in place of infinity, because division by infinity would turn vectors
    with finite values into zeros, and the failure would stay hidden."""
    norms: Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return norms.masked_fill(norms.isinf(), torch.nan)


class _UnitLength(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vectors: Tensor, shortest: float) -> Tensor:
        norms = lengths(vectors)
        is_zero = norms <= shortest
        ctx.is_zero = is_zero if bool(is_zero.any()) else None
        unit = _without(vectors / norms, ctx.is_zero)
        ctx.save_for_backward(unit, norms)
        return unit

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        unit, norms = ctx.saved_tensors
        along = torch.linalg.vecdot(gradient, unit)[..., None]
        return _without(torch.addcmul(gradient, unit, along, value=-1).div_(norms), ctx.is_zero), None


def _without(values: Tensor, is_zero: Tensor | None) -> Tensor:
    return values if is_zero is None else values.masked_fill_(is_zero, 0.0)
