"""Ranks by counting: worked matrices, plain loops, ties, blocks, broken scores."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from vsetune.metrics.positives import Positives
from vsetune.metrics.ranks import RetrievalRanks, retrieval_ranks
from vsetune.metrics.score_blocks import BLOCK_SHAPE, EmbeddingScores, MatrixScores, Scores

BLOCK_SHAPES = [(1, 1), (1, 1000), (7, 5), BLOCK_SHAPE]


def ranks_of(scores: Scores, owner: Tensor, block_shape: tuple[int, int] = BLOCK_SHAPE) -> RetrievalRanks:
    positives = Positives.of_owner(owner, images=scores.shape[0], captions=scores.shape[1])
    return retrieval_ranks(scores, positives, block_shape=block_shape)


def both(
    similarity: Tensor, owner: Tensor, block_shape: tuple[int, int] = BLOCK_SHAPE
) -> tuple[list[int], list[int]]:
    ranks = ranks_of(MatrixScores(similarity), owner, block_shape)
    return ranks.image_to_text.ranks.tolist(), ranks.text_to_image.ranks.tolist()


def product(rows: Tensor, columns: Tensor) -> Tensor:
    return rows @ columns.T


def test_ranks_of_f(f, owner) -> None:
    assert both(f, owner) == ([0, 0, 1], [0, 2, 1, 0, 2, 1])


@pytest.mark.parametrize("block_shape", BLOCK_SHAPES)
def test_blocks_of_embeddings_give_the_ranks_of_the_whole_matrix(block_shape) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.nn.functional.normalize(torch.randn(12, 33, generator=generator), dim=1)
    captions = torch.nn.functional.normalize(torch.randn(40, 33, generator=generator), dim=1)
    owner = torch.cat([torch.arange(12), torch.randint(12, (28,), generator=generator)])
    whole = both(product(images.double(), captions.double()).float(), owner)
    ranks = ranks_of(EmbeddingScores(images, captions, product), owner, block_shape)
    assert (ranks.image_to_text.ranks.tolist(), ranks.text_to_image.ranks.tolist()) == whole


@pytest.mark.parametrize("block_shape", BLOCK_SHAPES)
def test_equal_embeddings_tie_in_every_block_size(block_shape) -> None:
    """Float32 products of one pair of vectors differ in the last bit from block shape to block shape."""
    generator = torch.Generator().manual_seed(1)
    image = torch.randn(1, 1001, generator=generator).expand(13, -1)
    caption = torch.randn(1, 1001, generator=generator).expand(26, -1)
    ranks = ranks_of(EmbeddingScores(image, caption, product), torch.arange(26) // 2, block_shape)
    for result, last in ((ranks.image_to_text, 24), (ranks.text_to_image, 12)):
        assert set(result.ranks.tolist()) == {last}
        assert result.tied.all()


def test_every_pair_is_scored_once_and_positives_once_more() -> None:
    """A similarity may be a network of its own."""
    scored = torch.zeros(500, 1000, dtype=torch.int64)
    rows, columns = torch.arange(500.0)[:, None], torch.arange(1000.0)[:, None]

    def similarity(images: Tensor, captions: Tensor) -> Tensor:
        scored[images[:, 0].long()[:, None], captions[:, 0].long()[None, :]] += 1
        return -(images - captions.T / 2).abs()

    owner = torch.arange(1000) // 2
    ranks_of(EmbeddingScores(rows, columns, similarity), owner, (130, 270))
    assert (scored.min(), scored.max()) == (1, 2)
    assert (scored[owner, torch.arange(1000)] == 2).all()
    assert (scored == 2).double().mean() < 0.13


def test_a_tied_query_is_one_whose_rank_depends_on_the_tie() -> None:
    scores = torch.tensor([[0.5, 0.5, 0.1], [0.9, 0.2, 0.1], [0.3, 0.4, 0.1]])
    ranks = ranks_of(MatrixScores(scores), torch.arange(3))
    assert ranks.image_to_text.tied.tolist() == [True, False, False]
    assert ranks.text_to_image.tied.tolist() == [False, False, True]


def test_finite_scores_whose_sum_overflows_are_ranked() -> None:
    scores = torch.full((4, 4), 1e38).fill_diagonal_(3e38)
    assert not scores.sum().isfinite()
    assert both(scores, torch.arange(4)) == ([0] * 4, [0] * 4)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_matrices_are_compared_in_float32(half, f, owner) -> None:
    low = f.to(half)
    assert MatrixScores(low).block(slice(0, 1), slice(0, 6)).dtype == torch.float32
    assert both(low, owner) == both(low.float(), owner)


def test_scoring_changes_nothing_that_was_passed_in(f, owner) -> None:
    before = f.clone(), owner.clone()
    both(f, owner)
    assert torch.equal(f, before[0])
    assert torch.equal(owner, before[1])
