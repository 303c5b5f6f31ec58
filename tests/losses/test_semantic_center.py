"""Semantic centre loss: worked examples, plain loops, derivatives, limits, odd batches."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from loss_values import square
from torch import Tensor, nn

from vsetune.losses.loss_base import LossInputs

X = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]], dtype=torch.float64)
Y = torch.tensor([[0.8, 0.6], [0.0, 1.0], [-0.6, 0.8]], dtype=torch.float64)
OWN = torch.tensor([[0.9, 0.1], [0.5, 0.6], [-0.2, 0.8]], dtype=torch.float64)
FEW = torch.tensor([[0.9, 0.3], [-0.2, 0.9]], dtype=torch.float64)
CENTER_ONLY = {"triplet_weight": 0.0, "image_class_weight": 0.0, "caption_class_weight": 0.0}


@pytest.mark.parametrize(("delta", "total"), [(0.1, 1.568831), (1.0, 0.772630)])
def test_the_quantised_loss_is_the_worked_example_over_its_three_pairs(
    delta, total, make_center_loss, embedded_pairs
) -> None:
    loss = make_center_loss(3, 2, centers="quantised", quantised_centers=2, delta=delta, **CENTER_ONLY)
    with torch.no_grad():
        loss.centers.table.copy_(FEW)
        loss.centers.assignment.weight.copy_(2 * torch.eye(2))
        loss.centers.assignment.bias.zero_()
    output = loss(embedded_pairs(X, Y, [0, 1, 2]))
    repelling = 0.43 if delta == 1.0 else 0.0
    assert output.value.item() == pytest.approx((total - repelling) / 3 + repelling, abs=1e-6)
    assert output.parts["center"].item() == pytest.approx((total - repelling) / 3, abs=1e-6)
    assert output.parts["repulsion"].item() == pytest.approx(repelling, abs=1e-9)


def test_the_loss_of_concepts_is_the_mean_over_the_pairs(make_center_loss, embedded_pairs) -> None:
    loss = make_center_loss(3, 2, center_start="normal", **CENTER_ONLY)
    with torch.no_grad():
        loss.centers.table.copy_(OWN)
    output = loss(embedded_pairs(X, Y, [0, 1, 2]))
    assert output.value.item() == pytest.approx(0.53 / 3, abs=1e-9)
    assert output.parts["outside_share"].item() == pytest.approx(0.5)


def test_worked_example_of_the_classifiers(make_center_loss, embedded_pairs) -> None:
    loss = make_center_loss(3, 3, center_weight=0.0, triplet_weight=0.0, caption_class_weight=2.0)
    with torch.no_grad():
        for classifier in (loss.image_classifier, loss.caption_classifier):
            classifier.weight.copy_(torch.eye(3))
            classifier.bias.zero_()
    logits = torch.tensor([[2, 1, 0], [0, 1, 0.5], [0.1, 0.2, 0.3]], dtype=torch.float64)
    output = loss(embedded_pairs(logits, logits, [0, 1, 2]))
    assert output.parts["image_class"].item() == pytest.approx(0.696606, abs=1e-6)
    assert output.value.item() == pytest.approx(3 * 0.696606, abs=3e-6)


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


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("centers", ["concepts", "quantised"])
@pytest.mark.parametrize("delta", [0.0, 0.4])
def test_the_loss_equals_plain_loops(seed, centers, delta, make_center_loss, random_embedded_pairs) -> None:
    loss = make_center_loss(
        centers=centers, quantised_centers=3, delta=delta, center_start="normal", negatives="hardest", repulsion=0.7,
        center_weight=1.5, triplet_weight=0.8, image_class_weight=0.6, caption_class_weight=0.3,
    )
    inputs = random_embedded_pairs(seed, 7)
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


def test_a_weight_of_zero_leaves_the_classifier_out(make_center_loss, random_embedded_pairs) -> None:
    parts = make_center_loss(image_class_weight=0.0)(random_embedded_pairs(0)).parts
    assert "image_class" not in parts
    assert set(parts) == {"center", "outside_share", "triplet", "caption_class", "margin_images", "margin_captions"}
