"""What tests of losses compute again and again: gradients, unit vectors, candidates without a memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import vsetune
from vsetune.losses.loss_classes import NamedLoss
from vsetune.losses.parts.pairing import Candidates, Pools

LOSS_CLASSES: dict[str, type[NamedLoss]] = {
    each.component: each for each in (getattr(vsetune.losses, name) for name in vsetune.losses.__all__)
    if isinstance(each, type)
}
"""The classes of `vsetune.losses` by their names in study files."""


def close(actual: Any, expected: Any, tolerance: float = 1e-6) -> None:
    """Equal up to an absolute tolerance."""
    torch.testing.assert_close(
        torch.as_tensor(actual, dtype=torch.float64), torch.as_tensor(expected, dtype=torch.float64),
        atol=tolerance, rtol=0,
    )


def gradient(value: Tensor, at: Tensor) -> Tensor:
    (result,) = torch.autograd.grad(value, at)
    return result


def unit(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Random vectors of length 1 along the last axis."""
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.nn.functional.normalize(values, dim=-1).to(dtype)


def square(first: Tensor, second: Tensor) -> float:
    """Squared distance of two vectors, number by number."""
    return sum((a - b) ** 2 for a, b in zip(first.tolist(), second.tolist(), strict=True))


def candidates_of(scores: Tensor, negatives: Tensor) -> Candidates:
    among = scores.masked_fill(~negatives, float("-inf"))
    return Candidates(among, among, None)


def pools_of(scores: Tensor, negatives: Tensor) -> Pools:
    return Pools(scores, negatives, scores, negatives)
