"""Propagates matches along the graphs of an image and of a caption (GSMN; Liu et al. 2020, section 3.3).

Letters of shapes: N images, C captions, R regions, L words, B blocks, K kernels, H = K x F hidden units.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from vsetune.networks.network_base import word_mask

_SMALLEST_VARIANCE = 1e-14


def word_links(words: Tensor, lengths: Tensor, dependencies: Tensor | None, scale: float) -> Tensor:
    """(C, L, L) weights with which word i gathers from word j: softmax of scale x w_i . w_j, 0 where padded.

    words: (C, L, D) unit vectors; lengths: (C,). dependencies: (C, L, L) bool restricts them to the words joined to i,
    and i. The paper multiplies the weights by a learned number per kernel, normalises them by length (sparse) and then
    by their sum: neither step changes their ratios, and the result equals this softmax.
    """
    itself = torch.eye(words.shape[1], dtype=torch.bool, device=words.device)
    is_real = word_mask(lengths, words.shape[1])
    joined = is_real[:, None] & (True if dependencies is None else dependencies)
    logits = (scale * (words @ words.transpose(1, 2))).masked_fill(~(joined | itself), float("-inf"))
    return logits.softmax(dim=-1) * is_real[..., None]


class BoxKernels(nn.Module):
    """Gaussian kernels over distance and direction from one box centre to another."""

    def __init__(self, kernels: int, *, normalized_over: str) -> None:
        super().__init__()
        self._normalized_over = normalized_over
        self.mean_distance = nn.Parameter(torch.empty(kernels).uniform_(0.0, 1.0))
        self.mean_angle = nn.Parameter(torch.empty(kernels).uniform_(-math.pi, math.pi))
        self.width_distance = nn.Parameter(torch.empty(kernels).uniform_(0.0, 1.0))
        self.width_angle = nn.Parameter(torch.empty(kernels).uniform_(0.0, 1.0))

    def forward(self, centres: Tensor, mask: Tensor) -> Tensor:
        """(N, K, R, R) weights, 0 where padded. centres: (N, R, 2) x, y; mask: (N, R) bool, True for real regions.

        Weights of the edge i, j sum to 1 over the kernels (`kernels`), or those of a node over its neighbours j. Taken
        as a softmax of log kernels, which stays finite where all kernels underflow; the reference divides 0 by 0.
        """
        offsets = centres[:, None, :, None] - centres[:, None, None]  # (N, 1, R, R, 2), from j to i
        distance = torch.linalg.vector_norm(offsets, dim=-1)
        angle = torch.atan2(offsets[..., 0], offsets[..., 1])  # from the y axis, as in the reference
        turn = (angle - self.mean_angle[:, None, None]).abs()
        turn = torch.minimum(turn, (2 * math.pi - turn).abs())
        logs: Tensor = -(distance - self.mean_distance[:, None, None]).square() / self._doubled(self.width_distance)
        logs = logs - turn.square() / self._doubled(self.width_angle)
        pairs = mask[:, None, :, None] & mask[:, None, None]
        if self._normalized_over == "neighbours":
            itself = torch.eye(centres.shape[1], dtype=torch.bool, device=centres.device)
            return logs.masked_fill(~(pairs | itself), float("-inf")).softmax(dim=-1) * pairs
        return logs.softmax(dim=1) * pairs

    def _doubled(self, width: Tensor) -> Tensor:
        return 2 * (width.square() + _SMALLEST_VARIANCE)[:, None, None]


class RegionPropagation(nn.Module):
    """x_i = concatenation over kernels k of W_k applied to what node i gathers under kernel k; no bias."""

    def __init__(self, *, blocks: int, kernels: int, hidden_size: int, variant: str) -> None:
        super().__init__()
        self._features = hidden_size // kernels
        self._variant = variant
        self.map = nn.Linear(blocks, hidden_size, bias=False)

    def forward(self, found: Tensor, edges: Tensor) -> Tensor:
        """(N, H, C, R). found: (N, B, C, R) matches of regions; edges: (N, K, R, R), 0 where padded."""
        number, _, captions, regions = found.shape
        # W_k came first and gathering follows: both are linear, and this order is cheaper
        mapped = mapped_features(self.map, found.flatten(2)).view(*edges.shape[:2], -1, regions)  # (N, K, F C, R)
        gathered = mapped * edges.sum(dim=-1)[:, :, None] if self._variant == "released" else mapped @ edges.mT
        return gathered.view(number, -1, captions, regions)

    def of_pairs(self, found: Tensor, edges: Tensor) -> Tensor:
        """(P, R, H). found: (P, R, B), of image p with one caption; edges: (P, K, R, R)."""
        mapped: Tensor = self.map(found).unflatten(-1, (-1, self._features)).transpose(1, 2)  # (P, K, R, F)
        gathered = mapped * edges.sum(dim=-1, keepdim=True) if self._variant == "released" else edges @ mapped
        return gathered.transpose(1, 2).flatten(2)


class WordPropagation(nn.Module):
    """x_i = W times what word i gathers, plus bias; all kernels gather the same (see `word_links`), so W holds all."""

    def __init__(self, *, blocks: int, hidden_size: int) -> None:
        super().__init__()
        self.map = nn.Linear(blocks, hidden_size)

    def forward(self, found: Tensor, links: Tensor | None) -> Tensor:
        """(C, L, H, N). found: (C, L, B, N) matches of words; links: (C, L, L), or None if each keeps its own."""
        if links is not None:
            found = (links @ found.flatten(2)).view_as(found)
        return mapped_features(self.map, found.flatten(0, 1)).view(*found.shape[:2], -1, found.shape[3])

    def of_pairs(self, found: Tensor, links: Tensor | None) -> Tensor:
        """(P, L, H). found: (P, L, B), of caption p with one image; links: (P, L, L), or None."""
        nodes: Tensor = self.map(found if links is None else links @ found)
        return nodes


class NodeScores(nn.Module):
    """Linear, tanh, linear to one number, both weight-normalised."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.inner = weight_norm(nn.Linear(hidden_size, hidden_size))
        self.outer = weight_norm(nn.Linear(hidden_size, 1))

    def forward(self, nodes: Tensor) -> Tensor:
        """(n, X). nodes: (n, H, X)."""
        return mapped_features(self.outer, mapped_features(self.inner, nodes).tanh_()).squeeze(1)

    def of_rows(self, nodes: Tensor) -> Tensor:
        """(...). nodes: (..., H)."""
        scores: Tensor = self.outer(self.inner(nodes).tanh_())
        return scores.squeeze(-1)


def mapped_features(linear: nn.Linear, values: Tensor) -> Tensor:
    """(n, features out, X): the linear map applied to values (n, features in, X), where they lie."""
    weight = linear.weight.expand(len(values), -1, -1)
    if linear.bias is None:
        return torch.bmm(weight, values)
    return torch.baddbmm(linear.bias[:, None], weight, values)
