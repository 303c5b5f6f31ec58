"""Two stages against plain loops: who is proposed, and the order in which everything else follows."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from whole_scores import matrix_scores

from vsetune.metrics.positives import Positives
from vsetune.metrics.ranks import retrieval_ranks
from vsetune.metrics.recalls import owner_scores
from vsetune.metrics.score_blocks import MatrixScores, RerankedScores, proposed_pairs

BLOCK_SHAPES = [(2, 3), (100, 100)]


def plain_proposals(first: list[list[float]], top: int) -> set[tuple[int, int]]:
    """The definition: at least as high as the last of the first `top` of the image, or of those of the caption."""
    images, captions = range(len(first)), range(len(first[0]))
    pairs = set()
    for i, j in itertools.product(images, captions):
        last_of_image = sorted(first[i], reverse=True)[: top][-1]
        last_of_caption = sorted((first[n][j] for n in images), reverse=True)[: top][-1]
        if first[i][j] >= last_of_image or first[i][j] >= last_of_caption:
            pairs.add((i, j))
    return pairs


def plain_ranks(
    first: list[list[float]], second: list[list[float]], top: int, owner: list[int]
) -> tuple[list[int], list[int]]:
    """The definition: non-positive candidates that stand at least as high as the query's best positive."""
    proposed = plain_proposals(first, top)
    images, captions = range(len(first)), range(len(owner))

    def place(i: int, j: int) -> tuple[bool, float]:
        return ((i, j) in proposed, second[i][j] if (i, j) in proposed else first[i][j])

    by_image, by_caption = [], []
    for i in images:
        best = max(place(i, j) for j in captions if owner[j] == i)
        by_image.append(sum(place(i, j) >= best for j in captions if owner[j] != i))
    for j in captions:
        best = place(owner[j], j)
        by_caption.append(sum(place(i, j) >= best for i in images if i != owner[j]))
    return by_image, by_caption


@pytest.mark.parametrize("block_shape", BLOCK_SHAPES)
@given(seed=st.integers(0, 10_000), images=st.integers(1, 7), levels=st.sampled_from([2, 7, 1000]), data=st.data())
@settings(max_examples=25, deadline=None)
def test_proposals_and_ranks_are_those_of_the_definition_with_ties_too(
    block_shape: tuple[int, int], seed: int, images: int, levels: int, data: st.DataObject
) -> None:
    top = data.draw(st.integers(1, images))
    generator = torch.Generator().manual_seed(seed)
    owner = torch.arange(images).repeat(2)
    first, second = (torch.randint(-levels, levels, (images, 2 * images), generator=generator) / 7 for _ in range(2))
    proposed = proposed_pairs(MatrixScores(first), top, block_shape=block_shape)
    plain = first.tolist(), second.tolist(), top
    assert {(i, j) for i, j in proposed.nonzero().tolist()} == plain_proposals(first.tolist(), top)
    both = RerankedScores(MatrixScores(first), proposed, second)
    positives = Positives.of_owner(owner, images=images, captions=2 * images)
    ranks = retrieval_ranks(both, positives, block_shape=block_shape)
    found = ranks.image_to_text.ranks.tolist(), ranks.text_to_image.ranks.tolist()
    assert found == plain_ranks(*plain, owner.tolist())


def test_with_every_image_proposed_the_second_stage_decides_alone(random_case) -> None:
    (first, owner), (second, _) = random_case(0, 9, 1), random_case(1, 9, 1)
    proposed = proposed_pairs(MatrixScores(first), 9)
    assert bool(proposed.all())
    assert owner_scores(RerankedScores(MatrixScores(first), proposed, second), owner) == matrix_scores(second, owner)


def test_order_and_ties_of_both_stages_are_kept_exactly_whatever_the_size_of_scores() -> None:
    tiny, huge = 2.0**-149, 3e38
    numbers = torch.tensor([[-huge, -1.0, -tiny, -0.0, 0.0, tiny, 1.0, math.nextafter(1.0, 2), huge]]).repeat(2, 1)
    proposed = torch.tensor([[True] * 9, [False] * 9])
    block = RerankedScores(MatrixScores(numbers), proposed, numbers).block(slice(None), slice(None))
    for row, expected in zip(block, numbers, strict=True):
        pairs = itertools.combinations(range(9), 2)
        assert all((row[a] < row[b]) == (expected[a] < expected[b]) and row[a] <= row[b] for a, b in pairs)
    assert block[0].min() > block[1].max()
