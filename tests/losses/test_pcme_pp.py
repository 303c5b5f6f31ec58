"""PCME++: worked numbers, plain loops, sampled distances, pseudo-positives, points, learned scale and shift."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from loss_values import unit
from refusals import refused
from torch import Tensor

from vsetune.losses.loss_base import Items, LossInputs
from vsetune.losses.loss_building import build_loss
from vsetune.losses.pcme_pp.loss import closed_form_distances, pseudo_positives
from vsetune.losses.pcme_pp.spec import PcmePpSpec
from vsetune.losses.plain_loss import PlainLoss


def batch(images: Items, captions: Items, ids: Tensor) -> LossInputs:
    rows = torch.arange(len(ids))
    return LossInputs(images.vectors @ captions.vectors.T, ids, ids, rows, images=images, captions=captions)


def random_batch(seed: int, pairs: int, size: int = 4) -> LossInputs:
    items = [Items(unit(pairs, size, seed=4 * seed + k), unit(pairs, size, seed=4 * seed + 2 + k)) for k in range(2)]
    ids = torch.randint(max(2, pairs // 2), (pairs,), generator=torch.Generator().manual_seed(seed))
    return batch(*items, ids)


def test_a_distance_by_hand() -> None:
    vectors = torch.eye(2, dtype=torch.float64)
    image = Items(vectors[:1], torch.tensor([[0.0, math.log(2.0)]], dtype=torch.float64))
    caption = Items(vectors[1:], torch.tensor([[math.log(3.0), 0.0]], dtype=torch.float64))
    # |mu - mu'|^2 = 2; variances 1 + 4 of the image, 9 + 1 of the caption
    assert closed_form_distances(image, caption).item() == pytest.approx(17.0, abs=1e-12)


def plain_value(inputs: LossInputs, spec: PcmePpSpec) -> float:
    ids, size = inputs.image_ids.tolist(), len(inputs.image_ids)
    means = [items.vectors.tolist() for items in (inputs.images, inputs.captions)]
    scales = [items.log_scales.tolist() for items in (inputs.images, inputs.captions)]
    logits = [[0.0] * size for _ in range(size)]
    for i in range(size):
        for j in range(size):
            distance = sum((x - y) ** 2 for x, y in zip(means[0][i], means[1][j], strict=True))
            distance += sum(math.exp(2 * s) for s in scales[0][i] + scales[1][j])
            logits[i][j] = spec.shift - spec.scale * distance
    terms: list[list[float]] = [[], [], []]
    for i in range(size):
        for j in range(size):
            if i != j and spec.variant == "decided" and ids[i] == ids[j]:
                continue
            targets = (i == j, logits[i][j] >= logits[i][i], logits[i][j] >= logits[j][j])
            for found, is_match in zip(terms, targets, strict=True):
                found.append(math.log1p(math.exp(-logits[i][j] if is_match else logits[i][j])))
    match, of_images, of_captions = (sum(found) / len(found) for found in terms)
    divergence = 0.0
    for mean, scale in zip(means, scales, strict=True):
        numbers = [
            (m**2 + math.exp(2 * s) - 2 * s - 1) / 2
            for row, of_row in zip(mean, scale, strict=True) for m, s in zip(row, of_row, strict=True)
        ]
        divergence += sum(numbers) / len(numbers)
    return 2 * match + spec.pseudo_weight * (of_images + of_captions) + spec.kl_weight * divergence


@pytest.mark.parametrize("variant", ["decided", "diagonal"])
@pytest.mark.parametrize("seed", range(2))
def test_value_equals_plain_loops_on_duplicate_images(seed, variant) -> None:
    inputs = random_batch(seed, pairs=7)
    spec = PcmePpSpec(scale=0.5, shift=4, pseudo_weight=0.3, kl_weight=0.2, variant=variant)
    value = build_loss(spec).double()(inputs).value
    assert value.item() == pytest.approx(plain_value(inputs, spec), abs=1e-9)


def test_pseudo_positives_are_all_that_is_at_least_as_near_as_the_pair() -> None:
    logits = torch.tensor([[0.0, 1.0, -1.0], [0.0, 0.0, -2.0], [3.0, 4.0, 5.0]])
    expected = torch.tensor([[1, 1, 0], [1, 1, 0], [0, 0, 1]], dtype=torch.bool)
    assert torch.equal(pseudo_positives(logits, torch.eye(3, dtype=torch.bool), rounding=torch.tensor(0.0)), expected)


@pytest.mark.parametrize("has_spread", [False, True])
@pytest.mark.parametrize("length", [1.0, 30.0])
def test_equal_items_whose_last_bits_differ_stay_as_near_as_the_pair(length: float, has_spread: bool) -> None:
    """Equal captions that were encoded in two chunks differ by rounding, which decides about no pseudo-positive."""
    places = torch.arange(24)
    drawn = [length * unit(24, 64, seed=seed, dtype=torch.float32) for seed in range(2)]
    scales = [unit(24, 64, seed=seed, dtype=torch.float32) - 2 if has_spread else None for seed in (2, 3)]
    repeated = [
        Items(vectors[places % count], None if scale is None else scale[places % count])
        for vectors, scale, count in zip(drawn, scales, (9, 5), strict=True)
    ]
    loss = build_loss(PcmePpSpec(pseudo_weight=1.0, kl_weight=0.0))
    exact = loss(batch(*repeated, places)).value.item()
    for seed in range(20):
        torch.manual_seed(seed)
        rounded = [replace(each, vectors=each.vectors * (1 + 3e-7 * torch.randn(24, 64))) for each in repeated]
        assert loss(batch(*rounded, places)).value.item() == pytest.approx(exact, rel=1e-5)


def test_points_have_no_spread_and_no_divergence() -> None:
    inputs = random_batch(1, pairs=5)
    points = [Items(items.vectors) for items in (inputs.images, inputs.captions)]
    output = build_loss(PcmePpSpec())(batch(*points, inputs.image_ids))
    assert output.parts["divergence"].item() == 0
    narrow = [Items(items.vectors, torch.full_like(items.vectors, -40.0)) for items in points]
    almost = build_loss(PcmePpSpec(kl_weight=0.0))(batch(*narrow, inputs.image_ids))
    assert output.value.item() == pytest.approx(almost.value.item(), abs=1e-9)


def test_scores_without_embeddings_are_refused() -> None:
    with refused("VSE-L003", loss="pcme_pp"):
        PlainLoss(PcmePpSpec())(torch.eye(4))
