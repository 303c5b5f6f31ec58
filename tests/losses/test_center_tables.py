"""Centres of concepts and quantised centres: how they start, how they move, what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from loss_values import close, square
from sklearn.exceptions import ConvergenceWarning

from vsetune.losses.semantic_center.centers import cluster_centers

X = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]], dtype=torch.float64)
Y = torch.tensor([[0.8, 0.6], [0.0, 1.0], [-0.6, 0.8]], dtype=torch.float64)
CENTER_ONLY = {"triplet_weight": 0.0, "image_class_weight": 0.0, "caption_class_weight": 0.0}


@pytest.fixture
def moved(make_center_loss, embedded_pairs, center_step) -> Callable[..., list[float]]:
    """(steps, fields) -> where a centre that starts at 0 stands after each step, image and caption at 1."""

    def move(steps: int, **fields: Any) -> list[float]:
        loss = make_center_loss(1, 1, center_start="normal", delta=0.0, **CENTER_ONLY, **fields)
        loss.centers.table.data.zero_()
        seen = []
        for _ in range(steps):
            point = torch.ones(1, 1, dtype=torch.float64)
            center_step(loss, embedded_pairs(point, point.clone().requires_grad_(), [0]))
            seen.append(loss.centers.table.item())
        return seen

    return move


def test_count_normalised_centres_approach_the_mean(moved) -> None:
    assert moved(4) == pytest.approx([0.333333, 0.555556, 0.703704, 0.802469], abs=1e-6)


def test_the_weight_of_the_term_does_not_change_how_centres_move(moved) -> None:
    assert moved(2, center_weight=0.01) == moved(2)
    assert moved(2, center_weight=0.01, center_update="sgd") == moved(2, center_update="sgd")


def test_plain_gradients_overshoot_for_ever(moved) -> None:
    assert moved(4, center_update="sgd") == pytest.approx([2, 0, 2, 0], abs=1e-12)


@pytest.mark.parametrize("delta", [0.0, 0.8])
@pytest.mark.parametrize("update", ["count_normalised", "sgd"])
def test_centres_of_concepts_move_as_in_plain_loops(
    delta, update, make_center_loss, random_embedded_pairs, center_step
) -> None:
    loss = make_center_loss(center_start="normal", delta=delta, center_update=update, center_learning_rate=0.3)
    inputs = random_embedded_pairs(8, 7)
    expected = loss.centers.table.detach().clone()
    for concept, center in enumerate(loss.centers.table.detach().clone()):
        pull, count = torch.zeros(4, dtype=torch.float64), 0
        for items in (inputs.images, inputs.captions):
            for vector, owner in zip(items.vectors.detach(), inputs.image_ids.tolist(), strict=True):
                if owner == concept and square(vector, center) > delta:
                    pull, count = pull + center - vector, count + 1
        expected[concept] -= 0.3 * (pull / (1 + count) if update == "count_normalised" else 2 * pull)
    center_step(loss, inputs)
    close(loss.centers.table.detach(), expected, 1e-12)


def test_centres_outside_the_batch_get_exactly_no_gradient(
    make_center_loss, random_embedded_pairs, center_step
) -> None:
    loss = make_center_loss(center_start="normal")
    before = loss.centers.table.detach().clone()
    center_step(loss, random_embedded_pairs(9, 3))
    present = torch.zeros(6, dtype=torch.bool)
    present[random_embedded_pairs(9, 3).image_ids] = True
    grad = loss.centers.table.grad
    assert grad.is_sparse
    assert torch.equal(grad.to_dense()[~present], torch.zeros_like(grad.to_dense()[~present]))
    assert (grad.to_dense()[present].abs().amax(dim=1) > 0).all()
    assert torch.equal(loss.centers.table.detach()[~present], before[~present])


@pytest.mark.parametrize("every", [1, 3])
def test_repulsion_acts_in_every_step_and_is_worked_out_anew_in_some(
    every, make_center_loss, embedded_pairs, center_step
) -> None:
    """Two centres that nothing pulls at, 0 and 1/2: half the gradient is 1/2, so plain SGD at rate 0.1 parts them by
    0.2 x their distance per step."""
    loss = make_center_loss(
        centers="quantised", quantised_centers=2, size=1, concepts=2, delta=50.0, repulsion_every=every,
        center_update="sgd", center_learning_rate=0.1, **CENTER_ONLY,
    )
    loss.centers.table.data.copy_(torch.tensor([[0.0], [0.5]]))
    point = torch.ones(1, 1, dtype=torch.float64)
    gaps, values = [], []
    for _ in range(4):
        values.append(center_step(loss, embedded_pairs(point, point.clone().requires_grad_(), [0])).item())
        gaps.append((loss.centers.table[1] - loss.centers.table[0]).item())
    expected = [0.7, 0.98, 1.372, 1.9208] if every == 1 else [0.7, 0.9, 1.1, 1.54]
    assert gaps == pytest.approx(expected, abs=1e-9)
    seen = [0.5, 0.7, 0.98, 1.372] if every == 1 else [0.5, 0.5, 0.5, 1.1]
    assert values == pytest.approx([100 - gap**2 for gap in seen], abs=1e-9)


@pytest.mark.parametrize("centers", ["concepts", "quantised"])
@pytest.mark.parametrize("start", ["first_seen", "normal"])
def test_centres_stay_on_the_sphere_on_request(
    centers, start, make_center_loss, random_embedded_pairs, center_step
) -> None:
    loss = make_center_loss(centers=centers, quantised_centers=3, center_start=start, on_sphere=True, delta=0.0)
    for seed in range(5):
        center_step(loss, random_embedded_pairs(seed))
    lengths = torch.linalg.vector_norm(loss.centers.table.detach(), dim=1)
    touched = loss.centers.seen if centers == "concepts" else torch.ones(3, dtype=torch.bool)
    close(lengths[touched], torch.ones(int(touched.sum())), 1e-6)


def test_a_centre_starts_at_the_mean_of_the_first_embeddings_of_its_concept(make_center_loss, embedded_pairs) -> None:
    loss = make_center_loss(delta=0.0, **CENTER_ONLY)
    loss(embedded_pairs(X.repeat(1, 2), Y.repeat(1, 2), [4, 1, 4]))
    table, seen = loss.centers.table.detach(), loss.centers.seen
    assert seen.tolist() == [False, True, False, False, True, False]
    close(table[4], ((X[0] + X[2] + Y[0] + Y[2]) / 4).repeat(2), 1e-12)
    close(table[1], ((X[1] + Y[1]) / 2).repeat(2), 1e-12)
    assert table[~seen].abs().max() == 0
    loss(embedded_pairs(Y.repeat(1, 2), Y.repeat(1, 2), [4, 1, 2]))
    close(table[4], ((X[0] + X[2] + Y[0] + Y[2]) / 4).repeat(2), 1e-12)
    close(table[2], Y[2].repeat(2), 1e-12)


def test_normal_centres_have_unit_length_on_average(make_center_loss) -> None:
    table = make_center_loss(concepts=400, size=50, center_start="normal").centers.table
    assert table.detach().square().sum(dim=1).mean().item() == pytest.approx(1.0, abs=0.03)
    assert make_center_loss(400, 50, centers="quantised", quantised_centers=300).centers.table.shape == (300, 50)


def test_kmeans_finds_separate_groups_and_repeats_itself() -> None:
    groups = torch.tensor([[10.0, 0.0], [0.0, 10.0], [-10.0, -10.0]]).repeat_interleave(20, dim=0)
    points = groups + 0.1 * torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
    found = cluster_centers(points, 3, seed=1)
    assert torch.equal(found, cluster_centers(points, 3, seed=1))
    means = torch.stack([points[start : start + 20].mean(dim=0) for start in (40, 20, 0)])
    torch.testing.assert_close(found[found[:, 0].argsort()], means[means[:, 0].argsort()], atol=1e-4, rtol=0)
    assert found.dtype == points.dtype


def test_kmeans_of_collapsed_centres_is_finite_and_says_so() -> None:
    with pytest.warns(ConvergenceWarning, match="distinct clusters"):
        assert torch.equal(cluster_centers(torch.ones(6, 3), 3, seed=0), torch.ones(3, 3))


def test_quantised_centres_start_from_the_seen_concepts(make_center_loss, trained_concepts) -> None:
    first = trained_concepts()
    first.centers.seen[0] = False
    first.centers.table.data[0] = 1e6
    second = make_center_loss(concepts=8, centers="quantised", quantised_centers=3, seed=5, train_classifiers=False)
    second.continue_from(first)
    expected = cluster_centers(first.centers.table[1:], 3, seed=5)
    assert torch.equal(second.centers.table.detach(), expected)
    for name in ("image_classifier", "caption_classifier"):
        assert torch.equal(getattr(second, name).weight, getattr(first, name).weight)
        assert not getattr(second, name).weight.requires_grad


def test_a_random_start_ignores_the_concepts(make_center_loss, trained_concepts) -> None:
    second = make_center_loss(concepts=8, centers="quantised", quantised_centers=3, quantised_start="random")
    before = second.centers.table.detach().clone()
    second.continue_from(trained_concepts())
    assert torch.equal(second.centers.table, before)
