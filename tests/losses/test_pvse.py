"""PVSE: worked numbers, plain loops, which embeddings get a gradient, one embedding per item, distance zero."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from loss_values import unit
from torch import Tensor

from vsetune.losses.loss_base import Items, LossInputs, at_least_float32
from vsetune.losses.loss_building import build_loss
from vsetune.losses.pvse.spec import PvseSpec

IMAGES = [[[1, 0], [0, 1]], [[0.6, 0.8], [-0.8, 0.6]], [[-1, 0], [0.8, -0.6]]]
CAPTIONS = [[[0.8, 0.6], [0.6, 0.8]], [[0, 1], [-0.6, 0.8]], [[0.96, -0.28], [-0.8, -0.6]]]
IMAGE_RESIDUALS = [[[1, 0], [0.6, 0.8]], [[1, 0], [0, 1]], [[0.8, 0.6], [0.6, 0.8]]]
CAPTION_RESIDUALS = [[[1, 0], [1, 0]], [[0, 1], [0.6, 0.8]], [[1, 0], [-0.6, 0.8]]]


def double(rows: object) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def batch(images: Items, captions: Items, ids: Tensor | None = None) -> LossInputs:
    size = images.vectors.shape[0]
    if images.vectors.dim() == 3:
        left, right = (at_least_float32(items.vectors) for items in (images, captions))
        similarity = (left[:, None, :, None] * right[:, None]).sum(dim=4).amax(dim=(2, 3))
    else:
        similarity = images.vectors @ captions.vectors.T
    ids = torch.arange(size) if ids is None else ids
    return LossInputs(similarity, ids, ids, torch.arange(size), images=images, captions=captions)


def worked_batch() -> LossInputs:
    return batch(
        Items(double(IMAGES), residuals=double(IMAGE_RESIDUALS)),
        Items(double(CAPTIONS), residuals=double(CAPTION_RESIDUALS)),
    )


def random_batch(seed: int, pairs: int, count: int, size: int = 5) -> LossInputs:
    vectors = [unit(pairs, count, size, seed=4 * seed + k) for k in range(2)]
    residuals = [unit(pairs, count, size, seed=4 * seed + 2 + k).exp() for k in range(2)]
    ids = torch.randint(max(2, pairs // 2), (pairs,), generator=torch.Generator().manual_seed(seed))
    return batch(Items(vectors[0], residuals=residuals[0]), Items(vectors[1], residuals=residuals[1]), ids)


def test_worked_value_and_its_parts() -> None:
    output = build_loss(PvseSpec())(worked_batch())
    assert output.parts["ranking"].item() == pytest.approx(0.334667, abs=1e-6)
    assert output.parts["diversity"].item() == pytest.approx(0.183848 + 0.282843, abs=1e-6)
    assert output.parts["discrepancy"].item() == pytest.approx(0.043958, abs=1e-6)
    assert output.value.item() == pytest.approx(0.381775, abs=1e-6)


def test_worked_sum_mode_and_squared_kernel() -> None:
    output = build_loss(PvseSpec(negatives="sum", kernel="squared"))(worked_batch())
    assert output.parts["ranking"].item() == pytest.approx(0.140444, abs=1e-6)
    assert output.parts["discrepancy"].item() == pytest.approx(0.027328, abs=1e-6)
    assert output.selection is None


def plain_similarity(images: list, captions: list) -> list[list[float]]:
    return [
        [max(sum(p * q for p, q in zip(v, t, strict=True)) for v in image for t in caption) for caption in captions]
        for image in images
    ]


def plain_ranking(s: list[list[float]], ids: list[int], spec: PvseSpec) -> float:
    size, total = len(s), 0.0
    for i in range(size):
        used = [j for j in range(size) if j != i and (spec.variant == "diagonal" or ids[i] != ids[j])]
        rows = [max(0.0, spec.margin + s[i][j] - s[i][i]) for j in used]
        columns = [max(0.0, spec.margin + s[j][i] - s[i][i]) for j in used]
        if spec.negatives == "max":
            total += (max(rows, default=0.0) + max(columns, default=0.0)) / size
        else:
            total += (sum(rows) + sum(columns)) / size**2
    return total


def plain_diversity(residuals: list) -> float:
    total, count = 0.0, len(residuals[0])
    for item in residuals:
        rows = [[x / math.sqrt(sum(y * y for y in row)) for x in row] for row in item]
        squares = 0.0
        for a, p in enumerate(rows):
            for b, q in enumerate(rows):
                squares += (sum(x * y for x, y in zip(p, q, strict=True)) - (a == b)) ** 2
        total += math.sqrt(squares) / count**2
    return total / len(residuals)


def plain_discrepancy(x: list, y: list, kernel: str) -> float:
    def mean(first: list, second: list) -> float:
        distances = [math.dist(u, v) for u in first for v in second]
        return sum(math.exp(-0.5 * (d if kernel == "distance" else d * d)) for d in distances) / len(distances)

    return mean(x, x) - 2 * mean(x, y) + mean(y, y)


@pytest.mark.parametrize("variant", ["decided", "diagonal"])
@pytest.mark.parametrize(("negatives", "kernel"), [("max", "distance"), ("sum", "squared")])
@pytest.mark.parametrize("seed", range(2))
def test_value_equals_plain_loops_on_duplicate_images(variant, negatives, kernel, seed) -> None:
    inputs = random_batch(seed, pairs=7, count=3)
    spec = PvseSpec(variant=variant, negatives=negatives, kernel=kernel, diversity_weight=0.3, discrepancy_weight=0.7)
    images, captions = inputs.images.vectors.tolist(), inputs.captions.vectors.tolist()
    expected = plain_ranking(plain_similarity(images, captions), inputs.image_ids.tolist(), spec)
    expected += 0.3 * plain_diversity(inputs.images.residuals.tolist())
    expected += 0.3 * plain_diversity(inputs.captions.residuals.tolist())
    every_image, every_caption = inputs.images.vectors.flatten(0, 1), inputs.captions.vectors.flatten(0, 1)
    expected += 0.7 * plain_discrepancy(every_image.tolist(), every_caption.tolist(), kernel)
    assert build_loss(spec)(inputs).value.item() == pytest.approx(expected, abs=1e-9)


def test_one_embedding_per_item_leaves_the_mean_hinge_alone(e, make_pairs) -> None:
    loss = build_loss(PvseSpec(margin=0.2))
    lmh = 0.80  # rows 0.10, 0.35, 0; columns 0, 0.30, 0.05
    for inputs in (
        make_pairs(e),
        replace(make_pairs(e), images=Items(unit(3, 4)), captions=Items(unit(3, 4))),
        replace(
            make_pairs(e), images=Items(unit(3, 1, 4), residuals=unit(3, 1, 4)),
            captions=Items(unit(3, 1, 4), residuals=unit(3, 1, 4)),
        ),
    ):
        output = loss(inputs)
        assert output.value.item() == pytest.approx(lmh / 3, abs=1e-9)
        assert set(output.parts) == {"ranking"}
    assert build_loss(PvseSpec(margin=0.2, negatives="sum"))(make_pairs(e)).value.item() == pytest.approx(1.15 / 9)


def test_without_residuals_there_is_no_diversity_term_and_weights_of_zero_switch_terms_off() -> None:
    inputs = random_batch(0, pairs=4, count=2)
    bare = replace(inputs, images=Items(inputs.images.vectors), captions=Items(inputs.captions.vectors))
    assert set(build_loss(PvseSpec())(bare).parts) == {"ranking", "discrepancy"}
    assert set(build_loss(PvseSpec(diversity_weight=0))(inputs).parts) == {"ranking", "discrepancy"}
    output = build_loss(PvseSpec(diversity_weight=0, discrepancy_weight=0))(inputs)
    assert output.value.item() == output.parts["ranking"].item()
