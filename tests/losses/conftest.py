"""Inputs shared by the loss tests. E is the worked matrix used throughout: rows images, columns captions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from vsetune.losses import LossInputs

MakeInputs = Callable[..., LossInputs]


@pytest.fixture
def e() -> Tensor:
    rows = [[0.60, 0.50, 0.10], [0.30, 0.40, 0.55], [0.20, 0.45, 0.70]]
    return torch.tensor(rows, dtype=torch.float64, requires_grad=True)


@pytest.fixture
def several() -> Tensor:
    """Three images, five captions; captions 0, 1 -> image 0, 2 -> image 1, 3, 4 -> image 2."""
    rows = [[0.70, 0.40, 0.50, 0.10, 0.30], [0.20, 0.30, 0.60, 0.55, 0.05], [0.10, 0.25, 0.35, 0.45, 0.65]]
    return torch.tensor(rows, dtype=torch.float64, requires_grad=True)


@pytest.fixture
def several_owner() -> Tensor:
    return torch.tensor([0, 0, 1, 2, 2])


@pytest.fixture
def vectors() -> Tensor:
    """Semantic vectors that go with E; their norms differ on purpose."""
    return torch.tensor([[0.8, 0.2], [0.4, 0.3], [0.1, 0.9]], dtype=torch.float64)


@pytest.fixture
def make_pairs() -> MakeInputs:
    """(similarity, image ids = all different, semantic vectors = none) -> inputs of a batch of pairs."""

    def make(similarity: Tensor, ids: list[int] | Tensor | None = None, vectors: Tensor | None = None) -> LossInputs:
        size = similarity.shape[0]
        image_ids = torch.arange(size) if ids is None else torch.as_tensor(ids)
        return LossInputs(similarity, image_ids, image_ids, torch.arange(size), vectors)

    return make


@pytest.fixture
def make_images() -> MakeInputs:
    """(similarity (N, M), owner (M,)) -> inputs of a batch of images with all their captions; ids start at 100."""

    def make(similarity: Tensor, owner: Tensor) -> LossInputs:
        ids = 100 + torch.arange(similarity.shape[0])
        return LossInputs(similarity, ids, ids[owner], owner)

    return make


@pytest.fixture
def random_pairs() -> Callable[[int, int], tuple[Tensor, Tensor, Tensor]]:
    """(seed, size) -> float64 similarities in (-1, 1), image ids with duplicates, semantic vectors with a zero row."""

    def make(seed: int, size: int) -> tuple[Tensor, Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        similarity = torch.rand(size, size, generator=generator, dtype=torch.float64) * 2 - 1
        ids = torch.randint(max(2, size // 2), (size,), generator=generator)
        vectors = torch.randn(size, 5, generator=generator, dtype=torch.float64)
        vectors[size // 2] = 0
        return similarity.requires_grad_(), ids, vectors

    return make
