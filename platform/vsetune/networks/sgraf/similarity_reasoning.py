"""From similarity vectors to one score (SGRAF, Diao et al. 2021): graph reasoning, attention filtration."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from vsetune.networks.network_base import at_least_float32, unit_length
from vsetune.networks.parts.batch_normalization import SharedBatchNorm, Total, count_batch
from vsetune.networks.parts.layers import xavier_linear
from vsetune.networks.parts.network_devices import numbers_at_once

Nodes = tuple[Tensor, Tensor]
"""Of a block: (N, C, P, S) similarity vectors of unit length, (C, P) bool, True for real ones."""

_MOST_KEPT = 2**29
"""Numbers (2 GiB of float32) that graph reasoning stores for its backward pass; the excess is computed twice."""


class Reasoning(nn.Module, ABC):
    """Scores pairs from their nodes, in (0, 1)."""

    @abstractmethod
    def columns(self, blocks: Iterable[Nodes]) -> list[Tensor]:
        """(N, C) scores of every block. blocks: of one batch, longest captions first; made one at a time."""


class GraphReasoning(Reasoning):
    """SGR: `steps` times N <- ReLU((A N) W_r), A = softmax of (N W_q)(N W_k)' by rows; node 0 is read."""

    def __init__(self, size: int, steps: int) -> None:
        super().__init__()
        self.steps = nn.ModuleList(GraphStep(size) for _ in range(steps))
        self.score = xavier_linear(size, 1)

    def columns(self, blocks: Iterable[Nodes]) -> list[Tensor]:
        """Keeps 3 numbers per number of the nodes and step but the last, up to _MOST_KEPT."""
        columns, kept = [], 0
        for nodes, is_node in blocks:
            kept += 3 * (len(self.steps) - 1) * nodes.numel()
            if kept > _MOST_KEPT and torch.is_grad_enabled():
                columns.append(checkpoint(self.forward, nodes, is_node, use_reentrant=False))
            else:
                columns.append(self.forward(nodes, is_node))
        return columns

    def forward(self, nodes: Tensor, is_node: Tensor) -> Tensor:
        """(N, C). Of the last step only node 0 is computed, as nothing else is read."""
        last = len(self.steps) - 1
        for number, step in enumerate(self.steps):
            nodes = step(nodes, is_node, readers=1 if number == last else nodes.shape[2])
        scores: Tensor = self.score(nodes[:, :, 0]).squeeze(-1).sigmoid()
        return scores


class GraphStep(nn.Module):
    """One step of graph reasoning."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.query, self.key, self.out = (xavier_linear(size, size) for _ in range(3))

    def forward(self, nodes: Tensor, is_node: Tensor, *, readers: int) -> Tensor:
        """(N, C, readers, S): the first `readers` nodes after the step."""
        edges = self.edges(nodes, is_node, readers=readers)
        gathered = edges @ nodes.flatten(end_dim=1)
        out: Tensor = self.out(gathered).relu()
        return out.view(*nodes.shape[:2], readers, -1)

    def edges(self, nodes: Tensor, is_node: Tensor, *, readers: int) -> Tensor:
        """(N * C, readers, P): rows sum to 1, 0 for padded nodes.

        (W_q a + b_q)'(W_k b + b_k) = (W_k'W_q a + W_k'b_q)'b + terms that depend on a alone, among them all of b_k.
        These shift a whole row, which does not change its softmax. So one map of the nodes replaces two.
        """
        matrix = self.key.weight.T @ self.query.weight
        # b_k at weight 0: it gets the gradient it has, zero, instead of none
        shift = self.key.weight.T @ self.query.bias + 0 * self.key.bias
        reading = functional.linear(nodes[:, :, :readers], matrix, shift)
        products = reading.flatten(end_dim=1) @ nodes.flatten(end_dim=1).mT
        by_pair = products.view(*nodes.shape[:2], readers, -1)
        return by_pair.masked_fill(~is_node[:, None], float("-inf")).softmax(dim=-1).view_as(products)


class AttentionFiltration(Reasoning):
    """SAF: z = n(sum_p g_p n_p / sum_p g_p), gates g_p = sigmoid(BatchNorm(w'n_p + b)).

    The released loop calls the batch normalisation once per caption, so in training each caption is normalised over its
    own N * P values; `pooled` takes all pairs of the batch together. In evaluation both use the running statistics.
    """

    def __init__(
        self, size: int, *, statistics: Literal["per_caption", "pooled"] = "per_caption", normalize: bool = True,
        added: float = 0.0,
    ) -> None:
        super().__init__()
        self._added = added
        self._statistics = statistics
        self._normalize = normalize
        self.gate = xavier_linear(size, 1)
        self.gate_norm = nn.BatchNorm1d(1)
        self.score = xavier_linear(size, 1)

    def columns(self, blocks: Iterable[Nodes]) -> list[Tensor]:
        """Running statistics move once per caption, longest first (or once for all, if pooled)."""
        if not self.training:
            norm = self.gate_norm
            assert norm.running_mean is not None
            assert norm.running_var is not None
            moments = (norm.running_mean, norm.running_var)
            return [self._scores(nodes, is_node, self._signals(nodes), *moments) for nodes, is_node in blocks]
        if self._statistics == "pooled":
            return self._pooled_columns(list(blocks))
        columns, seen = [], []
        for nodes, is_node in blocks:
            signals = self._signals(nodes)
            counts, means, variances = masked_moments(signals, is_node, (0, 2))
            columns.append(self._scores(nodes, is_node, signals, means, variances))
            seen.append(torch.stack((means.flatten(), unbiased(variances, counts).flatten())).detach())
        self._move(torch.cat(seen, dim=1))
        return columns

    def gates(self, signals: Tensor, is_node: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """(N, C, P): sum to 1, 0 for padded nodes."""
        norm = self.gate_norm
        normal = (signals - mean) * (variance + norm.eps).rsqrt() * norm.weight + norm.bias
        gates = normal.sigmoid().masked_fill(~is_node, 0.0)
        return gates / (gates.sum(dim=-1, keepdim=True) + 1e-8)

    def _signals(self, nodes: Tensor) -> Tensor:
        """(N, C, P)."""
        signals: Tensor = self.gate(nodes).squeeze(-1)
        return signals

    def _scores(self, nodes: Tensor, is_node: Tensor, signals: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        filtered = (self.gates(signals, is_node, mean, variance)[:, :, None] @ nodes).squeeze(2)
        if self._normalize:
            filtered = unit_length(filtered, added=self._added)
        scores: Tensor = self.score(filtered).squeeze(-1).sigmoid()
        return scores

    def _pooled_columns(self, blocks: list[Nodes]) -> list[Tensor]:
        signals = [self._signals(nodes) for nodes, _ in blocks]
        masks = [is_node.expand_as(values) for values, (_, is_node) in zip(signals, blocks, strict=True)]
        flat = torch.cat([values[mask] for values, mask in zip(signals, masks, strict=True)])  # a GPU is waited for
        mean, variance = flat.mean(), flat.var(unbiased=False)
        self._move(torch.stack((mean, unbiased(variance, flat.new_tensor(len(flat))))).detach()[:, None])
        return [
            self._scores(nodes, is_node, values, mean, variance)
            for (nodes, is_node), values in zip(blocks, signals, strict=True)
        ]

    def _move(self, moments: Tensor) -> None:
        """Running statistics after updates in this order. moments: (2, updates) means and unbiased variances.

        r <- (1 - m) r + m x, U times over, is (1 - m)^U r + m sum_u (1 - m)^(U - 1 - u) x_u.
        """
        norm, updates = self.gate_norm, moments.shape[1]
        assert norm.running_mean is not None
        assert norm.running_var is not None
        momentum = norm.momentum or 0.0
        steps_after = torch.arange(updates - 1, -1, -1, device=moments.device, dtype=moments.dtype)
        added = momentum * (moments * (1 - momentum) ** steps_after).sum(dim=1)
        for running, value in zip((norm.running_mean, norm.running_var), added, strict=True):
            running.mul_((1 - momentum) ** updates).add_(value)
        count_batch(norm, updates)


# of a tile's differences, a matter of memory and speed only: 4 MiB of float32 on a CPU, 512 MiB on a GPU
_NUMBERS_PER_TILE_CPU, _NUMBERS_PER_TILE = 2**20, 2**27


def similarity_vectors(
    weights: Tensor, regions: Tensor, words: Tensor, matrix: Tensor, bias: Tensor | None, *, is_kept: bool = True,
    added: float = 0.0,
) -> Tensor:
    """(N, T, S) of unit length, or 0: n(matrix (k - w)^2 + bias), k_nt = sum_r weights_ntr regions_nr, squares by
    element.

    weights: (N, T, R); regions: (N, R, D); words: (T, D), or (N, T, D) where each image has words of its own; matrix:
    (S, D); bias: (S,) or None. added: as of `unit_length`. is_kept: or else all is computed twice, which makes a step
    1.3 times as long.
    """
    numbers = numbers_at_once(words, cpu=_NUMBERS_PER_TILE_CPU, gpu=_NUMBERS_PER_TILE)
    images = max(1, numbers // max(1, words.shape[-2] * words.shape[-1]))
    theirs = torch.split(words, images) if words.ndim == 3 else [words] * math.ceil(len(weights) / images)
    tiles = [
        (*tile, matrix, bias, added)
        for tile in zip(torch.split(weights, images), torch.split(regions, images), theirs, strict=True)
    ]
    if is_kept:
        return torch.cat([_vectors(*tile) for tile in tiles])
    return torch.cat([checkpoint(_vectors, *tile, use_reentrant=False, preserve_rng_state=False) for tile in tiles])


def kept_numbers(images: int, words: int, size: int) -> int:
    """Numbers that `similarity_vectors` stores, for D = size."""
    return 2 * images * words * size


def _vectors(
    weights: Tensor, regions: Tensor, words: Tensor, matrix: Tensor, bias: Tensor | None, added: float
) -> Tensor:
    """(n, T, S)."""
    differences = torch.baddbmm(words.expand(len(weights), *words.shape[-2:]), weights, regions, beta=-1)
    return unit_length(functional.linear(differences.square(), matrix, bias), added=added)


def masked_moments(
    values: Tensor, mask: Tensor, dims: tuple[int, ...], *, total: Total | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Count, mean and biased variance of the real values along `dims` (kept, of size 1). Without any: all zero.

    mask: bool, expandable to the shape of values. total: of the values of all processes.
    """
    over_all = total or (lambda own: own)
    mask = mask.expand_as(values)
    counts = over_all(mask.sum(dim=dims, keepdim=True))
    divisor = counts.clamp_min(1)
    means = over_all(values.masked_fill(~mask, 0.0).sum(dim=dims, keepdim=True)) / divisor
    squares = (values - means).masked_fill(~mask, 0.0).square().sum(dim=dims, keepdim=True)
    variances = over_all(squares) / divisor
    return counts, means, variances


def unbiased(variances: Tensor, counts: Tensor) -> Tensor:
    """n / (n - 1) times the biased variance, as in running statistics."""
    return variances * counts / (counts - 1).clamp_min(1)


def normalize_regions(norm: SharedBatchNorm, values: Tensor, mask: Tensor) -> Tensor:
    """(N, R, D), region index r by its own statistics over images and dimensions; those of padded regions left out.

    mask: (N, R) bool. With all regions real it is `norm` itself, which takes region indices for channels.
    """
    values, regions = at_least_float32(values), values.shape[1]
    assert norm.running_mean is not None
    assert norm.running_var is not None
    means, variances = norm.running_mean[:regions, None], norm.running_var[:regions, None]
    if norm.training:
        counts, means, variances = masked_moments(values, mask[..., None], (0, 2), total=norm.total)
        counts, means, variances = counts[0], means[0], variances[0]
        with torch.no_grad():
            # an index that no image of the batch has keeps its statistics; 0.1 in the precision of the statistics
            momentum = (counts[:, 0] > 1).to(norm.running_mean.dtype) * (norm.momentum or 0.0)
            count_batch(norm)
            norm.running_mean[:regions].lerp_(means[:, 0], momentum)
            norm.running_var[:regions].lerp_(unbiased(variances, counts)[:, 0], momentum)
    scale = norm.weight[:regions, None] * (variances + norm.eps).rsqrt()
    return (values - means) * scale + norm.bias[:regions, None]
