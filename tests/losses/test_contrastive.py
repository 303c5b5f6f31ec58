"""Pair loss on distances: worked example, plain loops, the three pools of negatives, odd batches."""

from __future__ import annotations

import math

import pytest
import torch

from vsetune.losses.adaptive_margin.loss import random_derangement
from vsetune.losses.contrastive.loss import pair_terms
from vsetune.losses.contrastive.spec import ContrastiveSpec
from vsetune.losses.loss_building import build_loss

OFF = ~torch.eye(3, dtype=torch.bool)


def test_worked_example_on_e(e) -> None:
    """D(E) off the diagonal: 1.000000 1.341641 | 1.183216 0.948683 | 1.264911 1.048809; m = 1 and 1.2."""
    attraction, repulsion = pair_terms(e, OFF, margin=1.0, squared=False)
    assert attraction.tolist() == pytest.approx([0.894427, 1.095445, 0.774597], abs=1e-6)
    assert repulsion.tolist() == pytest.approx([0.0, 1 - 0.948683, 0.0], abs=1e-6)
    _, repulsion = pair_terms(e, OFF, margin=1.2, squared=False)
    assert repulsion.tolist() == pytest.approx([0.2, 0.016784 + 0.251317, 0.151191], abs=1e-6)
    attraction, repulsion = pair_terms(e, OFF, margin=1.2, squared=True)
    assert attraction.tolist() == pytest.approx([0.8, 1.2, 0.6], abs=1e-6)
    assert repulsion.tolist() == pytest.approx([0.2, 0.3, 0.1], abs=1e-6)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("negatives", ["random", "hardest", "all"])
def test_it_equals_plain_loops_on_duplicate_images(seed, squared, negatives, random_pairs, make_pairs) -> None:
    similarity, ids, _ = random_pairs(seed, 11)
    torch.manual_seed(seed)
    output = build_loss(ContrastiveSpec(negatives=negatives, squared=squared, margin=1.3))(make_pairs(similarity, ids))
    torch.manual_seed(seed)
    drawn = random_derangement(11).tolist()
    s = similarity.tolist()

    def distance(row: int, column: int) -> float:
        square = 2 - 2 * s[row][column]
        return square if squared else math.sqrt(square)

    expected = sum(distance(i, i) for i in range(11))
    for i in range(11):
        others = [j for j in range(11) if ids[j] != ids[i]]
        if negatives == "random":
            others = [j for j in others if j == drawn[i]]
        elif negatives == "hardest":
            others = [min(others, key=lambda j, i=i: distance(i, j))]
        expected += sum(max(0.0, 1.3 - distance(i, j)) for j in others)
    assert output.value.item() == pytest.approx(expected, abs=1e-9)
    assert sum(output.parts.values()).item() == pytest.approx(expected, abs=1e-9)
