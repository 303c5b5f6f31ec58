"""Pair loss on distances: worked example, plain loops, the three pools of negatives, odd batches."""

from __future__ import annotations

import math

import pytest
import torch
from loss_values import gradient

from vsetune.losses.adaptive_margin.loss import random_derangement
from vsetune.losses.contrastive.loss import pair_terms, used_negatives
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


@pytest.mark.parametrize("seed", range(3))
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


@pytest.mark.parametrize("squared", [False, True])
def test_gradients_agree_with_finite_differences(squared, random_pairs) -> None:
    similarity, ids, _ = random_pairs(4, 6)
    negatives = ids[:, None] != ids[None, :]
    assert torch.autograd.gradcheck(
        lambda s: torch.stack(pair_terms(s, negatives, margin=1.2, squared=squared)).sum(), similarity
    )


def test_the_gradient_is_one_over_the_distance(e, make_pairs) -> None:
    result = gradient(build_loss(ContrastiveSpec(negatives="all"))(make_pairs(e)).value, e)
    expected = torch.diag(-1 / (2 - 2 * e.detach().diagonal()).sqrt())
    expected[1, 2] = 1 / math.sqrt(0.9)  # the only distance below 1
    torch.testing.assert_close(result, expected)


def test_same_image_captions_neither_attract_nor_repel(random_pairs, make_pairs) -> None:
    similarity, _, _ = random_pairs(5, 4)
    ids = [1, 1, 2, 3]
    for negatives in ("random", "hardest", "all"):
        loss = build_loss(ContrastiveSpec(negatives=negatives, margin=1.4))
        result = gradient(loss(make_pairs(similarity, ids)).value, similarity)
        assert result[0, 1] == result[1, 0] == 0


def test_each_image_uses_one_negative_unless_it_uses_all(random_pairs) -> None:
    similarity, _, _ = random_pairs(6, 8)
    negatives = ~torch.eye(8, dtype=torch.bool)
    for rule in ("random", "hardest"):
        used = used_negatives(similarity, negatives, rule)
        assert used.sum(dim=1).tolist() == [1] * 8
        assert not used.diagonal().any()
    assert used_negatives(similarity, negatives, "all") is negatives
    hardest = similarity.masked_fill(~negatives, -2).argmax(dim=1)
    assert torch.equal(used_negatives(similarity, negatives, "hardest").int().argmax(dim=1), hardest)


def test_with_all_negatives_images_and_captions_may_swap(random_pairs, make_pairs) -> None:
    similarity, ids, _ = random_pairs(7, 6)
    loss = build_loss(ContrastiveSpec(negatives="all"))
    swapped = loss(make_pairs(similarity.T, ids)).value
    assert swapped.item() == pytest.approx(loss(make_pairs(similarity, ids)).value.item(), abs=1e-12)


def test_perfect_separation_costs_nothing_and_collapse_costs_the_margins(make_pairs) -> None:
    apart = 2 * torch.eye(4) - 1
    for negatives, collapsed in (("random", 4.0), ("hardest", 4.0), ("all", 12.0)):
        loss = build_loss(ContrastiveSpec(negatives=negatives))
        assert loss(make_pairs(apart)).value.item() == pytest.approx(0.0, abs=1e-5)
        assert loss(make_pairs(torch.ones(4, 4))).value.item() == pytest.approx(collapsed, abs=1e-4)


@pytest.mark.parametrize("negatives", ["random", "hardest", "all"])
@pytest.mark.parametrize("ids", [[0], [5, 5], [0, 1], [7, 7, 7]])
def test_odd_batches_are_defined_in_float32(negatives, ids, make_pairs) -> None:
    """One pair, one image, similarity exactly 1 and a hair above."""
    for level in (1.0, 1.0 + 2e-7, 0.3):
        similarity = torch.full((len(ids), len(ids)), level, requires_grad=True)
        value = build_loss(ContrastiveSpec(negatives=negatives))(make_pairs(similarity, ids)).value
        assert value.isfinite()
        assert gradient(value, similarity).isfinite().all()
        matched = len(ids) * math.sqrt(max(0.0, 2 - 2 * level))
        repelled = 2 * max(0.0, 1 - math.sqrt(max(0.0, 2 - 2 * level))) if ids == [0, 1] else 0.0
        assert value.item() == pytest.approx(matched + repelled, abs=1e-4)
