"""NT-Xent: worked numbers, plain loops, items of the same image, learned temperature, edge cases."""

from __future__ import annotations

import math

import pytest
import torch
from loss_values import unit
from torch import Tensor

from vsetune.losses.loss_base import Items, LossInputs
from vsetune.losses.loss_building import build_loss
from vsetune.losses.nt_xent.loss import nt_xent_terms
from vsetune.losses.nt_xent.spec import NtXentSpec


def batch(images: Tensor, captions: Tensor, ids: Tensor | None = None) -> LossInputs:
    size = images.shape[0]
    ids = torch.arange(size) if ids is None else ids
    return LossInputs(
        images @ captions.T, ids, ids, torch.arange(size), images=Items(images), captions=Items(captions)
    )


def worked() -> LossInputs:
    images = torch.tensor([[1, 0], [0, 1]], dtype=torch.float64)
    captions = torch.tensor([[0.8, 0.6], [-0.6, 0.8]], dtype=torch.float64)
    return batch(images, captions)


def random_batch(seed: int, pairs: int) -> LossInputs:
    ids = torch.randint(max(2, pairs // 2), (pairs,), generator=torch.Generator().manual_seed(seed))
    return batch(unit(pairs, 5, seed=2 * seed), unit(pairs, 5, seed=2 * seed + 1), ids)


def test_worked_values_per_embedding_and_their_mean() -> None:
    inputs = worked()
    both = torch.cat([inputs.images.vectors, inputs.captions.vectors])
    terms, valid = nt_xent_terms(both @ both.T / 0.5, inputs.image_ids, same_image_rule="decided")
    assert terms.tolist() == pytest.approx([0.233257, 0.627123, 0.627123, 0.233257], abs=1e-6)
    assert valid.all()
    output = build_loss(NtXentSpec(softmax_temperature=0.5))(inputs)
    assert output.value.item() == pytest.approx(0.430190, abs=1e-6)
    assert output.parts["temperature"].item() == 0.5


def plain_value(inputs: LossInputs, t: float, variant: str) -> float:
    items = inputs.images.vectors.tolist() + inputs.captions.vectors.tolist()
    ids, size = inputs.image_ids.tolist() * 2, len(inputs.image_ids)
    terms = []
    for i, z in enumerate(items):
        partner = (i + size) % (2 * size)
        others = [j for j in range(2 * size) if j not in (i, partner)]
        if variant == "decided":
            others = [j for j in others if ids[j] != ids[i]]
        if others:
            exps = {j: math.exp(sum(p * q for p, q in zip(z, items[j], strict=True)) / t) for j in (partner, *others)}
            terms.append(-math.log(exps[partner] / sum(exps.values())))
    return sum(terms) / len(terms) if terms else 0.0


@pytest.mark.parametrize("variant", ["decided", "diagonal"])
@pytest.mark.parametrize("seed", range(2))
def test_value_equals_plain_loops_on_duplicate_images(variant, seed) -> None:
    inputs = random_batch(seed, 8)
    value = build_loss(NtXentSpec(softmax_temperature=0.2, variant=variant))(inputs).value
    assert value.item() == pytest.approx(plain_value(inputs, 0.2, variant), abs=1e-9)
