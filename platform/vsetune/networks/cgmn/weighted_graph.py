"""Graph convolution along given edges, and the edges of CGMN: overlapping boxes, neighbouring cells, weights.

Letters of shapes: n graphs, P nodes of the largest, D dimensions. Nodes are zero where padded.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vsetune.networks.network_base import unit_length
from vsetune.networks.parts.batch_normalization import normalize_rows
from vsetune.networks.parts.real_parts import RealParts
from vsetune.networks.parts.unit_vectors import lengths

_SHORTEST = 1e-8


class WeightedGraph(nn.Module):
    """One block: x_a + BN(W y_a + b) with y_a = sum over b of w_ab g(x_b). A new block returns its input."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.g, self.w = nn.Linear(size, size), nn.Linear(size, size)
        self.norm = nn.BatchNorm1d(size)
        nn.init.zeros_(self.norm.weight)
        nn.init.zeros_(self.norm.bias)

    def forward(self, nodes: Tensor, weights: Tensor, mask: Tensor, *, counted: RealParts) -> Tensor:
        """(n, P, D), zero where padded. weights: (n, P, P), row a gathers from column b, 0 in padded columns.

        mask: (n, P) bool, True for real nodes. counted: the nodes that BN computes its statistics from: the real ones,
        or all; it includes the mask.
        """
        gathered = weights.to(nodes.dtype) @ self.g(nodes)
        rows = normalize_rows(self.norm, self.w(counted.rows(gathered)))
        return nodes + counted.placed(rows) * mask[..., None]


def released_weights(nodes: Tensor, *, is_guarded: bool = True) -> Tensor:
    """(n, P, P) x_a x_b / |x_b|^2, lengths at least 1e-8; 0 where x_b is zero. is_guarded: and no gradient there, where
    the released code has one of 1e16. nodes: float32 or wider."""
    norms = lengths(nodes)
    scaled = nodes / norms.clamp_min(_SHORTEST).square()
    if is_guarded:
        scaled = torch.where(norms <= _SHORTEST, nodes.new_zeros(()), scaled)
    with torch.autocast(nodes.device.type, enabled=False):
        return nodes @ scaled.mT


def cosine_weights(nodes: Tensor) -> Tensor:
    """(n, P, P) cosines of the nodes; 0 with a zero node. nodes: float32 or wider."""
    unit = unit_length(nodes)
    with torch.autocast(nodes.device.type, enabled=False):
        return unit @ unit.mT


def overlapping(boxes: Tensor, threshold: float) -> Tensor:
    """(n, R, R) bool: intersection over union of two boxes is at least the threshold; True on the diagonal.

    boxes: (n, R, 4) x1, y1, x2, y2. A box without area overlaps no other.
    """
    low = torch.maximum(boxes[:, :, None, :2], boxes[:, None, :, :2])
    high = torch.minimum(boxes[:, :, None, 2:], boxes[:, None, :, 2:])
    shared = (high - low).clamp_min(0).prod(dim=-1)
    areas = (boxes[..., 2:] - boxes[..., :2]).prod(dim=-1)
    union = areas[:, :, None] + areas[:, None, :] - shared
    overlap = torch.where(union > 0, shared / union, 0.0)
    return (overlap >= threshold) | torch.eye(boxes.shape[1], dtype=torch.bool, device=boxes.device)


def neighbouring(side: int, device: torch.device) -> Tensor:
    """(side^2, side^2) bool: two cells of a square grid, row by row, touch at an edge or a corner, or are the same."""
    cells = torch.arange(side * side, device=device)
    rows, columns = cells // side, cells % side
    is_near = (rows[:, None] - rows).abs() <= 1
    return is_near & ((columns[:, None] - columns).abs() <= 1)
