"""Blocks of scores and positives: no larger than asked for, exact ties, captions in their order."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from vsetune.metrics.positives import Positives
from vsetune.metrics.ranks import retrieval_ranks
from vsetune.metrics.score_blocks import MatrixScores, MeanScores, Part, bands
from vsetune.metrics.semantic_ranking import CaptionSemantics, semantic_ranking_distance


class Watched(MatrixScores):
    """Remembers the shapes of the blocks it was asked for."""

    def __init__(self, similarity: Tensor) -> None:
        super().__init__(similarity)
        self.asked: list[tuple[int, ...]] = []

    def block(self, images: Part, captions: Part) -> Tensor:
        block = super().block(images, captions)
        self.asked.append(tuple(block.shape))
        return block


def scores(images: int, captions: int) -> Watched:
    return Watched(torch.rand(images, captions, generator=torch.Generator().manual_seed(0)))


@pytest.mark.parametrize(("band", "widths"), [
    (1, [1, 1, 1, 1, 1, 1, 1]), (9, [1, 1, 1, 1, 1, 1, 1]), (10, [2, 2, 2, 1]), (35, [7]), (1000, [7]),
])
def test_srd_holds_as_many_whole_columns_as_fit_and_at_least_one(band: int, widths: list[int]) -> None:
    network, semantics = scores(5, 7), scores(5, 7)
    semantic_ranking_distance(network, semantics, [1], scores_per_band=band)
    assert network.asked == semantics.asked == [(5, width) for width in widths]


def test_ranks_look_at_every_score_once_and_at_the_positives_before() -> None:
    watched = scores(5, 7)
    positives = Positives.of_owner(torch.tensor([0, 1, 2, 3, 4, 4, 0]), images=5, captions=7)
    retrieval_ranks(watched, positives, block_shape=(3, 4))
    assert watched.asked[-4:] == [(3, 4), (3, 3), (2, 4), (2, 3)]


def test_bands_follow_one_another_and_the_last_one_is_shorter() -> None:
    assert list(bands(7, 3)) == [slice(0, 3), slice(3, 6), slice(6, 7)]
    assert list(bands(6, 3)) == [slice(0, 3), slice(3, 6)]
    assert list(bands(0, 3)) == []


SCORES = torch.tensor([
    [0.5, 0.9, 0.1, 0.8, 0.7, 0.2],  # image 0 owns caption 0: three better ones, no tie
    [0.3, 0.4, 0.4, 0.1, 0.9, 0.0],  # image 1 owns caption 1: one better, one tied
    [0.2, 0.1, 0.6, 0.0, 0.3, 0.6],  # image 2 owns caption 2: one tied
])


def test_scores_that_only_float64_tells_apart_do_not_tie() -> None:
    scores = torch.tensor([[0.5 + 1e-12, 0.5]], dtype=torch.float64)
    positives = Positives.of_pairs(torch.tensor([[0, 0]]), images=1, captions=2)
    ranks = retrieval_ranks(MatrixScores(scores), positives).image_to_text
    assert (ranks.ranks.tolist(), ranks.tied.tolist()) == ([0], [False])


def test_an_ensemble_of_one_is_its_member() -> None:
    mean = MeanScores([MatrixScores(SCORES)])
    assert mean.shape == (3, 6)
    assert torch.equal(mean.block(slice(0, 3), slice(0, 6)), SCORES)


@pytest.mark.parametrize("rows", [[0, 299], [130, 131], [299], [0, 70, 140, 210, 280]])
def test_images_without_a_pair_hide_none_of_those_after_them(rows: list[int]) -> None:
    scores = torch.rand(300, 4, generator=torch.Generator().manual_seed(0))
    pairs = torch.tensor([[row, place % 4] for place, row in enumerate(rows)])
    positives = Positives.of_pairs(pairs, images=300, captions=4)
    assert positives.scores(MatrixScores(scores)).tolist() == [scores[row, caption].item() for row, caption in pairs]


IMAGES, CAPTIONS = 3, 900


@pytest.fixture
def many_owner() -> Tensor:
    """(CAPTIONS,) owners in random order, hundreds of captions per image: enough for vectorised sorting."""
    return torch.randint(0, IMAGES, (CAPTIONS,), generator=torch.Generator().manual_seed(0))


def test_pairs_come_by_image_and_then_by_caption(many_owner: Tensor) -> None:
    positives = Positives.of_owner(many_owner, images=IMAGES, captions=CAPTIONS)
    pairs = list(zip(positives.image.tolist(), positives.caption.tolist(), strict=True))
    assert pairs == sorted((image, caption) for caption, image in enumerate(many_owner.tolist()))


def test_the_first_caption_of_an_image_is_the_first_in_the_data(many_owner: Tensor) -> None:
    vectors = torch.randn(CAPTIONS, 4, generator=torch.Generator().manual_seed(1))
    semantics = CaptionSemantics(vectors, many_owner, images=IMAGES, image_score="first")
    block = semantics.block(slice(0, IMAGES), slice(0, CAPTIONS))
    for image in range(IMAGES):
        first = many_owner.tolist().index(image)
        expected = torch.cosine_similarity(vectors[first].double(), vectors.double(), dim=1)
        assert torch.allclose(block[image].double(), expected, rtol=0, atol=1e-6)
