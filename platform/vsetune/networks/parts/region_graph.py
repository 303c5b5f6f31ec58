"""Reasoning over a graph of regions (VSRN; Li et al. 2019, section 3.2).

Letters of shapes: N images, R regions, D dimensions.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from vsetune.networks.network_base import at_least_float32, unit_length
from vsetune.networks.parts.batch_normalization import SharedBatchNorm, normalize_rows
from vsetune.networks.parts.packing import RealParts


class RegionGraph(nn.Module):
    """One block: e_a + BN(W y_a) with y_a = sum over b of (theta(e_a) . phi(e_b) / R) g(e_b).

    `paper`: no division by R, no BN. Scale and shift of BN, or W itself, start at 0: a new block returns its input.
    """

    def __init__(self, size: int, *, variant: str) -> None:
        super().__init__()
        self.theta, self.phi, self.g, self.w = (nn.Linear(size, size) for _ in range(4))
        self.norm = SharedBatchNorm(size) if variant == "released" else None
        last = self.norm if self.norm is not None else self.w
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def forward(self, regions: Tensor, real: RealParts) -> Tensor:
        """(N, R, D). regions: (N, R, D), zero where padded, and so is the result."""
        affinity = self.theta(regions) @ self.phi(regions).transpose(1, 2)
        if self.norm is not None:
            affinity = affinity / real.mask.sum(dim=1)[:, None, None]
        gathered = affinity @ (self.g(regions) * real.mask[..., None])
        rows = at_least_float32(self.w(real.rows(gathered)))
        if self.norm is not None:
            rows = normalize_rows(self.norm, rows)
        return regions + real.placed(rows)


def normalized_regions(regions: Tensor, over: str, unit: Callable[[Tensor], Tensor] = unit_length) -> Tensor:
    """(N, R, D) regions of unit length each (`feature`), or each channel of an image of unit length across its regions.

    `channel_over_regions` is the effect of VSRN's code on a (N, R, D) tensor, with a helper made for (N, D). Padded
    regions are zero and change nothing. unit: function that normalises vectors to unit length; `unit_length` leaves a
    zero vector zero.
    """
    if over == "feature":
        return unit(regions)
    return unit(regions.transpose(1, 2)).transpose(1, 2)
