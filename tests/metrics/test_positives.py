"""The scores of relevant pairs are found wherever the pairs stand."""

from __future__ import annotations

import pytest
import torch

from vsetune.metrics.positives import Positives
from vsetune.metrics.score_blocks import MatrixScores


@pytest.mark.parametrize("rows", [[0, 299], [130, 131], [299], [0, 70, 140, 210, 280]])
def test_images_without_a_pair_hide_none_of_those_after_them(rows: list[int]) -> None:
    scores = torch.rand(300, 4, generator=torch.Generator().manual_seed(0))
    pairs = torch.tensor([[row, place % 4] for place, row in enumerate(rows)])
    positives = Positives.of_pairs(pairs, images=300, captions=4)
    assert positives.scores(MatrixScores(scores)).tolist() == [scores[row, caption].item() for row, caption in pairs]
