"""Small layers: linear maps with the papers' initialisation, and vectors of unit length."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def xavier_linear(inputs: int, outputs: int, *, bias: bool = True) -> nn.Linear:
    """Xavier-uniform weights, zero bias."""
    linear = nn.Linear(inputs, outputs, bias=bias)
    nn.init.xavier_uniform_(linear.weight)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear


def lengths(vectors: Tensor) -> Tensor:
    """(..., 1) lengths along the last axis; NaN in place of infinity, because division by infinity would turn vectors
    with finite values into zeros, and the failure would stay hidden."""
    norms: Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return norms.masked_fill(norms.isinf(), torch.nan)
