"""Unique hard negatives: worked matrices, hubs, collapse, queries without negatives."""

from __future__ import annotations

import pytest
import torch

from vsetune.metrics.hard_negatives import unique_hard_negatives

E_MATRIX = torch.tensor([[0.60, 0.50, 0.10], [0.30, 0.40, 0.55], [0.20, 0.45, 0.70]])


def off_diagonal(size: int) -> torch.Tensor:
    return ~torch.eye(size, dtype=torch.bool)


def test_counts_of_e_and_of_its_active_queries() -> None:
    result = unique_hard_negatives(
        E_MATRIX, off_diagonal(3),
        active_images=torch.tensor([True, True, False]), active_captions=torch.tensor([False, True, True]),
    )
    assert (result.captions, result.images) == (2, 2)
    assert (result.active_captions, result.active_images) == (2, 2)
    assert (result.image_queries, result.caption_queries) == (2, 2)
    assert result.as_dict() == {
        "captions": 2, "images": 2, "active_captions": 2, "active_images": 2, "image_queries": 2, "caption_queries": 2,
    }


def test_only_active_queries_count_in_the_active_pair() -> None:
    result = unique_hard_negatives(
        E_MATRIX, off_diagonal(3),
        active_images=torch.tensor([True, False, False]), active_captions=torch.zeros(3, dtype=torch.bool),
    )
    assert (result.active_captions, result.active_images) == (1, 0)


@pytest.mark.parametrize("seed", range(2))
def test_counts_equal_plain_loops_with_ignored_pairs(seed) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(7, 12, generator=generator)
    negatives = torch.rand(7, 12, generator=generator) > 0.5
    negatives[0] = False
    chosen = [set(), set()]
    for row in range(7):
        candidates = [(scores[row, column].item(), column) for column in range(12) if negatives[row, column]]
        chosen[0] |= {max(candidates)[1]} if candidates else set()
    for column in range(12):
        candidates = [(scores[row, column].item(), row) for row in range(7) if negatives[row, column]]
        chosen[1] |= {max(candidates)[1]} if candidates else set()
    result = unique_hard_negatives(scores, negatives, active_images=None, active_captions=None)
    assert (result.captions, result.images) == (len(chosen[0]), len(chosen[1]))


def test_a_batch_without_negatives_selects_nothing() -> None:
    none = torch.zeros(1, dtype=torch.bool)
    result = unique_hard_negatives(torch.ones(1, 1), none[None, :], active_images=none, active_captions=none)
    assert (result.captions, result.images, result.active_captions) == (0, 0, 0)


def test_what_is_no_negative_may_hold_any_score() -> None:
    scores = E_MATRIX.clone().fill_diagonal_(float("nan"))
    result = unique_hard_negatives(scores, off_diagonal(3), active_images=None, active_captions=None)
    assert (result.captions, result.images) == (2, 2)
