"""Batch normalisation of rows, whose number may be one."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from vsetune.networks.network import at_least_float32


def normalize_rows(norm: nn.BatchNorm1d, rows: Tensor) -> Tensor:
    """(rows, D) as `norm` does it, in float32 or wider. One row has no variance: it is normalised as in evaluation."""
    return functional.batch_norm(
        at_least_float32(rows), norm.running_mean, norm.running_var, norm.weight, norm.bias,
        training=norm.training and len(rows) > 1, momentum=norm.momentum or 0.0, eps=norm.eps,
    )
