"""Semantic centre loss: worked examples, plain loops, how centres start and move, phases, resuming, odd batches."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn

from vsetune.config.losses import AdaptiveMarginSpec, SemanticCenterSpec
from vsetune.errors import ConfigError
from vsetune.losses import Items, LossContext, LossInputs, build_loss
from vsetune.losses.center_tables import cluster_centers
from vsetune.losses.center_terms import (
    Movement,
    concept_hinges,
    concept_movement,
    mean_assignment_entropy,
    repulsion,
    repulsion_movement,
    soft_hinges,
    soft_movement,
    squared_distances,
    table_gradient,
)

X = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]], dtype=torch.float64)
Y = torch.tensor([[0.8, 0.6], [0.0, 1.0], [-0.6, 0.8]], dtype=torch.float64)
OWN = torch.tensor([[0.9, 0.1], [0.5, 0.6], [-0.2, 0.8]], dtype=torch.float64)
FEW = torch.tensor([[0.9, 0.3], [-0.2, 0.9]], dtype=torch.float64)
CENTER_ONLY = {"triplet_weight": 0.0, "image_class_weight": 0.0, "caption_class_weight": 0.0}


def make(concepts: int = 6, size: int = 4, **fields: Any) -> Any:
    torch.manual_seed(0)
    return build_loss(SemanticCenterSpec(**fields), LossContext(size, concepts)).double()


def batch(images: Tensor, captions: Tensor, ids: list[int] | Tensor) -> LossInputs:
    ids = torch.as_tensor(ids)
    rows = torch.arange(len(ids))
    return LossInputs(images @ captions.T, ids, ids, rows, images=Items(images), captions=Items(captions))


def random_batch(seed: int, pairs: int = 5, concepts: int = 6, size: int = 4) -> LossInputs:
    """Unit vectors in float64 with gradient; ids repeat."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(2, pairs, size, generator=generator, dtype=torch.float64)
    images, captions = nn.functional.normalize(drawn, dim=2).unbind()
    ids = torch.randint(concepts, (pairs,), generator=generator)
    ids[-1] = ids[0]
    return batch(images.requires_grad_(), captions.requires_grad_(), ids)


def train_step(loss: Any, inputs: LossInputs) -> Tensor:
    """One step of plain SGD on the centres alone, as the train loop does it; returns the value."""
    groups = [group for group in loss.parameter_groups() if group.sgd_rate is not None]
    (table,) = groups[0].parameters
    optimizer = torch.optim.SGD([table], lr=groups[0].sgd_rate)
    optimizer.zero_grad()
    value = loss(inputs).value
    value.backward()
    loss.before_step()
    optimizer.step()
    loss.after_step()
    return value.detach()


def gradient(value: Tensor, at: Tensor) -> Tensor:
    (result,) = torch.autograd.grad(value, at)
    return result


def close(actual: Tensor, expected: Any, tolerance: float = 1e-6) -> None:
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=actual.dtype), atol=tolerance, rtol=0)


# --- worked examples -------------------------------------------------------------------------------------------------


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
    close(squared_distances(X, FEW), [[0.1, 2.25], [0.34, 0.65], [1.3, 0.05]])
    close(squared_distances(Y, FEW), [[0.1, 1.09], [1.3, 0.05], [2.5, 0.17]])
    close(squared_distances(FEW, FEW), [[0.0, 1.57], [1.57, 0.0]])
    parts = [
        soft_hinges(X, FEW, of_x, delta=delta).sum(), soft_hinges(Y, FEW, of_y, delta=delta).sum(),
        repulsion(FEW, delta=delta),
    ]
    close(torch.stack(parts), [image, caption, repelling])
    assert sum(parts).item() == pytest.approx(total, abs=1e-6)


@pytest.mark.parametrize(("delta", "total"), [(0.1, 1.568831), (1.0, 0.772630)])
def test_the_quantised_loss_is_the_worked_example_over_its_three_pairs(delta, total) -> None:
    loss = make(3, 2, centers="quantised", quantised_centers=2, delta=delta, **CENTER_ONLY)
    with torch.no_grad():
        loss.centers.table.copy_(FEW)
        loss.centers.assignment.weight.copy_(2 * torch.eye(2))
        loss.centers.assignment.bias.zero_()
    output = loss(batch(X, Y, [0, 1, 2]))
    repelling = 0.43 if delta == 1.0 else 0.0
    assert output.value.item() == pytest.approx((total - repelling) / 3 + repelling, abs=1e-6)
    assert output.parts["center"].item() == pytest.approx((total - repelling) / 3, abs=1e-6)
    assert output.parts["repulsion"].item() == pytest.approx(repelling, abs=1e-9)


def test_the_loss_of_concepts_is_the_mean_over_the_pairs() -> None:
    loss = make(3, 2, center_start="normal", **CENTER_ONLY)
    with torch.no_grad():
        loss.centers.table.copy_(OWN)
    output = loss(batch(X, Y, [0, 1, 2]))
    assert output.value.item() == pytest.approx(0.53 / 3, abs=1e-9)
    assert output.parts["outside_share"].item() == pytest.approx(0.5)


def test_worked_example_of_the_classifiers() -> None:
    loss = make(3, 3, center_weight=0.0, triplet_weight=0.0, caption_class_weight=2.0)
    with torch.no_grad():
        for classifier in (loss.image_classifier, loss.caption_classifier):
            classifier.weight.copy_(torch.eye(3))
            classifier.bias.zero_()
    logits = torch.tensor([[2, 1, 0], [0, 1, 0.5], [0.1, 0.2, 0.3]], dtype=torch.float64)
    output = loss(batch(logits, logits, [0, 1, 2]))
    assert output.parts["image_class"].item() == pytest.approx(0.696606, abs=1e-6)
    assert output.value.item() == pytest.approx(3 * 0.696606, abs=3e-6)


def test_cross_entropies_start_near_the_log_of_the_classes() -> None:
    parts = make(concepts=500, size=64)(random_batch(0, 20, 500, 64)).parts
    assert parts["image_class"].item() == pytest.approx(math.log(500), abs=0.05)
    assert parts["caption_class"].item() == pytest.approx(math.log(500), abs=0.05)


# --- plain loops and derivatives -------------------------------------------------------------------------------------


def square(first: Tensor, second: Tensor) -> float:
    return sum((a - b) ** 2 for a, b in zip(first.tolist(), second.tolist(), strict=True))


def plain_center_term(loss: Any, inputs: LossInputs) -> float:
    """L_C, its mean over the pairs, from Eq. 6 or 7 with loops."""
    spec, table = loss.spec, loss.centers.table.detach()
    ids = inputs.image_ids.tolist()
    total, repelling = 0.0, 0.0
    for vectors in (inputs.images.vectors, inputs.captions.vectors):
        for place, vector in enumerate(vectors.detach()):
            if spec.centers == "concepts":
                total += max(0.0, square(vector, table[ids[place]]) - spec.delta)
                continue
            logits = loss.centers.assignment(vector).tolist()
            weights = [math.exp(logit) / sum(math.exp(other) for other in logits) for logit in logits]
            for weight, center in zip(weights, table, strict=True):
                total += weight * max(0.0, square(vector, center) - spec.delta)
    if spec.centers == "quantised":
        for k in range(len(table)):
            for other in range(k + 1, len(table)):
                repelling += max(0.0, 2 * spec.delta - square(table[k], table[other]))
    return total / len(ids) + spec.repulsion * repelling


def plain_triplet_term(loss: Any, inputs: LossInputs) -> float:
    """Hardest negatives, per direction the mean over the queries that have one."""
    s, ids = inputs.similarity.tolist(), inputs.image_ids.tolist()
    total = 0.0
    for by_image in (True, False):
        hinges = []
        for i in range(len(ids)):
            others = [s[i][j] if by_image else s[j][i] for j in range(len(ids)) if ids[j] != ids[i]]
            if others:
                near = math.sqrt(2 - 2 * max(others))
                hinges.append(max(0.0, math.sqrt(2 - 2 * s[i][i]) - near + loss.spec.margin))
        total += sum(hinges) / len(hinges)
    return total


def plain_cross_entropy(classifier: nn.Linear, vectors: Tensor, ids: list[int]) -> float:
    total = 0.0
    for vector, label in zip(vectors, ids, strict=True):
        logits = classifier(vector).tolist()
        total += math.log(sum(math.exp(logit) for logit in logits)) - logits[label]
    return total / len(ids)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("centers", ["concepts", "quantised"])
@pytest.mark.parametrize("delta", [0.0, 0.4])
def test_the_loss_equals_plain_loops(seed, centers, delta) -> None:
    loss = make(
        centers=centers, quantised_centers=3, delta=delta, center_start="normal", negatives="hardest", repulsion=0.7,
        center_weight=1.5, triplet_weight=0.8, image_class_weight=0.6, caption_class_weight=0.3,
    )
    inputs = random_batch(seed, 7)
    ids = inputs.image_ids.tolist()
    expected = {
        "center": plain_center_term(loss, inputs), "triplet": plain_triplet_term(loss, inputs),
        "image_class": plain_cross_entropy(loss.image_classifier, inputs.images.vectors, ids),
        "caption_class": plain_cross_entropy(loss.caption_classifier, inputs.captions.vectors, ids),
    }
    output = loss(inputs)
    weights = {"center": 1.5, "triplet": 0.8, "image_class": 0.6, "caption_class": 0.3}
    total = sum(weights[name] * expected[name] for name in weights)
    assert output.value.item() == pytest.approx(total, abs=1e-9)
    if centers == "quantised":
        expected["center"] -= 0.7 * output.parts["repulsion"].item()
    for name, value in expected.items():
        assert output.parts[name].item() == pytest.approx(value, abs=1e-9), name


def test_terms_agree_with_finite_differences() -> None:
    generator = torch.Generator().manual_seed(1)
    items, centers, logits = (
        torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True)
        for shape in [(5, 3), (4, 3), (5, 4)]
    )

    def soft(items: Tensor, centers: Tensor, logits: Tensor) -> Tensor:
        return soft_hinges(items, centers, logits.softmax(dim=1), delta=1.5)

    assert torch.autograd.gradcheck(soft, (items, centers, logits))
    assert torch.autograd.gradcheck(lambda c: repulsion(c, delta=4.0), (centers,))
    assert torch.autograd.gradcheck(lambda i, c: concept_hinges(i, c, delta=1.5), (items[:4].detach(), centers))


@pytest.mark.parametrize("centers", ["concepts", "quantised"])
def test_the_loss_agrees_with_finite_differences_in_the_embeddings(centers) -> None:
    loss = make(centers=centers, quantised_centers=3, center_start="normal", negatives="hardest")
    inputs = random_batch(3)

    def value(images: Tensor, captions: Tensor) -> Tensor:
        return loss(batch(images, captions, inputs.image_ids)).value

    assert torch.autograd.gradcheck(value, (inputs.images.vectors, inputs.captions.vectors))


@pytest.mark.parametrize("centers", ["concepts", "quantised"])
def test_permuting_the_pairs_changes_nothing(centers) -> None:
    loss = make(centers=centers, quantised_centers=3, negatives="hardest").eval()
    inputs = random_batch(4, 6)
    order = torch.tensor([2, 5, 0, 1, 4, 3])
    permuted = batch(inputs.images.vectors[order], inputs.captions.vectors[order], inputs.image_ids[order])
    assert loss(permuted).value.item() == pytest.approx(loss(inputs).value.item(), abs=1e-12)


def test_swapping_images_and_captions_swaps_the_classifiers() -> None:
    loss = make(negatives="hardest", center_start="normal")
    inputs = random_batch(5)
    swapped = batch(inputs.captions.vectors, inputs.images.vectors, inputs.image_ids)
    before = loss(inputs).parts
    loss.image_classifier, loss.caption_classifier = loss.caption_classifier, loss.image_classifier
    after = loss(swapped).parts
    assert after["image_class"] == before["caption_class"]
    assert after["triplet"].item() == pytest.approx(before["triplet"].item(), abs=1e-12)
    assert after["center"].item() == pytest.approx(before["center"].item(), abs=1e-12)


def test_one_quantised_centre_is_a_centre_of_everything() -> None:
    loss = make(centers="quantised", quantised_centers=1, delta=0.2, **CENTER_ONLY)
    inputs = random_batch(6)
    center = loss.centers.table.detach().expand(5, 4)
    expected = sum(
        concept_hinges(items.vectors, center, delta=0.2).mean() for items in (inputs.images, inputs.captions)
    )
    output = loss(inputs)
    assert output.value.item() == pytest.approx(expected.item(), abs=1e-12)
    assert output.parts["assignment_entropy"] == 0
    assert output.parts["repulsion"] == 0


def test_the_entropy_of_the_mean_assignment_tells_balance_from_collapse() -> None:
    assert mean_assignment_entropy(torch.eye(5)).item() == pytest.approx(math.log(5))
    collapsed = torch.zeros(4, 5)
    collapsed[:, 2] = 1
    assert mean_assignment_entropy(collapsed) == 0


def test_the_assignment_learns_from_the_centre_term_alone() -> None:
    with_it = make(centers="quantised", quantised_centers=3, repulsion_every=1)
    with_it(random_batch(7)).value.backward()
    alone = make(centers="quantised", quantised_centers=3, **CENTER_ONLY)
    alone(random_batch(7)).value.backward()
    torch.testing.assert_close(with_it.centers.assignment.weight.grad, alone.centers.assignment.weight.grad)
    assert alone.centers.assignment.weight.grad.abs().max() > 0


def test_perfect_clusters_cost_nothing() -> None:
    points = torch.eye(4, dtype=torch.float64)
    loss = make(4, 4, image_class_weight=0.0, caption_class_weight=0.0)
    assert loss(batch(points, points, [0, 1, 2, 3])).value.item() == pytest.approx(0.0, abs=1e-5)


def test_collapsed_embeddings_pay_the_margin() -> None:
    point = nn.functional.normalize(torch.ones(4, 4, dtype=torch.float64))
    loss = make(image_class_weight=0.0, caption_class_weight=0.0)
    output = loss(batch(point, point, [0, 1, 2, 3]))
    assert output.value.item() == pytest.approx(0.4, abs=1e-5)


# --- how centres move ------------------------------------------------------------------------------------------------


def one_pair_at_one() -> LossInputs:
    point = torch.ones(1, 1, dtype=torch.float64)
    return batch(point, point.clone().requires_grad_(), [0])


def moved(steps: int, **fields: Any) -> list[float]:
    """Where a centre that starts at 0 stands after each step, image and caption at 1."""
    loss = make(1, 1, center_start="normal", delta=0.0, **CENTER_ONLY, **fields)
    loss.centers.table.data.zero_()
    seen = []
    for _ in range(steps):
        train_step(loss, one_pair_at_one())
        seen.append(loss.centers.table.item())
    return seen


def test_count_normalised_centres_approach_the_mean() -> None:
    assert moved(4) == pytest.approx([0.333333, 0.555556, 0.703704, 0.802469], abs=1e-6)


def test_the_weight_of_the_term_does_not_change_how_centres_move() -> None:
    assert moved(2, center_weight=0.01) == moved(2)
    assert moved(2, center_weight=0.01, center_update="sgd") == moved(2, center_update="sgd")


def test_plain_gradients_overshoot_for_ever() -> None:
    assert moved(4, center_update="sgd") == pytest.approx([2, 0, 2, 0], abs=1e-12)


@pytest.mark.parametrize("delta", [0.0, 0.8])
@pytest.mark.parametrize("update", ["count_normalised", "sgd"])
def test_centres_of_concepts_move_as_in_plain_loops(delta, update) -> None:
    loss = make(center_start="normal", delta=delta, center_update=update, center_learning_rate=0.3)
    inputs = random_batch(8, 7)
    expected = loss.centers.table.detach().clone()
    for concept, center in enumerate(loss.centers.table.detach().clone()):
        pull, count = torch.zeros(4, dtype=torch.float64), 0
        for items in (inputs.images, inputs.captions):
            for vector, owner in zip(items.vectors.detach(), inputs.image_ids.tolist(), strict=True):
                if owner == concept and square(vector, center) > delta:
                    pull, count = pull + center - vector, count + 1
        expected[concept] -= 0.3 * (pull / (1 + count) if update == "count_normalised" else 2 * pull)
    train_step(loss, inputs)
    close(loss.centers.table.detach(), expected, 1e-12)


def test_centres_outside_the_batch_get_exactly_no_gradient() -> None:
    loss = make(center_start="normal")
    before = loss.centers.table.detach().clone()
    train_step(loss, random_batch(9, 3))
    present = torch.zeros(6, dtype=torch.bool)
    present[random_batch(9, 3).image_ids] = True
    grad = loss.centers.table.grad
    assert grad.is_sparse
    assert torch.equal(grad.to_dense()[~present], torch.zeros_like(grad.to_dense()[~present]))
    assert (grad.to_dense()[present].abs().amax(dim=1) > 0).all()
    assert torch.equal(loss.centers.table.detach()[~present], before[~present])


@pytest.mark.parametrize("delta", [0.1, 1.0])
def test_the_plain_movement_is_the_gradient_of_the_summed_term(delta) -> None:
    inputs = random_batch(10, 6)
    images, captions = inputs.images.vectors.detach(), inputs.captions.vectors.detach()
    table = torch.randn(4, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64, requires_grad=True)
    items = torch.cat([images, captions])
    weights = (3 * items @ table.detach().T).softmax(dim=1)
    value = soft_hinges(items, table, weights, delta=delta).sum() + 0.7 * repulsion(table, delta=3 * delta)
    pull = soft_movement(items, table, weights * (squared_distances(items, table) > delta))
    repelled, push = repulsion_movement(table, delta=3 * delta)
    assert repelled == repulsion(table, delta=3 * delta)
    both = Movement(pull.half_gradient + 0.7 * push.half_gradient, pull.weight + 0.7 * push.weight)
    close(table_gradient(both, "sgd"), gradient(value, table), 1e-9)
    halved = gradient(soft_hinges(items, table, weights, delta=delta).sum(), table) / (2 * (1 + pull.weight))
    close(table_gradient(pull, "count_normalised"), halved, 1e-9)

    ids = torch.arange(6) % 4
    own = table[ids]
    value = (concept_hinges(images, own, delta=delta) + concept_hinges(captions, own, delta=delta)).sum()
    rows = table_gradient(concept_movement(images, captions, own, ids, delta=delta), "sgd")
    close(torch.zeros_like(table).index_add(0, ids, rows).detach(), gradient(value, table), 1e-9)


@pytest.mark.parametrize("every", [1, 3])
def test_repulsion_acts_in_every_step_and_is_worked_out_anew_in_some(every) -> None:
    """Two centres that nothing pulls at, 0 and 1/2: half the gradient is 1/2, so plain SGD at rate 0.1 parts them by
    0.2 x their distance per step."""
    loss = make(
        centers="quantised", quantised_centers=2, size=1, concepts=2, delta=50.0, repulsion_every=every,
        center_update="sgd", center_learning_rate=0.1, **CENTER_ONLY,
    )
    loss.centers.table.data.copy_(torch.tensor([[0.0], [0.5]]))
    point = torch.ones(1, 1, dtype=torch.float64)
    gaps, values = [], []
    for _ in range(4):
        values.append(train_step(loss, batch(point, point.clone().requires_grad_(), [0])).item())
        gaps.append((loss.centers.table[1] - loss.centers.table[0]).item())
    expected = [0.7, 0.98, 1.372, 1.9208] if every == 1 else [0.7, 0.9, 1.1, 1.54]
    assert gaps == pytest.approx(expected, abs=1e-9)
    seen = [0.5, 0.7, 0.98, 1.372] if every == 1 else [0.5, 0.5, 0.5, 1.1]
    assert values == pytest.approx([100 - gap**2 for gap in seen], abs=1e-9)


@pytest.mark.parametrize("every", [1, 3])
def test_repulsion_drives_crowded_centres_apart(every) -> None:
    loss = make(centers="quantised", quantised_centers=4, delta=0.5, repulsion_every=every, **CENTER_ONLY)
    loss.centers.table.data.mul_(0.01)
    crowd = loss(random_batch(11)).parts["repulsion"].item()
    assert crowd == pytest.approx(6.0, abs=0.01)
    left = []
    for _ in range(50):
        train_step(loss, random_batch(11))
        left.append(repulsion(loss.centers.table, delta=0.5).item())
    assert sum(left[30:]) / 20 < 0.35 * crowd
    assert squared_distances(loss.centers.table, loss.centers.table).max() < 10


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
    assert value.item() == pytest.approx(repulsion(table, delta=0.6).item(), abs=1e-12)


def test_evaluation_moves_and_remembers_nothing() -> None:
    for centers in ("concepts", "quantised"):
        loss = make(centers=centers, quantised_centers=3, adaptive=True).eval()
        before = {name: value.clone() for name, value in loss.state_dict().items()}
        loss(random_batch(12))
        loss.before_step()
        assert loss.centers.table.grad is None
        for name, value in loss.state_dict().items():
            assert torch.equal(value, before[name]), name


@pytest.mark.parametrize("centers", ["concepts", "quantised"])
@pytest.mark.parametrize("start", ["first_seen", "normal"])
def test_centres_stay_on_the_sphere_on_request(centers, start) -> None:
    loss = make(centers=centers, quantised_centers=3, center_start=start, on_sphere=True, delta=0.0)
    for seed in range(5):
        train_step(loss, random_batch(seed))
    lengths = torch.linalg.vector_norm(loss.centers.table.detach(), dim=1)
    touched = loss.centers.seen if centers == "concepts" else torch.ones(3, dtype=torch.bool)
    close(lengths[touched], torch.ones(int(touched.sum())), 1e-6)


# --- how centres start -----------------------------------------------------------------------------------------------


def test_a_centre_starts_at_the_mean_of_the_first_embeddings_of_its_concept() -> None:
    loss = make(delta=0.0, **CENTER_ONLY)
    loss(batch(X.repeat(1, 2), Y.repeat(1, 2), [4, 1, 4]))
    table, seen = loss.centers.table.detach(), loss.centers.seen
    assert seen.tolist() == [False, True, False, False, True, False]
    close(table[4], ((X[0] + X[2] + Y[0] + Y[2]) / 4).repeat(2), 1e-12)
    close(table[1], ((X[1] + Y[1]) / 2).repeat(2), 1e-12)
    assert table[~seen].abs().max() == 0
    loss(batch(Y.repeat(1, 2), Y.repeat(1, 2), [4, 1, 2]))
    close(table[4], ((X[0] + X[2] + Y[0] + Y[2]) / 4).repeat(2), 1e-12)
    close(table[2], Y[2].repeat(2), 1e-12)


def test_normal_centres_have_unit_length_on_average() -> None:
    table = make(concepts=400, size=50, center_start="normal").centers.table
    assert table.detach().square().sum(dim=1).mean().item() == pytest.approx(1.0, abs=0.03)
    assert make(400, 50, centers="quantised", quantised_centers=300).centers.table.shape == (300, 50)


def trained_concepts(**fields: Any) -> Any:
    loss = make(concepts=8, **fields)
    for seed in range(6):
        train_step(loss, random_batch(seed, 6, 8))
    assert loss.centers.seen.all()
    return loss


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


def test_quantised_centres_start_from_the_seen_concepts() -> None:
    first = trained_concepts()
    first.centers.seen[0] = False
    first.centers.table.data[0] = 1e6
    second = make(concepts=8, centers="quantised", quantised_centers=3, seed=5, train_classifiers=False)
    second.continue_from(first)
    expected = cluster_centers(first.centers.table[1:], 3, seed=5)
    assert torch.equal(second.centers.table.detach(), expected)
    for name in ("image_classifier", "caption_classifier"):
        assert torch.equal(getattr(second, name).weight, getattr(first, name).weight)
        assert not getattr(second, name).weight.requires_grad


def test_as_many_quantised_centres_as_concepts_are_the_concepts() -> None:
    first = trained_concepts()
    second = make(concepts=8, centers="quantised", quantised_centers=8)
    second.continue_from(first)
    distances = squared_distances(second.centers.table, first.centers.table)
    assert distances.amin(dim=0).max() < 1e-6


def test_a_random_start_ignores_the_concepts() -> None:
    second = make(concepts=8, centers="quantised", quantised_centers=3, quantised_start="random")
    before = second.centers.table.detach().clone()
    second.continue_from(trained_concepts())
    assert torch.equal(second.centers.table, before)


# --- phases, parameters, state ---------------------------------------------------------------------------------------


def test_three_phases_hand_everything_on() -> None:
    first = trained_concepts()
    second = make(concepts=8, centers="quantised", quantised_centers=3, train_classifiers=False)
    second.continue_from(first)
    classifier = second.image_classifier.weight.detach().clone()
    for seed in range(3):
        train_step(second, random_batch(seed, 6, 8))
    assert torch.equal(second.image_classifier.weight, classifier)
    third = make(concepts=8, centers="quantised", quantised_centers=3, adaptive=True, interval=1, ratio=0.0)
    third.continue_from(second)
    assert third.centers.steps == 3
    for name, value in second.state_dict().items():
        assert torch.equal(third.state_dict()[name], value), name
    assert third.image_classifier.weight.requires_grad
    assert third.margins.tolist() == [0.2, 0.2]
    apart = torch.eye(4, dtype=torch.float64).requires_grad_()
    train_step(third, batch(apart, apart, [0, 1, 2, 3]))
    assert third.margins.tolist() == pytest.approx([0.206, 0.206])
    fourth = make(concepts=8, centers="quantised", quantised_centers=3, adaptive=True, cap=0.203)
    fourth.continue_from(third)
    assert fourth.margins.tolist() == pytest.approx([0.203, 0.203])


def test_margins_that_never_grew_leave_the_next_phase_its_own() -> None:
    second = make(concepts=8, margin=0.3)
    second.continue_from(trained_concepts(margin=0.2))
    assert second.margins.tolist() == [0.3, 0.3]
    assert second.centers.seen.all()


def test_margins_stay_unless_the_phase_is_adaptive() -> None:
    loss = make(concepts=4, interval=1, ratio=0.0)
    points = torch.eye(4, dtype=torch.float64).requires_grad_()
    for _ in range(3):
        train_step(loss, batch(points, points, [0, 1, 2, 3]))
    assert loss.margins.tolist() == [0.2, 0.2]
    assert loss.triplets.tolist() == [0, 0]


def test_another_loss_hands_nothing_on() -> None:
    loss = make()
    before = {name: value.clone() for name, value in loss.state_dict().items()}
    loss.continue_from(build_loss(AdaptiveMarginSpec(margin=0.1)))
    for name, value in loss.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_quantised_centres_must_not_outnumber_the_images() -> None:
    with pytest.raises(ConfigError, match=r"loss\.quantised_centers: got 7 centres for 6 training images"):
        make(centers="quantised", quantised_centers=7)


def test_quantised_centres_must_not_outnumber_the_images_met() -> None:
    first = make(concepts=8)
    train_step(first, random_batch(0, 3, 8))
    with pytest.raises(ConfigError, match=r"the phase before met only \d training images"):
        make(concepts=8, centers="quantised", quantised_centers=5).continue_from(first)


def test_the_number_of_quantised_centres_must_not_change_between_phases() -> None:
    with pytest.raises(ConfigError, match="got 3 after a phase with 2"):
        make(centers="quantised", quantised_centers=3).continue_from(make(centers="quantised", quantised_centers=2))


@pytest.mark.parametrize("centers", ["concepts", "quantised"])
@pytest.mark.parametrize("train_classifiers", [True, False])
def test_centres_learn_at_their_own_rate_and_the_rest_with_the_network(centers, train_classifiers) -> None:
    loss = make(
        centers=centers, quantised_centers=3, train_classifiers=train_classifiers, center_learning_rate=0.25
    )
    groups = {group.sgd_rate: group.parameters for group in loss.parameter_groups()}
    assert [parameter is loss.centers.table for parameter in groups[0.25]] == [True]
    expected = (4 if train_classifiers else 0) + (2 if centers == "quantised" else 0)
    assert len(groups.get(None, [])) == expected
    assert all(parameter.requires_grad for parameter in groups.get(None, []))


def test_frozen_classifiers_still_teach_the_network() -> None:
    loss = make(train_classifiers=False, center_weight=0.0, triplet_weight=0.0)
    inputs = random_batch(2)
    assert gradient(loss(inputs).value, inputs.images.vectors).abs().max() > 0


@pytest.mark.parametrize("centers", ["concepts", "quantised"])
def test_a_frozen_network_leaves_something_to_step_on(centers) -> None:
    loss = make(centers=centers, quantised_centers=3, train_classifiers=False, delta=0.0)
    inputs = random_batch(2)
    before = loss.centers.table.detach().clone()
    for _ in range(2):
        train_step(loss, batch(inputs.images.vectors.detach(), inputs.captions.vectors.detach(), inputs.image_ids))
    assert not torch.equal(loss.centers.table.detach(), before)


@pytest.mark.parametrize("fields", [{"center_start": "first_seen"}, {"centers": "quantised", "repulsion_every": 3}])
def test_a_restart_continues_bit_for_bit(fields) -> None:
    fields = {"quantised_centers": 3, "adaptive": True, "interval": 4, "ratio": 0.1, "delta": 0.5, **fields}
    straight, before = make(**fields), make(**fields)
    after = build_loss(SemanticCenterSpec(**fields), LossContext(4, 6)).double()

    def train(loss: Any, steps: range) -> list[float]:
        values = []
        for step in steps:
            torch.manual_seed(step)
            values.append(train_step(loss, random_batch(step)).item())
        return values

    expected = train(straight, range(11))
    train(before, range(5))
    after.load_state_dict(before.state_dict())
    assert train(after, range(5, 11)) == expected[5:]
    for name, value in straight.state_dict().items():
        assert torch.equal(value, after.state_dict()[name]), name


# --- odd batches -----------------------------------------------------------------------------------------------------


def test_a_batch_without_embeddings_is_refused(make_pairs) -> None:
    with pytest.raises(ConfigError, match="loss semantic_center: got a batch without embeddings"):
        make()(make_pairs(torch.eye(3)))


def test_several_embeddings_per_item_are_refused(make_pairs) -> None:
    vectors = torch.zeros(3, 2, 4)
    inputs = LossInputs(torch.eye(3), *[torch.arange(3)] * 3, images=Items(vectors), captions=Items(vectors))
    with pytest.raises(ConfigError, match=r"got embeddings of shape \(3, 2, 4\), need \(3, 4\)"):
        make()(inputs)


def test_several_captions_per_image_are_refused(several, several_owner, make_images) -> None:
    with pytest.raises(ConfigError, match="loss semantic_center: got 3 images x 5 captions"):
        make()(make_images(several, several_owner))


@pytest.mark.parametrize("centers", ["concepts", "quantised"])
@pytest.mark.parametrize("negatives", ["random", "hardest"])
@pytest.mark.parametrize("ids", [[0], [3, 3], [0, 1], [2, 2, 2, 2]])
def test_odd_batches_are_defined_in_float32(centers, negatives, ids) -> None:
    """One pair, one image, all embeddings equal, similarity exactly 1."""
    loss = make(centers=centers, quantised_centers=3, negatives=negatives, delta=0.0).float()
    point = torch.zeros(len(ids), 4)
    point[:, 0] = 1
    images, captions = point.clone().requires_grad_(), point.clone().requires_grad_()
    inputs = batch(images, captions, ids)
    for _ in range(2):
        output = loss(inputs)
        assert output.value.isfinite()
        assert output.parts["triplet"].item() == pytest.approx(0.4 if ids == [0, 1] else 0.0, abs=1e-5)
        grads = torch.autograd.grad(output.value, (images, captions), retain_graph=True)
        assert all(grad.isfinite().all() for grad in grads)
        assert train_step(loss, batch(images, captions, ids)).isfinite()
    assert all(value.isfinite().all() for value in loss.state_dict().values())


@pytest.mark.parametrize("centers", ["concepts", "quantised"])
def test_one_nan_in_an_embedding_or_a_centre_reaches_the_value(centers) -> None:
    inputs = random_batch(3)
    for place in ("images", "captions"):
        vectors = {"images": inputs.images.vectors.detach().clone(), "captions": inputs.captions.vectors.detach()}
        vectors[place] = vectors[place].clone()
        vectors[place][1, 2] = float("nan")
        loss = make(centers=centers, quantised_centers=3, triplet_weight=0.0)
        broken = LossInputs(
            inputs.similarity.detach(), *[inputs.image_ids] * 2, torch.arange(5),
            images=Items(vectors["images"]), captions=Items(vectors["captions"]),
        )
        output = loss(broken)
        assert output.value.isnan()
        assert output.parts["center"].isnan()
    loss = make(centers=centers, quantised_centers=3, center_start="normal")
    loss.centers.table.data[inputs.image_ids[1] if centers == "concepts" else 1] = float("nan")
    assert loss(inputs).value.isnan()


def test_half_precision_is_computed_in_the_precision_of_the_centres() -> None:
    loss = make(center_start="normal", negatives="hardest").float()
    inputs = random_batch(1)
    images, captions = inputs.images.vectors.detach().bfloat16(), inputs.captions.vectors.detach().bfloat16()
    low = batch(images, captions, inputs.image_ids)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(low).value
    wide = LossInputs(
        low.similarity.float(), *[inputs.image_ids] * 2, torch.arange(5),
        images=Items(images.float()), captions=Items(captions.float()),
    )
    assert value.dtype == torch.float32
    assert torch.equal(value, loss(wide).value)


def test_near_duplicates_never_have_a_negative_distance() -> None:
    points = nn.functional.normalize(torch.randn(200, 64, generator=torch.Generator().manual_seed(0)))
    assert squared_distances(points, points).min() == 0
    assert squared_distances(points, points).diagonal().max() < 1e-6


def test_a_weight_of_zero_leaves_the_classifier_out() -> None:
    parts = make(image_class_weight=0.0)(random_batch(0)).parts
    assert "image_class" not in parts
    assert set(parts) == {"center", "outside_share", "triplet", "caption_class", "margin_images", "margin_captions"}


@pytest.mark.parametrize(("negatives", "mines"), [("hardest", True), ("random", False)])
def test_hard_negatives_are_reported_where_the_triplets_mine_them(negatives, mines) -> None:
    assert (make(negatives=negatives)(random_batch(0)).selection is not None) == mines
