"""Batch normalisation of rows, whose number may be one, and which several processes may encode together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

from vsetune.networks.network_base import at_least_float32

Total = Callable[[Tensor], Tensor]
"""The sum of the processes' tensors of one shape, in every process; the gradient is summed too."""


class SharedBatchNorm(nn.BatchNorm1d):
    """nn.BatchNorm1d for `normalize_rows`, whose statistics in training are those of the whole batch, also where each
    process encodes a share of it. Only for rows that do not depend on the other items of a batch, such as its padding.

    total: None in one process.
    """

    total: Total | None = None


@contextmanager
def statistics_of_all(network: nn.Module, total: Total) -> Iterator[None]:
    """Make the `SharedBatchNorm`s of a network count the items of all processes."""
    norms = [module for module in network.modules() if isinstance(module, SharedBatchNorm)]
    for norm in norms:
        norm.total = total
    try:
        yield
    finally:
        for norm in norms:
            norm.total = None


def normalize_rows(norm: nn.BatchNorm1d, rows: Tensor) -> Tensor:
    """(rows, D) normalised by `norm`, in float32 or wider. One row has no variance: it is normalised as in evaluation.

    In training the rows are read as one image of D channels. For (rows, D) torch sums each channel in single precision
    on a CPU, row by row, which is 4 to 25 times less exact than its sum over channels of an image.
    """
    rows = at_least_float32(rows)
    if norm.training and isinstance(norm, SharedBatchNorm) and norm.total is not None:
        return _normalized_together(norm, rows, norm.total)
    if not norm.training or len(rows) == 1:
        return functional.batch_norm(
            rows, norm.running_mean, norm.running_var, norm.weight, norm.bias, training=False, eps=norm.eps
        )
    count_batch(norm)
    normal = functional.batch_norm(
        rows.T[None], norm.running_mean, norm.running_var, norm.weight, norm.bias, training=True,
        momentum=norm.momentum or 0.0, eps=norm.eps,
    )
    return normal[0].T


def _normalized_together(norm: SharedBatchNorm, rows: Tensor, total: Total) -> Tensor:
    """By mean and variance of the rows of all processes. No number is read from the device."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    sums = total(torch.cat((rows.sum(dim=0), rows.new_tensor([len(rows)]))))
    count = sums[-1].detach()
    mean = sums[:-1] / count
    variance = total((rows - mean).square().sum(dim=0)) / count
    has_variance = count > 1
    mean = torch.where(has_variance, mean, norm.running_mean)
    normal = (rows - mean) * (torch.where(has_variance, variance, norm.running_var) + norm.eps).rsqrt()
    with torch.no_grad():
        momentum = has_variance.to(norm.running_mean.dtype) * (norm.momentum or 0.0)
        unbiased = variance * count / (count - 1).clamp_min(1)
        norm.running_mean.lerp_(mean.to(norm.running_mean.dtype), momentum)
        norm.running_var.lerp_(unbiased.to(norm.running_var.dtype), momentum)
        norm.num_batches_tracked.add_(has_variance)
    return normal * norm.weight + norm.bias


@torch.no_grad()
def count_batch(norm: nn.BatchNorm1d, batches: int = 1) -> None:
    """The module's own counter of how often its running statistics have moved."""
    assert norm.num_batches_tracked is not None
    norm.num_batches_tracked.add_(batches)
