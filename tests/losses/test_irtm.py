"""IRTM: mean hinge over the h hardest negatives of each query."""

from __future__ import annotations

import pytest
import torch
from loss_values import candidates_of, gradient

from vsetune.losses.irtm.loss import mean_hardest_hinges
from vsetune.losses.irtm.spec import IrtmSpec
from vsetune.losses.loss_building import build_loss


def test_worked_pair_of_the_paper() -> None:
    # ITM(I, T) 0.90, T- 0.80, I- 0.65: 0.1 + 0
    scores = torch.tensor([[0.90, 0.80], [0.65, 0.95]], dtype=torch.float64)
    among = candidates_of(scores, ~torch.eye(2, dtype=torch.bool))
    terms = mean_hardest_hinges(among, scores.diagonal(), margin=0.2, hardest=1)
    assert terms.images[0].item() == pytest.approx(0.1)
    assert terms.captions[0].item() == 0.0


def test_matrix_e_by_hand(e, make_pairs) -> None:
    # one negative each is LMH / 3; both negatives each is LSH / 6
    assert build_loss(IrtmSpec(hardest=1))(make_pairs(e)).value.item() == pytest.approx(0.80 / 3)
    both = build_loss(IrtmSpec(hardest=2))(make_pairs(e)).value
    assert both.item() == pytest.approx(1.15 / 6)
    expected = torch.tensor([[-1, 2, 0], [1, -4, 2], [0, 1, -1]], dtype=torch.float64) / 6
    torch.testing.assert_close(gradient(both, e), expected)
