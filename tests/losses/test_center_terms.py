"""Terms of the semantic centre loss and how they move centres: worked examples, derivatives, plain loops."""

from __future__ import annotations

import math

import pytest
import torch
from loss_values import close, gradient, square
from torch import nn

from vsetune.losses.parts.products import clamped_squared_distances
from vsetune.losses.semantic_center.centers import (
    Movement,
    concept_hinges,
    concept_movement,
    mean_assignment_entropy,
    repulsion,
    repulsion_movement,
    soft_hinges,
    soft_movement,
    table_gradient,
)

X = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]], dtype=torch.float64)
Y = torch.tensor([[0.8, 0.6], [0.0, 1.0], [-0.6, 0.8]], dtype=torch.float64)
OWN = torch.tensor([[0.9, 0.1], [0.5, 0.6], [-0.2, 0.8]], dtype=torch.float64)
FEW = torch.tensor([[0.9, 0.3], [-0.2, 0.9]], dtype=torch.float64)


def test_worked_example_of_concepts() -> None:
    close(concept_hinges(X, OWN, delta=0.0), [0.02, 0.05, 0.08])
    close(concept_hinges(Y, OWN, delta=0.0), [0.26, 0.41, 0.16])
    x, centers = X.clone().requires_grad_(), OWN.clone().requires_grad_()
    value = (concept_hinges(x, centers, delta=0.1) + concept_hinges(Y, centers, delta=0.1)).sum()
    assert value.item() == pytest.approx(0.53, abs=1e-9)
    close(gradient(value, centers), [[0.2, -1.0], [1.0, -0.8], [0.8, 0.0]])
    value = (concept_hinges(x, centers, delta=0.1) + concept_hinges(Y, centers, delta=0.1)).sum()
    close(gradient(value, x), torch.zeros(3, 2))


@pytest.mark.parametrize(
    ("delta", "image", "caption", "repelling", "total"),
    [(0.1, 0.824923, 0.743908, 0.0, 1.568831), (1.0, 0.184765, 0.157865, 0.43, 0.772630)],
)
def test_worked_example_of_quantised_centres(delta, image, caption, repelling, total) -> None:
    of_x, of_y = (2 * X).softmax(dim=1), (2 * Y).softmax(dim=1)
    close(of_x, [[0.880797, 0.119203], [0.401312, 0.598688], [0.119203, 0.880797]])
    close(of_y, [[0.598688, 0.401312], [0.119203, 0.880797], [0.057324, 0.942676]])
    close(clamped_squared_distances(X, FEW), [[0.1, 2.25], [0.34, 0.65], [1.3, 0.05]])
    close(clamped_squared_distances(Y, FEW), [[0.1, 1.09], [1.3, 0.05], [2.5, 0.17]])
    close(clamped_squared_distances(FEW, FEW), [[0.0, 1.57], [1.57, 0.0]])
    parts = [
        soft_hinges(X, FEW, of_x, delta=delta).values.sum(), soft_hinges(Y, FEW, of_y, delta=delta).values.sum(),
        repulsion(FEW, delta=delta),
    ]
    close(torch.stack(parts), [image, caption, repelling])
    assert sum(parts).item() == pytest.approx(total, abs=1e-6)


def test_the_entropy_of_the_mean_assignment_tells_balance_from_collapse() -> None:
    assert mean_assignment_entropy(torch.eye(5)).item() == pytest.approx(math.log(5))
    collapsed = torch.zeros(4, 5)
    collapsed[:, 2] = 1
    assert mean_assignment_entropy(collapsed) == 0


@pytest.mark.parametrize("delta", [0.1, 1.0])
def test_the_plain_movement_is_the_gradient_of_the_summed_term(delta, random_embedded_pairs) -> None:
    inputs = random_embedded_pairs(10, 6)
    images, captions = inputs.images.vectors.detach(), inputs.captions.vectors.detach()
    table = torch.randn(4, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64, requires_grad=True)
    items = torch.cat([images, captions])
    weights = (3 * items @ table.detach().T).softmax(dim=1)
    hinges = soft_hinges(items, table, weights, delta=delta)
    value = hinges.values.sum() + 0.7 * repulsion(table, delta=3 * delta)
    assert torch.equal(hinges.pulling, weights * (torch.cdist(items, table).square() > delta))
    pull = soft_movement(items, table, hinges.pulling)
    repelled, push = repulsion_movement(table, delta=3 * delta)
    assert repelled == repulsion(table, delta=3 * delta)
    both = Movement(pull.half_gradient + 0.7 * push.half_gradient, pull.weight + 0.7 * push.weight)
    close(table_gradient(both, "sgd"), gradient(value, table), 1e-9)
    halved = gradient(soft_hinges(items, table, weights, delta=delta).values.sum(), table) / (2 * (1 + pull.weight))
    close(table_gradient(pull, "count_normalised"), halved, 1e-9)

    ids = torch.arange(6) % 4
    own = table[ids]
    value = (concept_hinges(images, own, delta=delta) + concept_hinges(captions, own, delta=delta)).sum()
    rows = table_gradient(concept_movement(images, captions, own, ids, delta=delta), "sgd")
    close(torch.zeros_like(table).index_add(0, ids, rows).detach(), gradient(value, table), 1e-9)


def test_crowded_centres_are_pushed_as_in_plain_loops() -> None:
    table = torch.randn(9, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    table[7] += 100  # far from everybody
    table[8] = table[0]
    value, (half, weight) = repulsion_movement(table, delta=0.6)
    for k in range(9):
        near = [other for other in range(9) if other != k and square(table[k], table[other]) < 1.2]
        assert weight[k].item() == len(near)
        expected = sum((table[other] - table[k] for other in near), torch.zeros(3, dtype=torch.float64))
        close(half[k], expected, 1e-12)
    assert 0 < int((weight == 0).sum()) < 9
    lacking = [max(0.0, 1.2 - square(table[k], table[other])) for k in range(9) for other in range(k)]
    assert value.item() == pytest.approx(sum(lacking), abs=1e-12)


def test_a_gpu_is_never_asked_which_centres_are_crowded() -> None:
    """Reading a value of the meta device would raise."""
    value, (half, weight) = repulsion_movement(torch.empty(9, 3, device="meta"), delta=0.6)
    assert (value.shape, half.shape, weight.shape) == ((), (9, 3), (9, 1))


def test_near_duplicates_never_have_a_negative_distance() -> None:
    points = nn.functional.normalize(torch.randn(200, 64, generator=torch.Generator().manual_seed(0)))
    assert clamped_squared_distances(points, points).min() == 0
    assert clamped_squared_distances(points, points).diagonal().max() < 1e-6
