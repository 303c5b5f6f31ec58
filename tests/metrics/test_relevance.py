"""External relevance lists: several captions fit several images."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from whole_scores import matrix_scores, relevance_matrix_scores

from vsetune.metrics.positives import Positives
from vsetune.metrics.ranks import retrieval_ranks
from vsetune.metrics.recalls import recalls_among
from vsetune.metrics.score_blocks import MatrixScores, OtherScores


def plain_ranks(scores: list[list[float]], relevant: list[list[bool]]) -> list[int]:
    """Strangers that score at least as high as the best relevant one, for queries that have one."""
    ranks = []
    for row, match in zip(scores, relevant, strict=True):
        if any(match):
            best = max(score for score, fits in zip(row, match, strict=True) if fits)
            ranks.append(sum(score >= best for score, fits in zip(row, match, strict=True) if not fits))
    return ranks


def plain_ties(scores: list[list[float]], relevant: list[list[bool]]) -> list[bool]:
    """Whether a stranger scores exactly as the best relevant one, for queries that have one."""
    rows = [list(zip(row, match, strict=True)) for row, match in zip(scores, relevant, strict=True) if any(match)]
    return [(max(score for score, fits in row if fits), False) in row for row in rows]


def test_a_longer_list_on_f_by_hand(f, owner) -> None:
    """F with caption 3 fitting image 0 too and caption 1 fitting image 2.

    i2t: the best are 0.70, 0.65 and 0.75 (caption 1), nothing above them: ranks 0, 0, 0. t2i: caption 1 has its best in
    image 2 now, rank 0; caption 3 keeps image 1, rank 0; the others as before: 0, 0, 1, 0, 2, 1.
    """
    pairs = torch.stack([owner, torch.arange(6)], dim=1)
    extended = torch.cat([pairs, torch.tensor([[0, 3], [2, 1]])])
    ranks = retrieval_ranks(MatrixScores(f), Positives.of_pairs(extended, images=3, captions=6))
    assert ranks.image_to_text.ranks.tolist() == [0, 0, 0]
    assert ranks.text_to_image.ranks.tolist() == [0, 0, 1, 0, 2, 1]
    scores = relevance_matrix_scores(f, extended)
    assert (scores.scores.i2t_r1, scores.scores.t2i_r1) == (100, 50)
    assert (scores.left_out_images, scores.left_out_captions) == (0, 0)


def test_the_list_of_owners_gives_the_ordinary_scores(random_case) -> None:
    for seed in range(4):
        scores, owner = random_case(seed, 12, 4)
        pairs = torch.stack([owner, torch.arange(owner.numel())], dim=1)
        result = relevance_matrix_scores(scores, pairs[torch.randperm(len(pairs))])
        assert result.scores == matrix_scores(scores, owner)
        assert (result.left_out_images, result.left_out_captions) == (0, 0)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 9), st.integers(1, 12), st.floats(0.05, 1), st.integers(1, 10), st.integers(1, 13),
    st.integers(0, 2**31),
)
def test_ranks_equal_plain_loops_for_any_list_and_any_block(images, captions, share, rows, columns, seed) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 7, (images, captions), generator=generator) / 7
    relevant = torch.rand(images, captions, generator=generator) < share
    relevant[0, 0] = True
    positives = Positives.of_pairs(relevant.nonzero(), images=images, captions=captions)
    ranks = retrieval_ranks(MatrixScores(scores), positives, block_shape=(rows, columns))
    assert ranks.image_to_text.ranks.tolist() == plain_ranks(scores.tolist(), relevant.tolist())
    assert ranks.text_to_image.ranks.tolist() == plain_ranks(scores.T.tolist(), relevant.T.tolist())
    assert ranks.image_to_text.tied.tolist() == plain_ties(scores.tolist(), relevant.tolist())
    assert ranks.text_to_image.tied.tolist() == plain_ties(scores.T.tolist(), relevant.T.tolist())
    assert ranks.image_to_text.left_out == int((~relevant.any(dim=1)).sum())
    assert ranks.text_to_image.left_out == int((~relevant.any(dim=0)).sum())


def test_queries_without_a_positive_are_left_out_and_counted_but_stay_candidates(f) -> None:
    """Image 1 fits nothing; caption 3 fits nothing, and yet both push others down."""
    pairs = torch.tensor([[0, 2], [2, 5]])
    result = relevance_matrix_scores(f, pairs)
    assert (result.left_out_images, result.left_out_captions) == (1, 4)
    assert (result.scores.images, result.scores.captions) == (2, 2)
    assert result.scores.i2t_mean_rank == 1 + (2 + 1) / 2
    assert result.scores.t2i_mean_rank == 1 + (0 + 1) / 2
    numbers = result.as_dict()
    assert (numbers["left_out_images"], numbers["left_out_captions"], numbers["images"]) == (1, 4, 2)


def test_a_repeated_pair_counts_once(f, owner) -> None:
    pairs = torch.stack([owner, torch.arange(6)], dim=1)
    assert relevance_matrix_scores(f, torch.cat([pairs, pairs.flip(0)])) == relevance_matrix_scores(f, pairs)


@settings(deadline=None)
@given(seed=st.integers(0, 10_000), size=st.integers(2, 9))
def test_items_that_search_among_themselves_rank_as_in_a_plain_loop(seed: int, size: int) -> None:
    """Three values of scores, so that most tie; every item is closest to itself."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 3, (size, size), generator=generator).float().fill_diagonal_(5.0)
    fits = (torch.rand(size, size, generator=generator) < 0.3).fill_diagonal_(False)
    fits[0, 1] = True
    ranks = []
    for query in range(size):
        others = [item for item in range(size) if item != query]
        positives = [item for item in others if fits[query, item]]
        if positives:
            best = max(float(scores[query, item]) for item in positives)
            ranks.append(sum(float(scores[query, item]) >= best for item in others if item not in positives))
    pairs = fits.nonzero()
    found = recalls_among(MatrixScores(scores), pairs)
    assert found == {f"r{k}": pytest.approx(100 * sum(rank < k for rank in ranks) / len(ranks)) for k in (1, 5, 10)}
    in_blocks = retrieval_ranks(
        OtherScores(MatrixScores(scores)), Positives.of_pairs(pairs, images=size, captions=size), block_shape=(3, 2)
    )
    assert in_blocks.image_to_text.ranks.tolist() == ranks
