"""Recalls, M-Recall, averages of ranks, folds."""

from __future__ import annotations

import itertools
import logging

import pytest
import torch
from torch import Tensor
from whole_scores import fold_scores, matrix_scores, retrieval_scores

from vsetune.metrics.recalls import RetrievalScores, mean_rank, median_rank, recall, recall_at_k


def product(rows: Tensor, columns: Tensor) -> Tensor:
    return rows @ columns.T


def test_scores_of_f(f, owner) -> None:
    scores = matrix_scores(f, owner)
    assert scores.i2t_r1 == pytest.approx(66.666667, abs=1e-6)
    assert scores.t2i_r1 == pytest.approx(33.333333, abs=1e-6)
    assert (scores.i2t_r5, scores.i2t_r10, scores.t2i_r5, scores.t2i_r10) == (100, 100, 100, 100)
    assert scores.rsum == pytest.approx(500)
    assert scores.m_recall == pytest.approx(83.333333, abs=1e-6)
    assert scores.m_recall == scores.rsum / 6
    assert scores.m_recall == pytest.approx((scores.i2t_mean + scores.t2i_mean) / 2)
    assert (scores.i2t_median_rank, scores.t2i_median_rank) == (1, 2)
    assert scores.i2t_mean_rank == pytest.approx(1.333333, abs=1e-6)
    assert scores.t2i_mean_rank == 2
    assert (scores.images, scores.captions, scores.folds, scores.tie_share) == (3, 6, 1, 0)


def test_captions_without_owners_are_shared_out_in_the_order_of_the_images(f) -> None:
    assert recall(f) == matrix_scores(f, torch.tensor([0, 0, 1, 1, 2, 2]))


def test_recall_at_two_of_f() -> None:
    assert recall_at_k(torch.tensor([0, 0, 1]), 2) == 100
    assert recall_at_k(torch.tensor([0, 2, 1, 0, 2, 1]), 2) == pytest.approx(66.666667, abs=1e-6)


def test_recalls_of_as_many_hits_have_one_m_recall_whichever_they_are() -> None:
    sums: dict[int, set[float]] = {}
    for first, second, third in itertools.product(range(30, 40), range(40, 50), range(50, 60)):
        recalls = [100 * hits / 101 for hits in (first, second, third)]
        row = RetrievalScores(*recalls, *recalls, 1, 1, 1.5, 2.5, 0.0, 101, 101, 1)
        sums.setdefault(first + second + third, set()).add(row.m_recall)
    assert {len(found) for found in sums.values()} == {1}


def test_as_dict_holds_every_number_by_name(f, owner) -> None:
    numbers = matrix_scores(f, owner).as_dict()
    assert set(numbers) == {
        "i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10", "i2t_mean", "t2i_mean", "rsum", "m_recall",
        "i2t_median_rank", "t2i_median_rank", "i2t_mean_rank", "t2i_mean_rank", "tie_share", "images", "captions",
        "folds",
    }
    assert all(isinstance(value, float) for value in numbers.values())
    assert numbers["m_recall"] == numbers["rsum"] / 6


@pytest.mark.parametrize(("ranks", "median"), [([0, 0, 1, 4], 1), ([0, 2, 1, 0, 2, 1], 2), ([7], 8), ([0, 1], 1)])
def test_median_rank_is_floored_like_the_references(ranks, median) -> None:
    assert median_rank(torch.tensor(ranks)) == median


def test_mean_rank_is_one_based() -> None:
    assert mean_rank(torch.tensor([0, 0, 1])) == pytest.approx(4 / 3)


def test_a_perfect_matrix_gives_100_and_a_constant_one_gives_zero(caplog) -> None:
    owner = torch.arange(60) // 3
    perfect = (torch.arange(20)[:, None] == owner[None, :]).float()
    assert matrix_scores(perfect, owner).m_recall == 100
    with caplog.at_level(logging.WARNING):
        collapsed = matrix_scores(torch.full((20, 60), 0.9), owner)
    assert collapsed.rsum == 0
    assert collapsed.tie_share == 1
    assert "100.0 % of the queries are ranked by a tie" in caplog.text


def test_few_ties_are_no_reason_to_warn(caplog) -> None:
    with caplog.at_level(logging.WARNING):
        scores = matrix_scores(torch.eye(12), torch.arange(12))
    assert scores.tie_share == 0
    assert caplog.text == ""


def test_fewer_candidates_than_k_are_worth_a_warning(f, owner, caplog) -> None:
    with caplog.at_level(logging.WARNING):
        matrix_scores(f, owner)
    assert "Only 3 candidates" in caplog.text


def folds_example() -> tuple[Tensor, Tensor]:
    """Embeddings whose products are the worked 4 x 4 matrix of the fold protocol."""
    rows = [[0.9, 0.2, 0.95, 0.1], [0.3, 0.5, 0.1, 0.6], [0.2, 0.1, 0.8, 0.85], [0.4, 0.3, 0.2, 0.7]]
    return torch.tensor(rows, dtype=torch.float64), torch.eye(4, dtype=torch.float64)


def test_folds_of_the_worked_example_are_easier_than_the_whole() -> None:
    images, captions = folds_example()
    whole = retrieval_scores(images, captions, torch.arange(4), similarity=product)
    assert (whole.i2t_r1, whole.t2i_r1) == (25, 50)
    folds = fold_scores(images, captions, torch.arange(4), similarity=product, folds=2)
    assert (folds.i2t_r1, folds.t2i_r1) == (75, 75)
    assert folds.i2t_mean_rank == pytest.approx(1.25)
    assert (folds.images, folds.captions, folds.folds) == (4, 4, 2)
    assert folds.m_recall == pytest.approx(folds.rsum / 6)


def test_one_fold_is_the_whole_set(f, owner) -> None:
    eye = torch.eye(6, dtype=torch.float64)
    assert fold_scores(f, eye, owner, similarity=product, folds=1) == matrix_scores(f, owner)
