"""Batch normalisation of rows, whose number may be one."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from vsetune.networks.network_base import at_least_float32


def normalize_rows(norm: nn.BatchNorm1d, rows: Tensor) -> Tensor:
    """(rows, D) normalised by `norm`, in float32 or wider. One row has no variance: it is normalised as in evaluation.

    In training the rows are read as one image of D channels. For (rows, D) torch sums each channel in single precision
    on a CPU, row by row, which is 4 to 25 times less exact than its sum over channels of an image.
    """
    rows = at_least_float32(rows)
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


@torch.no_grad()
def count_batch(norm: nn.BatchNorm1d, batches: int = 1) -> None:
    """The module's own counter of how often its running statistics have moved."""
    assert norm.num_batches_tracked is not None
    norm.num_batches_tracked.add_(batches)
