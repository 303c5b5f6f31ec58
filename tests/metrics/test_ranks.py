"""Ranks by counting: worked matrices, plain loops, ties, blocks, broken scores."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from vsetune.errors import DataError, NumericError
from vsetune.metrics.ranks import (
    EmbeddingScores,
    MatrixScores,
    image_to_text_ranks,
    pessimistic_finite,
    ranks_of_positives,
    text_to_image_ranks,
)


def both(similarity: Tensor, owner: Tensor, scores_per_block: int = 10**6) -> tuple[list[int], list[int]]:
    scores = MatrixScores(similarity)
    return (
        image_to_text_ranks(scores, owner, scores_per_block=scores_per_block).ranks.tolist(),
        text_to_image_ranks(scores, owner, scores_per_block=scores_per_block).ranks.tolist(),
    )


def plain_ranks(scores: list[list[float]], positives: list[list[bool]]) -> list[int]:
    """The definition: non-positive candidates that score at least as high as the best positive."""
    ranks = []
    for row, match in zip(scores, positives, strict=True):
        best = max(score for score, is_own in zip(row, match, strict=True) if is_own)
        ranks.append(sum(score >= best for score, is_own in zip(row, match, strict=True) if not is_own))
    return ranks


def test_ranks_of_f(f, owner) -> None:
    assert both(f, owner) == ([0, 0, 1], [0, 2, 1, 0, 2, 1])


def test_five_captions_per_image() -> None:
    similarity = torch.tensor([
        [0.55, 0.72, 0.60, 0.54, 0.42, 0.65, 0.44, 0.89, 0.96, 0.38],
        [0.79, 0.53, 0.57, 0.93, 0.07, 0.09, 0.02, 0.83, 0.78, 0.87],
    ])
    assert both(similarity, torch.arange(10) // 5)[0] == [2, 1]


def test_ties_count_against_the_query_wherever_the_positive_stands() -> None:
    for place in range(4):
        positives = torch.zeros(1, 4, dtype=torch.bool)
        positives[0, place] = True
        result = ranks_of_positives(torch.full((1, 4), 0.3), positives)
        assert result.ranks.tolist() == [3]
        assert result.tied.tolist() == [True]


def test_other_positives_neither_push_down_nor_tie() -> None:
    positives = torch.tensor([[True, True, False]])
    result = ranks_of_positives(torch.tensor([[0.9, 0.9, 0.1]]), positives)
    assert (result.ranks.tolist(), result.tied.tolist()) == ([0], [False])


@pytest.mark.parametrize("seed", range(6))
def test_ranks_equal_plain_loops_with_any_number_of_captions_and_many_ties(seed, random_case) -> None:
    scores, owner = random_case(seed, 9, 4)
    positives = torch.arange(9)[:, None] == owner[None, :]
    expected = (
        plain_ranks(scores.tolist(), positives.tolist()), plain_ranks(scores.T.tolist(), positives.T.tolist()),
    )
    assert both(scores, owner) == expected


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.integers(1, 200), st.integers(0, 2**31))
def test_blocks_of_any_size_give_the_same_ranks(images, scores_per_block, seed) -> None:
    generator = torch.Generator().manual_seed(seed)
    owner = torch.cat([torch.arange(images), torch.randint(images, (7,), generator=generator)])
    scores = torch.randint(0, 9, (images, images + 7), generator=generator) / 9
    assert both(scores, owner, scores_per_block) == both(scores, owner)


def test_blocks_of_embeddings_give_the_ranks_of_the_whole_matrix() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.nn.functional.normalize(torch.randn(40, 33, generator=generator), dim=1)
    captions = torch.nn.functional.normalize(torch.randn(130, 33, generator=generator), dim=1)
    owner = torch.cat([torch.arange(40), torch.randint(40, (90,), generator=generator)])

    def similarity(rows: Tensor, columns: Tensor) -> Tensor:
        return rows @ columns.T

    whole = both(similarity(images.double(), captions.double()).float(), owner)
    for size, tile in ((1, 40), (131, 7), (700, 100), (10**6, 1), (10**6, 1000)):
        blocks = EmbeddingScores(images, captions, similarity, embeddings_per_tile=tile)
        assert image_to_text_ranks(blocks, owner, scores_per_block=size).ranks.tolist() == whole[0]
        assert text_to_image_ranks(blocks, owner, scores_per_block=size).ranks.tolist() == whole[1]


def test_equal_embeddings_tie_in_every_block_size() -> None:
    """Float32 products of one pair of vectors differ in the last bit from block shape to block shape."""
    generator = torch.Generator().manual_seed(1)
    image = torch.randn(1, 1001, generator=generator).expand(37, -1)
    caption = torch.randn(1, 1001, generator=generator).expand(74, -1)
    owner = torch.arange(74) // 2
    for size, tile in ((1, 100), (75, 5), (500, 30), (10**6, 1), (10**6, 100)):
        blocks = EmbeddingScores(image, caption, lambda rows, columns: rows @ columns.T, embeddings_per_tile=tile)
        for result, last in (
            (image_to_text_ranks(blocks, owner, scores_per_block=size), 72),
            (text_to_image_ranks(blocks, owner, scores_per_block=size), 36),
        ):
            assert set(result.ranks.tolist()) == {last}
            assert result.tied.all()


def test_permuting_images_and_captions_permutes_the_ranks(random_case) -> None:
    scores, owner = random_case(3, 8, 3)
    generator = torch.Generator().manual_seed(0)
    rows, columns = torch.randperm(8, generator=generator), torch.randperm(owner.numel(), generator=generator)
    place = torch.empty_like(rows)
    place[rows] = torch.arange(8)
    i2t, t2i = both(scores, owner)
    permuted_i2t, permuted_t2i = both(scores[rows][:, columns], place[owner[columns]])
    assert permuted_i2t == [i2t[row] for row in rows.tolist()]
    assert permuted_t2i == [t2i[column] for column in columns.tolist()]


def test_a_strictly_increasing_map_of_the_scores_changes_nothing(random_case) -> None:
    scores, owner = random_case(4, 8, 3)
    assert both(scores, owner) == both(torch.exp(3 * scores.double()) - 7, owner)


def test_transposing_a_square_matrix_of_pairs_swaps_the_directions(random_case) -> None:
    scores, owner = random_case(5, 10, 1)
    scores = scores[:, owner.argsort()]
    i2t, t2i = both(scores, torch.arange(10))
    assert both(scores.T, torch.arange(10)) == (t2i, i2t)


def test_a_further_candidate_never_lowers_a_rank(random_case) -> None:
    scores, owner = random_case(6, 8, 3)
    before, _ = both(scores, owner)
    column = torch.rand(8, 1, generator=torch.Generator().manual_seed(1))
    after, _ = both(torch.cat([scores, column], dim=1), torch.cat([owner, torch.tensor([0])]))
    assert after[1:] != before[1:]
    assert all(more >= less for more, less in zip(after[1:], before[1:], strict=True))


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("scores_per_block", [1, 1000])
def test_broken_scores_are_an_error_with_direction_and_count(broken, scores_per_block, f, owner) -> None:
    f[0, 3] = broken
    f[2, 1] = broken
    scores = MatrixScores(f)
    with pytest.raises(NumericError, match="image_to_text: got 2 of 18 similarities that are not finite"):
        image_to_text_ranks(scores, owner, scores_per_block=scores_per_block)
    with pytest.raises(NumericError, match="text_to_image: got 2 of 18 similarities that are not finite"):
        text_to_image_ranks(scores, owner, scores_per_block=scores_per_block)


def test_an_all_nan_network_is_no_perfect_network(f, owner) -> None:
    with pytest.raises(NumericError, match="got 18 of 18"):
        both(torch.full_like(f, float("nan")), owner)


def test_broken_scores_of_a_foreign_file_count_as_not_retrieved(f, owner) -> None:
    f[0, 0] = float("nan")  # a positive: image 0 falls back on caption 1, caption 0 is last
    f[1, 5] = float("nan")  # a candidate: counts as better
    repaired, count = pessimistic_finite(f, owner)
    assert count == 2
    i2t, t2i = both(repaired, owner)
    assert i2t == [2, 1, 1]
    assert t2i == [2, 2, 1, 0, 2, 2]
    collapsed, _ = pessimistic_finite(torch.full_like(f, float("nan")), owner)
    assert both(collapsed, owner) == ([4, 3, 5], [2] * 6)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_matrices_are_compared_in_float32(half, f, owner) -> None:
    low = f.to(half)
    assert MatrixScores(low).rows(0, 1).dtype == torch.float32
    assert both(low, owner) == both(low.float(), owner)


@pytest.mark.parametrize(
    ("owner", "message"),
    [
        ([0, 0, 1, 1, 1], "owners of shape (5,)"),
        ([0, 0, 1, 1, 1, 3], "owners from 0 to 3, need rows of 3 images"),
        ([-1, 0, 1, 1, 1, 2], "owners from -1 to 2"),
        ([0, 0, 1, 1, 1, 1], "1 images without a caption"),
    ],
)
def test_owners_that_do_not_fit_are_refused(owner, message, f) -> None:
    with pytest.raises(DataError) as caught:
        both(f, torch.tensor(owner))
    assert message in str(caught.value)


def test_an_empty_split_is_refused() -> None:
    with pytest.raises(DataError, match="got 0 images and 0 captions"):
        both(torch.zeros(0, 0), torch.zeros(0, dtype=torch.int64))
