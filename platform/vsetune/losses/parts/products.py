"""Products and distances of embeddings in float32 or wider."""

from __future__ import annotations

import torch
from torch import Tensor

from vsetune.losses.loss_base import at_least_float32


def dot_products(x: Tensor, y: Tensor) -> Tensor:
    """(..., n, m) dot products of the rows of x (..., n, D) and y (..., m, D), never in half precision."""
    with torch.autocast(x.device.type, enabled=False):
        return at_least_float32(x) @ at_least_float32(y).mT


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """(n, m) squared Euclidean distances of the rows of x (n, D) and y (m, D), by one product; never negative.

    Values within rounding error of 0 are exactly 0 and have no gradient, so that a root may follow; a NaN stays.
    """
    x, y = at_least_float32(x), at_least_float32(y)
    lengths = (x * x).sum(dim=1)[:, None] + (y * y).sum(dim=1)[None, :]
    squares = lengths - 2 * dot_products(x, y)
    rounding = 2 * torch.finfo(squares.dtype).eps
    return squares.masked_fill(squares.detach() <= rounding * lengths.detach(), 0.0)


def clamped_squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """As `squared_distances`, but noise above 0 stays: half the passes over (n, m), for thousands of centres.

    For squares that are compared with a threshold; under a root the noise would become a gradient. x and y: float32 or
    wider, outside autocast.
    """
    without_x = torch.addmm(y.square().sum(dim=1), x, y.T, alpha=-2)
    return (without_x + x.square().sum(dim=1, keepdim=True)).clamp(min=0)
