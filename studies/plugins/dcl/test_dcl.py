"""The quality list every loss of vsetune passes, and the formula by hand. Run it: pytest path/to/dcl"""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from vsetune.losses.loss_base import LossInputs
from vsetune.losses.loss_building import build_loss
from vsetune.quality.checks import Check
from vsetune.quality.loss_batches import LossSubject
from vsetune.quality.loss_checks import LOSS_CHECKS
from vsetune.quality.subjects import loss_at

FOLDER = Path(__file__).parent


@pytest.mark.parametrize("check", LOSS_CHECKS, ids=str)
def test_the_quality_list(check: Check[LossSubject]) -> None:
    check.require(LossSubject(loss_at(FOLDER)))


def test_the_value_equals_plain_loops() -> None:
    loss = build_loss(loss_at(FOLDER).model_validate({"name": "dcl", "scale": 4.0}))
    loss.start_epoch(0)
    rows = [[0.6, 0.5, 0.1], [0.3, 0.4, 0.55], [0.2, 0.45, 0.7]]
    ids = torch.tensor([7, 7, 9])  # the first two captions are of one image: no negatives of one another
    similarity = torch.tensor(rows, dtype=torch.float64, requires_grad=True)
    total = 0.0
    for matrix in (rows, [list(column) for column in zip(*rows, strict=True)]):
        for i, row in enumerate(matrix):
            others = [math.exp(4 * score) for j, score in enumerate(row) if ids[i] != ids[j]]
            total += (math.log(sum(others)) - 4 * row[i]) / 6
    found = loss(LossInputs(similarity, ids, ids, torch.arange(3))).value
    assert found.item() == pytest.approx(total)
