"""Generalised pooling operator (GPO; Chen et al. 2021, section 4): learned weights over sorted features.

Letters of shapes: N sets, K elements of the longest set, D dimensions, U distinct set sizes.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from vsetune.networks.network_base import at_least_float32
from vsetune.networks.parts.network_devices import beside, is_on_cpu
from vsetune.networks.parts.packing import pack, unpack
from vsetune.networks.parts.recurrence import run_gru

_SOFTNESS = 0.1
_WAVELENGTHS = 10_000.0


class GeneralisedPooling(nn.Module):
    """Pools a set of vectors: each dimension sorted, largest first, then summed with weights theta.

    theta depends on the size of the set alone; (1, 0, ...) is max pooling, equal weights are mean pooling. size: of
    the positional encoding and of the Bi-GRU that turns positions into weights.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self.gru = nn.GRU(size, size, batch_first=True, bidirectional=True)
        self.score = nn.Linear(size, 1, bias=False)

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        """(N, D). features: (N, K, D); mask: (N, K) bool, True for real elements, at least one per set, at any
        position; this waits for a GPU unless the mask is on the host.

        Works in float32 or wider also under autocast: sorting in bfloat16 would make different values equal.
        """
        with torch.autocast(features.device.type, enabled=False):
            here = mask.cpu()
            sizes, row_of = torch.unique(here.sum(dim=1), return_inverse=True)
            weights = self.weights(sizes)[beside(row_of, features)]
            return sum_of_sorted(at_least_float32(features), beside(here, features), weights)

    def weights(self, sizes: Tensor) -> Tensor:
        """(U, largest size) theta of each set size: non-negative, sums to 1, 0 behind the size. sizes: on the host."""
        longest, weight = int(sizes.max()), self.score.weight
        encoding = beside(positional_encoding(longest, self._size).to(weight.dtype), weight)
        states = unpack(run_gru(self.gru, pack(encoding.expand(len(sizes), -1, -1), sizes))[0])
        forward, backward = states.chunk(2, dim=-1)
        scores = self.score((forward + backward) / 2).squeeze(-1)
        is_behind = beside(torch.arange(longest) >= sizes[:, None], scores)
        weights: Tensor = (scores / _SOFTNESS).masked_fill(is_behind, float("-inf")).softmax(dim=-1)
        return weights


def sum_of_sorted(features: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
    """(N, D): sum over k of weights[:, k] times the k-th largest real value of each dimension.

    features: (N, K, D); mask: (N, K) bool; weights: (N, up to K), 0 behind the number of real elements.
    """
    hidden = features.masked_fill(~mask[..., None], float("-inf"))
    # on a CPU sorting along the last axis is faster than along the middle one, the copy included
    ranked = _largest_first(hidden.transpose(1, 2).contiguous())[..., : weights.shape[1]]
    is_behind = torch.arange(weights.shape[1], device=mask.device) >= mask.sum(dim=1, keepdim=True)
    ranked = ranked.masked_fill(is_behind[:, None], 0.0)
    return (ranked @ weights[..., None]).squeeze(-1)


def _largest_first(values: Tensor) -> Tensor:
    """Each row sorted, largest first. On a CPU numpy ranks rows of some dozen numbers five times as fast as torch."""
    if not is_on_cpu(values):
        return values.sort(dim=-1, descending=True).values
    order = torch.from_numpy(np.argsort(values.detach().numpy(), axis=-1))
    return values.gather(-1, order.flip(-1))


def positional_encoding(positions: int, size: int) -> Tensor:
    """(positions, size) float64: sine in even, cosine in odd columns, wavelengths up to 10,000 positions."""
    frequencies = torch.exp(torch.arange(0, size, 2, dtype=torch.float64) * (-math.log(_WAVELENGTHS) / size))
    steps = torch.arange(positions)[:, None] * frequencies
    return torch.stack((steps.sin(), steps.cos()), dim=-1).flatten(start_dim=1)
