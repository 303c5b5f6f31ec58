"""Blocks are as large as asked for and no larger: memory is what they are for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from vsetune.metrics.positives import Positives
from vsetune.metrics.ranks import retrieval_ranks
from vsetune.metrics.score_blocks import MatrixScores, Part, bands
from vsetune.metrics.semantic_ranking import semantic_ranking_distance


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
