"""MeanR, MeanWorstR and coverage@k: the worked matrix, plain loops, ties, blocks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from vsetune.metrics.positives import Positives
from vsetune.metrics.ranks import (
    PositiveRanks,
    coverage_at_k,
    hit_at_k,
    map_at_r,
    mean_positive_rank,
    mean_worst_rank,
    positive_ranks,
    r_precision,
    rank_averages,
)
from vsetune.metrics.score_blocks import MatrixScores

EXACT = 1e-14
"""Means are taken in float64."""


def of_owner(owner: Tensor, images: int) -> Positives:
    return Positives.of_owner(owner, images=images, captions=owner.numel())


def plain_ranks(scores: list[list[float]], positives: list[list[bool]]) -> list[list[int]]:
    """1 + higher ones + equal strangers + equal positives of lower index, for every positive of every query."""
    result = []
    for row, match in zip(scores, positives, strict=True):
        ranks = []
        for place, level in enumerate(row):
            if match[place]:
                beside = [other for other, score in enumerate(row) if score == level and other != place]
                before = [other for other in beside if not match[other] or other < place]
                ranks.append(1 + sum(score > level for score in row) + len(before))
        result.append(ranks)
    return result


def test_ranks_of_all_positives_of_f(f, owner) -> None:
    i2t, t2i = positive_ranks(MatrixScores(f), of_owner(owner, 3))
    assert i2t.rank.tolist() == [1, 4, 2, 1, 6, 2]
    assert i2t.query.tolist() == [0, 0, 1, 1, 1, 2]
    assert t2i.rank.tolist() == [1, 3, 2, 1, 3, 2]
    assert t2i.query.tolist() == [0, 1, 2, 3, 4, 5]
    assert mean_positive_rank(i2t) == pytest.approx(2.5)
    assert mean_worst_rank(i2t) == pytest.approx(4)
    assert [coverage_at_k(i2t, k) for k in (1, 2, 3)] == pytest.approx([0.666667, 0.833333, 0.722222], abs=1e-6)


def test_precision_at_r_and_means_by_hand() -> None:
    """Query 0 has R = 3 positives at ranks 2, 5, 3: two of them in the first 3, at precisions 1/2 and 2/3. Queries 1
    and 4 have no positive. Query 2 has R = 1 at rank 1, query 3 has R = 2 at ranks 3 and 4."""
    ranks = PositiveRanks(torch.tensor([0, 0, 0, 2, 3, 3]), torch.tensor([2, 5, 3, 1, 3, 4]), queries=5)
    assert r_precision(ranks) == pytest.approx(100 * (2 / 3 + 1 + 0) / 3, rel=EXACT)
    assert map_at_r(ranks) == pytest.approx(100 * ((1 / 2 + 2 / 3) / 3 + 1 + 0) / 3, rel=EXACT)
    assert [hit_at_k(ranks, k) for k in (1, 2, 3)] == pytest.approx([100 / 3, 200 / 3, 100], rel=EXACT)
    assert mean_positive_rank(ranks) == pytest.approx((10 / 3 + 1 + 7 / 2) / 3, rel=EXACT)
    assert mean_worst_rank(ranks) == pytest.approx((5 + 1 + 4) / 3, rel=EXACT)


def plain_precisions(ranks: list[int]) -> tuple[float, float]:
    """R-Precision and AP@R of one query: the precision of every prefix up to R, counted where a positive ends it."""
    size, precisions = len(ranks), []
    for end in range(1, size + 1):
        share = sum(rank <= end for rank in ranks) / end
        precisions.append(share if end in ranks else 0.0)
    return sum(rank <= size for rank in ranks) / size, sum(precisions) / size


def test_averages_of_f_by_name(f, owner) -> None:
    numbers = rank_averages(MatrixScores(f), of_owner(owner, 3)).as_dict()
    assert numbers["i2t_mean_positive_rank"] == pytest.approx(2.5)
    assert numbers["i2t_mean_worst_rank"] == pytest.approx(4)
    assert numbers["t2i_mean_positive_rank"] == numbers["t2i_mean_worst_rank"] == pytest.approx(2)
    assert numbers["i2t_coverage_1"] == pytest.approx(0.666667, abs=1e-6)
    assert numbers["t2i_coverage_1"] == pytest.approx(2 / 6)
    assert numbers["i2t_coverage_10"] == numbers["t2i_coverage_10"] == 1


def test_tied_positives_keep_index_order_and_strangers_go_before_them() -> None:
    pairs = Positives.of_pairs(torch.tensor([[0, 2], [0, 0]]), images=1, captions=4)
    i2t, _ = positive_ranks(MatrixScores(torch.full((1, 4), 0.5)), pairs)
    assert i2t.rank.tolist() == [3, 4]


@pytest.mark.parametrize("seed", range(3))
def test_ranks_equal_plain_loops_with_many_ties_and_any_relevance(seed) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 6, (7, 11), generator=generator) / 6
    positives = torch.rand(7, 11, generator=generator) < 0.4
    pairs = Positives.of_pairs(positives.nonzero(), images=7, captions=11)
    i2t, t2i = positive_ranks(MatrixScores(scores), pairs, block_shape=(3, 4))
    for result, matrix, matches in ((i2t, scores, positives), (t2i, scores.T, positives.T)):
        expected = plain_ranks(matrix.tolist(), matches.tolist())
        asked = [ranks for ranks in expected if ranks]
        assert result.rank.tolist() == [rank for ranks in expected for rank in ranks]
        assert mean_positive_rank(result) == pytest.approx(sum(sum(r) / len(r) for r in asked) / len(asked), rel=EXACT)
        assert mean_worst_rank(result) == pytest.approx(sum(max(r) for r in asked) / len(asked), rel=EXACT)
        found = [sum(rank <= 3 for rank in r) / min(3, len(r)) for r in asked]
        assert coverage_at_k(result, 3) == pytest.approx(sum(found) / len(asked), rel=EXACT)
        precision, average = zip(*map(plain_precisions, asked), strict=True)
        assert r_precision(result) == pytest.approx(100 * sum(precision) / len(asked), rel=EXACT)
        assert map_at_r(result) == pytest.approx(100 * sum(average) / len(asked), rel=EXACT)
        assert hit_at_k(result, 2) == pytest.approx(100 * sum(min(r) <= 2 for r in asked) / len(asked), rel=EXACT)
