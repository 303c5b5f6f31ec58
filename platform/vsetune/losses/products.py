"""Products and distances of embeddings, in float32 or wider whatever the network runs in."""

from __future__ import annotations

import torch
from torch import Tensor

from vsetune.losses.base import at_least_float32


def dot_products(x: Tensor, y: Tensor) -> Tensor:
    """(..., n, m) dot products of the rows of x (..., n, D) and y (..., m, D), never in half precision."""
    with torch.autocast(x.device.type, enabled=False):
        return at_least_float32(x) @ at_least_float32(y).mT


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """(n, m) squared Euclidean distances of the rows of x (n, D) and y (m, D), by one product; never negative.

    What rounding cannot tell from 0 is exactly 0 and has no gradient; a NaN stays.
    """
    x, y = at_least_float32(x), at_least_float32(y)
    lengths = (x * x).sum(dim=1)[:, None] + (y * y).sum(dim=1)[None, :]
    squares = lengths - 2 * dot_products(x, y)
    rounding = 2 * torch.finfo(squares.dtype).eps
    return squares.masked_fill(squares.detach() <= rounding * lengths.detach(), 0.0)
