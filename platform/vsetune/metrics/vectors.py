"""Vectors in float32 or wider, and of unit length: one definition for networks, losses and metrics."""

from __future__ import annotations

import torch
from torch import Tensor

_SHORTEST = 1e-8


def at_least_float32(values: Tensor) -> Tensor:
    """The values in float32; float64 stays."""
    return values if values.dtype == torch.float64 else values.float()


def lengths(vectors: Tensor) -> Tensor:
    """(..., 1) lengths along the last axis; NaN in place of infinity, because division by infinity would turn vectors
    with finite values into zeros, and the failure would stay hidden."""
    norms: Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return norms.masked_fill(norms.isinf(), torch.nan)


def unit_length(vectors: Tensor, *, added: float = 0.0) -> Tensor:
    """Vectors along the last axis divided by their L2 norm, float32 or wider; a zero vector stays zero and gets no
    gradient, one with a NaN or of infinite length is NaN.

    added: to every length, as in released code (`norm: released`). A zero vector then receives a gradient of 1 / added,
    and dominates the clipped step.
    """
    vectors = at_least_float32(vectors)
    norms = lengths(vectors)
    if added:
        return vectors / (norms + added)
    return torch.where(norms <= _SHORTEST, vectors.new_zeros(()), vectors / norms.clamp_min(_SHORTEST))
