"""SRD@k: the worked example, plain loops, ties, blocks, refusals."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from vsetune.metrics.score_blocks import EmbeddingScores, MatrixScores
from vsetune.metrics.semantic_ranking import CaptionSemantics, semantic_ranking_distance

# Rows are caption queries here, as in the definition; matrices of scores are images x captions.
NETWORK = torch.tensor([[0.9, 0.2, 0.6, 0.4], [0.3, 0.8, 0.7, 0.5], [0.5, 0.6, 0.55, 0.1]])
SEMANTIC = torch.tensor([[1.0, 0.3, 0.8, 0.5], [0.2, 1.0, 0.4, 0.9], [0.7, 0.6, 1.0, 0.1]])


def srd(network: Tensor, semantic: Tensor, ks: list[int], scores_per_band: int = 10**6) -> list[float]:
    results = semantic_ranking_distance(
        MatrixScores(network), MatrixScores(semantic), ks, scores_per_band=scores_per_band
    )
    return [result.value for result in results]


def order(row: list[float]) -> list[int]:
    return sorted(range(len(row)), key=lambda image: (-row[image], image))


def plain_srd(network: Tensor, semantic: Tensor, k: int) -> float:
    """Eq. 11 with 0-based ranks. network, semantic: (images, captions)."""
    total = 0
    for row, meaning in zip(network.T.tolist(), semantic.T.tolist(), strict=True):
        ranks, semantic_ranks = order(row), order(meaning)
        for image in range(len(row)):
            if semantic_ranks.index(image) < k:
                total += abs(ranks.index(image) - semantic_ranks.index(image))
    return total / (network.shape[1] * k)


def plain_ties(network: Tensor, semantic: Tensor, k: int) -> int:
    count = 0
    for row, meaning in zip(network.T.tolist(), semantic.T.tolist(), strict=True):
        first = order(meaning)[:k]
        count += any(row.count(row[image]) > 1 or meaning.count(meaning[image]) > 1 for image in first)
    return count


def plain_semantics(vectors: Tensor, owner: Tensor, images: int, image_score: str) -> Tensor:
    """(images, captions) cosines in float64."""
    units = vectors.double() / vectors.double().norm(dim=1, keepdim=True)
    result = torch.zeros(images, len(owner), dtype=torch.float64)
    for image in range(images):
        for query in range(len(owner)):
            cosines = [
                float(units[caption] @ units[query]) for caption in range(len(owner)) if owner[caption] == image
            ]
            scores = {"max": max(cosines), "mean": sum(cosines) / len(cosines), "first": cosines[0]}
            result[image, query] = scores[image_score]
    return result


def test_the_worked_example() -> None:
    assert srd(NETWORK.T, SEMANTIC.T, [1, 2, 3]) == pytest.approx([0.333333, 0.5, 0.666667], abs=1e-6)
    result = semantic_ranking_distance(MatrixScores(NETWORK.T), MatrixScores(SEMANTIC.T), [2])[0]
    assert (result.k, result.share, result.queries, result.tied_queries) == (2, 0.125, 3, 0)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9), st.integers(1, 7), st.integers(2, 30), st.integers(1, 40), st.integers(0, 2**31))
def test_values_and_ties_equal_plain_loops_in_any_band(images, captions, levels, band, seed) -> None:
    generator = torch.Generator().manual_seed(seed)
    network = torch.randint(-levels, levels, (images, captions), generator=generator) / levels
    semantic = torch.randint(-levels, levels, (images, captions), generator=generator) / levels
    ks = list(range(1, images + 1))
    results = semantic_ranking_distance(MatrixScores(network), MatrixScores(semantic), ks, scores_per_band=band)
    assert [result.value for result in results] == pytest.approx([plain_srd(network, semantic, k) for k in ks])
    assert [result.tied_queries for result in results] == [plain_ties(network, semantic, k) for k in ks]


def test_zero_and_minus_zero_tie() -> None:
    semantic = torch.tensor([[-0.0, 0.0, -1.0]]).T
    network = torch.tensor([[3.0, 2.0, 1.0]]).T
    assert srd(network, semantic, [1, 2, 3]) == [0, 0, 0]


@pytest.mark.parametrize("image_score", ["max", "mean", "first"])
@pytest.mark.parametrize("seed", range(2))
def test_semantic_scores_equal_plain_loops(seed, image_score, random_case) -> None:
    _, owner = random_case(seed, 6, 4)
    vectors = torch.randn(owner.numel(), 5, generator=torch.Generator().manual_seed(seed))
    semantics = CaptionSemantics(vectors, owner, images=6, image_score=image_score)
    block = semantics.block(slice(0, 6), slice(0, owner.numel()))
    expected = plain_semantics(vectors, owner, 6, image_score)
    assert torch.allclose(block.double(), expected, rtol=0, atol=1e-7)
    part = semantics.block(slice(2, 5), torch.tensor([3, 0]))
    assert torch.equal(part, block[2:5][:, [3, 0]])


def test_the_own_image_is_closest_by_meaning_so_srd_at_1_is_its_mean_rank(random_case) -> None:
    scores, owner = random_case(3, 8, 3)
    scores = torch.rand(scores.shape, generator=torch.Generator().manual_seed(1))
    vectors = torch.randn(owner.numel(), 12, generator=torch.Generator().manual_seed(2))
    semantics = CaptionSemantics(vectors, owner, images=8, image_score="max")
    block = semantics.block(slice(0, 8), slice(0, owner.numel()))
    assert (block[owner, torch.arange(owner.numel())] == 1).all()
    rank0 = (scores > scores[owner, torch.arange(owner.numel())]).sum(dim=0)
    result = semantic_ranking_distance(MatrixScores(scores), semantics, [1])[0]
    assert result.value == pytest.approx(float(rank0.double().mean()))


def test_a_tie_with_the_first_image_left_out_is_a_tie() -> None:
    semantic = torch.tensor([[0.9, 0.5, 0.5, 0.1]]).T
    network = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).T
    for k, ties in ((1, 0), (2, 1), (4, 1)):
        assert semantic_ranking_distance(MatrixScores(network), MatrixScores(semantic), [k])[0].tied_queries == ties


@pytest.mark.parametrize("scores_per_band", [1, 100, 10**6])
def test_embeddings_and_vectors_in_any_band_give_the_same_distance(scores_per_band) -> None:
    generator = torch.Generator().manual_seed(0)
    owner = torch.arange(90) % 30
    images, captions = torch.randn(30, 16, generator=generator), torch.randn(90, 16, generator=generator)
    vectors = torch.randn(90, 8, generator=generator)
    vectors[40] = vectors[13]  # one caption of two images
    scores = EmbeddingScores(images, captions, lambda rows, columns: rows @ columns.T)
    semantics = CaptionSemantics(vectors, owner, images=30, image_score="max")
    whole = slice(0, 30), slice(0, 90)
    expected = [plain_srd(scores.block(*whole), semantics.block(*whole), k) for k in (1, 5, 10)]
    results = semantic_ranking_distance(scores, semantics, [1, 5, 10], scores_per_band=scores_per_band)
    assert [result.value for result in results] == pytest.approx(expected)
    assert results[0].tied_queries == 2


def test_a_zero_vector_is_like_nothing() -> None:
    vectors = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 2.0]])
    semantics = CaptionSemantics(vectors, torch.arange(3), images=3, image_score="max")
    assert semantics.block(slice(0, 3), slice(0, 3)).tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 1]]
