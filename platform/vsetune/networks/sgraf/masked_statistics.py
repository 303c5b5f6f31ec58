"""Batch normalisation where only some values are real. `nn.BatchNorm1d` holds parameters and running statistics."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vsetune.networks.network_base import at_least_float32
from vsetune.networks.parts.batch_normalization import count_batch


def masked_moments(values: Tensor, mask: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """Count, mean and biased variance of the real values along `dims` (kept, of size 1). Without any: all zero.

    mask: bool, expandable to the shape of values.
    """
    mask = mask.expand_as(values)
    counts = mask.sum(dim=dims, keepdim=True)
    divisor = counts.clamp_min(1)
    means = values.masked_fill(~mask, 0.0).sum(dim=dims, keepdim=True) / divisor
    variances = (values - means).masked_fill(~mask, 0.0).square().sum(dim=dims, keepdim=True) / divisor
    return counts, means, variances


def unbiased(variances: Tensor, counts: Tensor) -> Tensor:
    """n / (n - 1) times the biased variance, as in running statistics."""
    return variances * counts / (counts - 1).clamp_min(1)


def normalize_regions(norm: nn.BatchNorm1d, values: Tensor, mask: Tensor) -> Tensor:
    """(N, R, D), region index r by its own statistics over images and dimensions; those of padded regions left out.

    mask: (N, R) bool. With all regions real it is `norm` itself, which takes region indices for channels.
    """
    values, regions = at_least_float32(values), values.shape[1]
    assert norm.running_mean is not None
    assert norm.running_var is not None
    means, variances = norm.running_mean[:regions, None], norm.running_var[:regions, None]
    if norm.training:
        counts, means, variances = masked_moments(values, mask[..., None], (0, 2))
        counts, means, variances = counts[0], means[0], variances[0]
        with torch.no_grad():
            # an index that no image of the batch has keeps its statistics; 0.1 in the precision of the statistics
            momentum = (counts[:, 0] > 1).to(norm.running_mean.dtype) * (norm.momentum or 0.0)
            count_batch(norm)
            norm.running_mean[:regions].lerp_(means[:, 0], momentum)
            norm.running_var[:regions].lerp_(unbiased(variances, counts)[:, 0], momentum)
    scale = norm.weight[:regions, None] * (variances + norm.eps).rsqrt()
    return (values - means) * scale + norm.bias[:regions, None]
