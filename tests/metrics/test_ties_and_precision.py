"""Ties are seen in blocks of any size, and no score loses the digits it came with."""

from __future__ import annotations

import pytest
import torch

from vsetune.metrics.positives import Positives
from vsetune.metrics.ranks import retrieval_ranks
from vsetune.metrics.score_blocks import MatrixScores, MeanScores

SCORES = torch.tensor([
    [0.5, 0.9, 0.1, 0.8, 0.7, 0.2],  # image 0 owns caption 0: three better ones, no tie
    [0.3, 0.4, 0.4, 0.1, 0.9, 0.0],  # image 1 owns caption 1: one better, one tied
    [0.2, 0.1, 0.6, 0.0, 0.3, 0.6],  # image 2 owns caption 2: one tied
])


@pytest.mark.parametrize("block_shape", [(3, 6), (1, 1), (2, 2), (3, 4), (1, 5)])
def test_a_tie_is_a_tie_in_blocks_of_any_size(block_shape: tuple[int, int]) -> None:
    positives = Positives.of_pairs(torch.tensor([[0, 0], [1, 1], [2, 2]]), images=3, captions=6)
    ranks = retrieval_ranks(MatrixScores(SCORES), positives, block_shape=block_shape)
    assert ranks.image_to_text.ranks.tolist() == [3, 2, 1]
    assert ranks.image_to_text.tied.tolist() == [False, True, True]
    assert ranks.text_to_image.ranks.tolist() == [0, 1, 0]
    assert ranks.text_to_image.tied.tolist() == [False, False, False]


def test_scores_that_only_float64_tells_apart_do_not_tie() -> None:
    scores = torch.tensor([[0.5 + 1e-12, 0.5]], dtype=torch.float64)
    positives = Positives.of_pairs(torch.tensor([[0, 0]]), images=1, captions=2)
    ranks = retrieval_ranks(MatrixScores(scores), positives).image_to_text
    assert (ranks.ranks.tolist(), ranks.tied.tolist()) == ([0], [False])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_compared_in_float32(dtype: torch.dtype) -> None:
    assert MatrixScores(SCORES.to(dtype)).block(slice(0, 1), slice(0, 2)).dtype == torch.float32


def test_an_ensemble_of_one_is_its_member() -> None:
    mean = MeanScores([MatrixScores(SCORES)])
    assert mean.shape == (3, 6)
    assert torch.equal(mean.block(slice(0, 3), slice(0, 6)), SCORES)
