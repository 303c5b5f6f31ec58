"""Inputs shared by the loss tests. E is the worked matrix used throughout: rows images, columns captions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vsetune.config.component_specs import MemorySpec
from vsetune.losses.loss_base import Items, LossContext, LossInputs
from vsetune.losses.loss_building import build_loss
from vsetune.losses.parts.cross_batch_memory import CrossBatchMemory
from vsetune.losses.semantic_center.spec import SemanticCenterSpec

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


@pytest.fixture
def make_center_loss() -> Callable[..., Any]:
    """(images of the train split, size of the joint space, fields) -> semantic centre loss in float64."""

    def make(concepts: int = 6, size: int = 4, **fields: Any) -> Any:
        torch.manual_seed(0)
        return build_loss(SemanticCenterSpec(**fields), LossContext(size, concepts)).double()

    return make


@pytest.fixture
def embedded_pairs() -> Callable[..., LossInputs]:
    """(images, captions, ids) -> batch of pairs with embeddings, whose products are the similarities."""

    def make(images: Tensor, captions: Tensor, ids: list[int] | Tensor) -> LossInputs:
        ids = torch.as_tensor(ids)
        rows = torch.arange(len(ids))
        return LossInputs(images @ captions.T, ids, ids, rows, images=Items(images), captions=Items(captions))

    return make


@pytest.fixture
def random_embedded_pairs(embedded_pairs: Callable[..., LossInputs]) -> Callable[..., LossInputs]:
    """(seed, pairs, concepts, size) -> batch of unit vectors in float64 with gradient; ids repeat."""

    def make(seed: int, pairs: int = 5, concepts: int = 6, size: int = 4) -> LossInputs:
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randn(2, pairs, size, generator=generator, dtype=torch.float64)
        images, captions = nn.functional.normalize(drawn, dim=2).unbind()
        ids = torch.randint(concepts, (pairs,), generator=generator)
        ids[-1] = ids[0]
        return embedded_pairs(images.requires_grad_(), captions.requires_grad_(), ids)

    return make


@pytest.fixture
def center_step() -> Callable[[Any, LossInputs], Tensor]:
    """(loss, batch) -> value, after one step of plain SGD on the centres alone, as the train loop does it."""

    def step(loss: Any, inputs: LossInputs) -> Tensor:
        (group,) = [group for group in loss.parameter_groups() if group.sgd_rate is not None]
        (table,) = group.parameters
        optimizer = torch.optim.SGD([table], lr=group.sgd_rate)
        optimizer.zero_grad()
        value = loss(inputs).value
        value.backward()
        loss.before_step()
        optimizer.step()
        loss.after_step()
        return value.detach()

    return step


@pytest.fixture
def trained_concepts(
    make_center_loss: Callable[..., Any], random_embedded_pairs: Callable[..., LossInputs],
    center_step: Callable[[Any, LossInputs], Tensor],
) -> Callable[..., Any]:
    """(fields) -> loss with centres of eight concepts that all were met in training."""

    def train(**fields: Any) -> Any:
        loss = make_center_loss(concepts=8, **fields)
        for seed in range(6):
            center_step(loss, random_embedded_pairs(seed, 6, 8))
        assert loss.centers.seen.all()
        return loss

    return train


@pytest.fixture
def memory_batch() -> Callable[..., LossInputs]:
    """(seed, pairs, dtype) -> pairs of unit vectors of size 6 with gradient and semantic vectors; of 9 images, which
    repeat within and between batches."""

    def make(seed: int, pairs: int = 4, dtype: torch.dtype = torch.float64) -> LossInputs:
        generator = torch.Generator().manual_seed(seed)
        images, captions = (
            nn.functional.normalize(torch.randn(pairs, 6, generator=generator, dtype=dtype), dim=1).requires_grad_()
            for _ in range(2)
        )
        ids = torch.randint(9, (pairs,), generator=generator)
        vectors = torch.randn(pairs, 5, generator=generator, dtype=dtype)
        rows = torch.arange(pairs)
        return LossInputs(images @ captions.T, ids, ids, rows, vectors, images=Items(images), captions=Items(captions))

    return make


@pytest.fixture
def remembering() -> Callable[..., CrossBatchMemory]:
    """(spec, memory size, fields) -> its loss in float64, with a memory from the start."""

    def make(spec: Callable[..., MemorySpec], memory_size: int = 10, **fields: Any) -> CrossBatchMemory:
        context = LossContext(embedding_size=6, concepts=9)
        loss = build_loss(spec(memory_size=memory_size, memory_start_epoch=0, **fields), context).double()
        assert isinstance(loss, CrossBatchMemory)
        return loss

    return make


@pytest.fixture
def memory_step() -> Callable[[CrossBatchMemory, LossInputs], float]:
    """(loss, batch) -> value; forward, backward, remember."""

    def step(loss: CrossBatchMemory, inputs: LossInputs) -> float:
        output = loss(inputs)
        output.value.backward()
        loss.before_step()
        loss.after_step()
        return output.value.item()

    return step
