"""The losses around synthetic sentences: cases worked by hand, and plain loops with their gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from vsetune.networks.tags.sentence_terms import masked_word_loss, synthetic_triplets, word_discrimination

ONE = torch.zeros(1, dtype=torch.int64)


def as_logits(probabilities: list[float]) -> Tensor:
    """(1, L, 2) of which class 1 has these probabilities."""
    same = torch.tensor(probabilities, dtype=torch.float64)
    return torch.stack((1 - same, same), dim=-1).log()[None]


def test_the_worked_examples() -> None:
    triplets = synthetic_triplets(torch.tensor([0.9]).double(), torch.tensor([0.85, 0.95]).double(),
                                  ONE.expand(2), margin=0.2)
    assert triplets.item() == pytest.approx(0.2, abs=1e-6)
    is_same = torch.tensor([[True, True, False, True, True]])
    logits, counted = as_logits([0.9, 0.8, 0.3, 0.95, 0.7]), torch.ones_like(is_same)
    plain = word_discrimination(logits, is_same, counted, ONE)
    assert plain.item() == pytest.approx(0.218629, abs=1e-6)
    released = word_discrimination(logits, is_same, counted, ONE, replaced_weight=1.0, same_weight=0.11)
    assert released.item() == pytest.approx(0.087537, abs=1e-6)
    words = torch.tensor([[0.4, 0.6], [0.1, 0.9]], dtype=torch.float64).log()
    corrected = masked_word_loss(words, torch.tensor([0, 1]), ONE.expand(2))
    assert corrected.item() == pytest.approx(0.510826, abs=1e-6)
    guessed, retrieved = 1.039721, 0.1
    total = retrieved + 0.1 * guessed + 1e-3 * float(triplets + plain + corrected)
    assert total == pytest.approx(0.204902, abs=1e-6)


@pytest.mark.parametrize("weights", [(1.0, 1.0), (1.0, 0.11)])
def test_every_term_and_its_gradient_is_that_of_plain_loops(weights: tuple[float, float]) -> None:
    generator = torch.Generator().manual_seed(0)
    owners, lengths = torch.tensor([0, 2, 0, 0, 2]), [4, 2, 4, 4, 2]
    matched = torch.rand(3, generator=generator, dtype=torch.float64).requires_grad_()
    synthetic = torch.rand(5, generator=generator, dtype=torch.float64).requires_grad_()
    logits = torch.randn(5, 4, 2, generator=generator, dtype=torch.float64).requires_grad_()
    is_same = torch.rand(5, 4, generator=generator) < 0.6
    counted = torch.arange(4) < torch.tensor(lengths)[:, None]
    triplets, found = matched.new_zeros(()), matched.new_zeros(())
    for owner in (0, 2):
        rows = [row for row in range(5) if owners[row] == owner]
        for row in rows:
            triplets = triplets + (0.2 - matched[owner] + synthetic[row]).clamp(min=0) / len(rows) / 2
            for place in range(lengths[row]):
                same = bool(is_same[row, place])
                loss = logits[row, place].exp().sum().log() - logits[row, place, int(same)]
                found = found + weights[same] * loss / lengths[row] / len(rows) / 2
    batched = (
        synthetic_triplets(matched, synthetic, owners, margin=0.2),
        word_discrimination(logits, is_same, counted, owners, replaced_weight=weights[0], same_weight=weights[1]),
    )
    torch.testing.assert_close(batched, (triplets, found), rtol=0, atol=1e-12)
    inputs = [matched, synthetic, logits]
    gradients = [torch.autograd.grad(sum(terms), inputs) for terms in (batched, (triplets, found))]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-12)


def test_an_empty_pool_costs_nothing() -> None:
    none = torch.zeros(0, dtype=torch.int64)
    assert synthetic_triplets(torch.tensor([0.9]), torch.zeros(0), none, margin=0.2).item() == 0
    nothing = torch.zeros(0, 4, dtype=torch.bool)
    assert word_discrimination(torch.zeros(0, 4, 2), nothing, nothing, none).item() == 0
