"""Additive-margin softmax: the worked numbers, learned margins, plain loops, edge cases."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from vsetune.losses.additive_margin.loss import additive_margins, softmax_margin_terms
from vsetune.losses.additive_margin.spec import AdditiveMarginSpec
from vsetune.losses.loss_building import build_loss

Q = torch.tensor([[1, 0.9, 0.1], [0.9, 1, 0.3], [0.1, 0.3, 1]], dtype=torch.float64)
U, V = torch.tensor(0.1, dtype=torch.float64), torch.tensor(0.05, dtype=torch.float64)
OFF = ~torch.eye(3, dtype=torch.bool)


def plain_direction(
    s: list[list[float]], q: list[list[float]], ids: list[int], u: float, v: float, temperature: float
) -> float:
    """Mean of -log softmax over the queries (rows); other captions of the same image are left out."""
    total = 0.0
    for i in range(len(s)):
        logits = [s[i][i] / temperature]
        logits += [(s[i][k] + u * q[i][k] + v) / temperature for k in range(len(s)) if ids[k] != ids[i]]
        total -= math.log(math.exp(logits[0]) / sum(math.exp(logit) for logit in logits))
    return total / len(s)


def test_terms_of_the_worked_example(e) -> None:
    margins = additive_margins(Q, U, V)
    assert margins[0].tolist() == pytest.approx([0, 0.14, 0.06])
    terms = softmax_margin_terms(e, margins, OFF, softmax_temperature=0.1)
    assert terms.images.tolist() == pytest.approx([0.917930, 2.523006, 0.178113], abs=1e-6)
    assert terms.images.mean().item() == pytest.approx(1.206350, abs=1e-6)


def test_without_margin_it_is_cross_entropy(e) -> None:
    nothing = torch.zeros(3, 3, dtype=torch.float64)
    terms = softmax_margin_terms(e, nothing, OFF, softmax_temperature=0.1)
    target = torch.arange(3)
    torch.testing.assert_close(terms.images, functional.cross_entropy(e / 0.1, target, reduction="none"))
    torch.testing.assert_close(terms.captions, functional.cross_entropy(e.T / 0.1, target, reduction="none"))


@pytest.mark.parametrize("seed", range(4))
def test_the_loss_equals_plain_loops(seed, random_pairs, make_pairs) -> None:
    similarity, ids, vectors = random_pairs(seed, 8)
    loss = build_loss(AdditiveMarginSpec(slope=0.25, intercept=0.125, softmax_temperature=0.2))
    q = functional.cosine_similarity(vectors[:, None], vectors[None, :], dim=2).tolist()
    images = plain_direction(similarity.tolist(), q, ids.tolist(), 0.25, 0.125, 0.2)
    captions = plain_direction(similarity.T.tolist(), q, ids.tolist(), 0.25, 0.125, 0.2)
    output = loss(make_pairs(similarity, ids, vectors))
    assert output.value.item() == pytest.approx((images + captions) / 2, abs=1e-9)
    assert {name: part.item() for name, part in output.parts.items()} == {"slope": 0.25, "intercept": 0.125}


def test_gradients_agree_with_finite_differences(random_pairs) -> None:
    similarity, ids, _ = random_pairs(2, 5)
    q = torch.rand(5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    negatives = ids[:, None] != ids[None, :]

    def loss(s: Tensor, u: Tensor, v: Tensor) -> Tensor:
        return softmax_margin_terms(s, additive_margins(q, u, v), negatives, softmax_temperature=0.3).total()

    assert torch.autograd.gradcheck(loss, (similarity, U.clone().requires_grad_(), V.clone().requires_grad_()))


def test_margins_train_with_the_network_unless_they_are_fixed(e, vectors, make_pairs) -> None:
    loss = build_loss(AdditiveMarginSpec())
    (group,) = loss.parameter_groups()
    assert group.sgd_rate is None
    assert {id(parameter) for parameter in group.parameters} == {id(loss.slope), id(loss.intercept)}
    loss(make_pairs(e, None, vectors)).value.backward()
    assert loss.slope.grad.item() > 0
    assert loss.intercept.grad.item() > 0
    fixed = build_loss(AdditiveMarginSpec(learned=False))
    assert fixed.parameter_groups() == []
    fixed(make_pairs(e, None, vectors)).value.backward()
    assert fixed.slope.grad is None


def test_other_captions_of_the_image_leave_the_denominator(e, vectors, make_pairs) -> None:
    loss = build_loss(AdditiveMarginSpec(learned=False))
    value = loss(make_pairs(e, [4, 5, 4], vectors)).value
    (result,) = torch.autograd.grad(value, e)
    assert result[0, 2].item() == result[2, 0].item() == 0
    moved = e.detach().clone()
    moved[0, 2] = moved[2, 0] = 1.0
    assert loss(make_pairs(moved, [4, 5, 4], vectors)).value.item() == pytest.approx(value.item(), abs=1e-12)


def test_collapse_without_margin_is_chance(make_pairs) -> None:
    loss = build_loss(AdditiveMarginSpec(slope=0, intercept=0))
    value = loss(make_pairs(torch.full((6, 6), 0.3), None, torch.ones(6, 2))).value
    assert value.item() == pytest.approx(math.log(6))


def test_negatives_are_mined_by_similarity_plus_margin(e, vectors, make_pairs) -> None:
    selection = build_loss(AdditiveMarginSpec())(make_pairs(e, [4, 5, 4], vectors)).selection
    assert selection.is_proxy
    assert not selection.negatives[0, 2]
    assert selection.scores[0, 1].item() > e[0, 1].item()
