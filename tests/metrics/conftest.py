"""Inputs shared by the metric tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor


@pytest.fixture
def f() -> Tensor:
    """The worked matrix F: three images, six captions."""
    rows = [
        [0.70, 0.40, 0.55, 0.20, 0.35, 0.60],
        [0.30, 0.45, 0.50, 0.65, 0.10, 0.25],
        [0.15, 0.75, 0.05, 0.30, 0.25, 0.45],
    ]
    return torch.tensor(rows, dtype=torch.float64)


@pytest.fixture
def owner() -> Tensor:
    return torch.tensor([0, 0, 1, 1, 1, 2])


@pytest.fixture
def random_case() -> Callable[[int, int, int], tuple[Tensor, Tensor]]:
    """(seed, images, most captions per image) -> scores on a coarse grid (many ties) and owner in random order."""

    def make(seed: int, images: int, most: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        counts = torch.randint(1, most + 1, (images,), generator=generator)
        owner = torch.arange(images).repeat_interleave(counts)
        owner = owner[torch.randperm(owner.numel(), generator=generator)]
        scores = torch.randint(0, 40, (images, owner.numel()), generator=generator) / 40
        return scores, owner

    return make
