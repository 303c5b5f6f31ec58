"""Additive-margin softmax: the worked numbers, learned margins, plain loops, edge cases."""

from __future__ import annotations

import math

import pytest
import torch
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


@pytest.mark.parametrize("seed", range(2))
def test_the_loss_equals_plain_loops(seed, random_pairs, make_pairs) -> None:
    similarity, ids, vectors = random_pairs(seed, 8)
    loss = build_loss(AdditiveMarginSpec(slope=0.25, intercept=0.125, softmax_temperature=0.2))
    q = functional.cosine_similarity(vectors[:, None], vectors[None, :], dim=2).tolist()
    images = plain_direction(similarity.tolist(), q, ids.tolist(), 0.25, 0.125, 0.2)
    captions = plain_direction(similarity.T.tolist(), q, ids.tolist(), 0.25, 0.125, 0.2)
    output = loss(make_pairs(similarity, ids, vectors))
    assert output.value.item() == pytest.approx((images + captions) / 2, abs=1e-9)
    assert {name: part.item() for name, part in output.parts.items()} == {"slope": 0.25, "intercept": 0.125}


def test_negatives_are_mined_by_similarity_plus_margin(e, vectors, make_pairs) -> None:
    selection = build_loss(AdditiveMarginSpec())(make_pairs(e, vectors=vectors)).selection
    assert selection.scores[0, 1].item() > e[0, 1].item()
    assert selection.scores[0, 0].item() == e[0, 0].item()
