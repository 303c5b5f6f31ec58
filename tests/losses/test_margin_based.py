"""Margin-based loss: worked numbers, the learned boundary, and drawing negatives by distance."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from vsetune.losses.adaptive_margin.loss import distances
from vsetune.losses.loss_base import Items, LossInputs
from vsetune.losses.loss_building import build_loss
from vsetune.losses.margin_based.loss import (
    draw,
    log_inverse_density,
    negative_hinges,
    positive_hinges,
    sampling_weights,
)
from vsetune.losses.margin_based.spec import MarginBasedSpec

OFF = ~torch.eye(3, dtype=torch.bool)


def embedded(inputs: LossInputs, size: int = 16) -> LossInputs:
    """The batch with embeddings, of which the loss reads the size only."""
    items = Items(torch.zeros(len(inputs.similarity), size))
    return replace(inputs, images=items, captions=items)


def weights_of(grid: Tensor, negatives: Tensor, *, embedding_size: int, cutoff: float, limit: float) -> Tensor:
    logs = log_inverse_density(grid, embedding_size=embedding_size, cutoff=cutoff, limit=limit)
    return sampling_weights(logs, negatives & (grid <= limit), negatives)


def all_pairs(**settings: object) -> MarginBasedSpec:
    return MarginBasedSpec(negatives="all", **settings)


def test_terms_of_the_worked_example(e) -> None:
    beta = torch.tensor(1.2, dtype=torch.float64, requires_grad=True)
    grid = distances(e, squared=False)
    positives = positive_hinges(grid.diagonal(), boundary=beta, margin=0.2)
    negatives = negative_hinges(grid, boundary=beta, margin=0.2)[OFF]
    assert positives.tolist() == pytest.approx([0, 0.095445, 0], abs=1e-6)
    assert negatives.tolist() == pytest.approx([0.4, 0.058359, 0.216784, 0.451317, 0.135089, 0.351191], abs=1e-6)
    total = positives.sum() + negatives.sum()
    assert total.item() == pytest.approx(1.708185, abs=1e-6)
    (slope,) = torch.autograd.grad(total, beta)
    assert slope.item() == 5


def test_the_loss_divides_by_the_terms_that_are_not_zero_and_adds_the_penalty(e, make_pairs) -> None:
    output = build_loss(all_pairs())(make_pairs(e))
    assert output.value.item() == pytest.approx(1.708185 / 7, abs=1e-6)
    assert output.parts["nonzero_terms"].item() == 7
    assert output.parts["boundary"].item() == pytest.approx(1.2)
    penalised = build_loss(all_pairs(boundary_penalty=0.5))(make_pairs(e)).value
    assert penalised.item() == pytest.approx(1.708185 / 7 + 0.6, abs=1e-6)


def test_the_boundary_moves_at_its_own_rate_unless_that_is_zero(e, make_pairs) -> None:
    loss = build_loss(all_pairs(boundary_learning_rate=0.03))
    (group,) = loss.parameter_groups()
    assert group.sgd_rate == 0.03
    assert [id(parameter) for parameter in group.parameters] == [id(loss.boundary)]
    loss(make_pairs(e)).value.backward()
    assert loss.boundary.grad.item() == pytest.approx(5 / 7, abs=1e-6)
    fixed = build_loss(all_pairs(boundary_learning_rate=0))
    assert fixed.parameter_groups() == []
    fixed(make_pairs(e)).value.backward()
    assert fixed.boundary.grad is None


@pytest.mark.parametrize("seed", range(2))
def test_all_pairs_equal_plain_loops(seed, random_pairs, make_pairs) -> None:
    similarity, ids, _ = random_pairs(seed, 9)
    loss = build_loss(all_pairs(boundary=1.0, margin=0.15, boundary_penalty=0.25))
    terms = []
    for i in range(9):
        for j in range(9):
            distance = math.sqrt(2 - 2 * similarity[i, j].item())
            if i == j:
                terms.append(max(0.0, 0.15 + distance - 1.0))
            elif ids[i] != ids[j]:
                terms.append(max(0.0, 0.15 - distance + 1.0))
    expected = sum(terms) / sum(term > 0 for term in terms) + 0.25
    assert loss(make_pairs(similarity, ids)).value.item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("seed", range(2))
def test_drawn_pairs_equal_plain_loops(seed, random_pairs, make_pairs) -> None:
    similarity, ids, _ = random_pairs(seed, 9)
    loss = build_loss(MarginBasedSpec(boundary=1.0, margin=0.15))
    torch.manual_seed(seed)
    output = loss(embedded(make_pairs(similarity, ids), 6))
    torch.manual_seed(seed)
    grid = distances(similarity.detach(), squared=False)
    different = ids[:, None] != ids[None, :]
    settings = {"embedding_size": 6, "cutoff": 0.5, "limit": 1.4}
    columns = draw(weights_of(grid, different, **settings)).tolist()
    rows = draw(weights_of(grid.T, different.T, **settings)).tolist()
    terms = []
    for query in range(9):
        terms += [max(0.0, 0.15 + grid[query, query].item() - 1.0)] * 2
        for row, column in ((query, columns[query]), (rows[query], query)):
            if ids[row] != ids[column]:
                terms.append(max(0.0, 0.15 - grid[row, column].item() + 1.0))
    assert output.value.item() == pytest.approx(sum(terms) / sum(term > 0 for term in terms), abs=1e-9)


def test_weights_are_the_inverse_density_of_distances_on_the_sphere() -> None:
    size, grid = 7, torch.tensor([[0.3, 0.6, 1.0, 1.3, 1.7]], dtype=torch.float64)
    negatives = torch.tensor([[True, True, False, True, True]])
    weights = weights_of(grid, negatives, embedding_size=size, cutoff=0.5, limit=1.4)[0]

    def density(d: float) -> float:
        return d ** (size - 2) * (1 - d * d / 4) ** ((size - 3) / 2)

    assert weights.tolist() == pytest.approx([1, density(0.5) / density(0.6), 0, density(0.5) / density(1.3), 0])


def test_large_embeddings_neither_overflow_nor_vanish() -> None:
    grid = torch.tensor([[0.0, 0.7, 1.2], [1.0, 1.1, 1.399]])
    weights = weights_of(grid, torch.ones(2, 3, dtype=torch.bool), embedding_size=2048, cutoff=0.5, limit=1.4)
    assert weights.isfinite().all()
    assert weights.amax(dim=1).tolist() == [1, 1]


def test_far_negatives_are_drawn_only_by_queries_that_have_no_others() -> None:
    grid = torch.tensor([[1.6, 1.2, 1.9], [1.5, 2.0, 1.45], [1.0, 1.1, 1.2]])
    negatives = torch.tensor([[True, True, True], [False, True, True], [False, False, False]])
    weights = weights_of(grid, negatives, embedding_size=8, cutoff=0.5, limit=1.4)
    assert weights[:2].tolist() == [[0, 1, 0], [0, 1, 1]]
    assert (weights[2] > 0).any()


def test_draws_come_from_the_global_generator_and_follow_the_weights() -> None:
    weights = torch.tensor([[0.0, 0.5, 1.0]]).expand(6000, 3)
    torch.manual_seed(3)
    first = draw(weights)
    torch.manual_seed(3)
    assert torch.equal(first, draw(weights))
    shares = torch.bincount(first, minlength=3) / 6000
    assert shares.tolist() == pytest.approx([0, 1 / 3, 2 / 3], abs=0.03)
