"""Cross-batch memory of PVSE, top-f and the losses on distances: plain loops over the batch and all earlier pairs."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from vsetune.config.component_specs import MemorySpec
from vsetune.losses.adaptive_margin.spec import AdaptiveMarginSpec
from vsetune.losses.contrastive.spec import ContrastiveSpec
from vsetune.losses.loss_base import Items, LossInputs
from vsetune.losses.loss_building import build_loss
from vsetune.losses.pvse.spec import PvseSpec
from vsetune.losses.top_f.spec import TopFSpec

PVSE = [PvseSpec, lambda **fields: PvseSpec(negatives="sum", variant="diagonal", **fields)]
TRIPLETS = [
    lambda **fields: AdaptiveMarginSpec(negatives="hardest", **fields),
    lambda **fields: AdaptiveMarginSpec(negatives="hardest", squared=True, **fields),
]
PAIRS = [lambda **fields: ContrastiveSpec(negatives="hardest", **fields),
         lambda **fields: ContrastiveSpec(negatives="all", **fields)]
TOP_F = [
    lambda **fields: TopFSpec(decay="linear", decay_steps=4, **fields),
    lambda **fields: TopFSpec(warmup_epochs=1, **fields),
]
WARMING = [lambda **fields: AdaptiveMarginSpec(negatives="hardest", warmup_epochs=1, **fields),
           lambda **fields: PvseSpec(warmup_epochs=1, **fields)]
SPECS = [*PVSE, *TRIPLETS, *PAIRS, *TOP_F, *WARMING]
NAMES = ["pvse", "pvse.sum", "adaptive", "adaptive.squared", "contrastive", "contrastive.all", "top_f", "top_f.warming",
         "adaptive.warming", "pvse.warming"]


def images_of(batch: LossInputs) -> Tensor:
    return batch.images.vectors[batch.caption_rows]


def queries(now: LossInputs, earlier: list[LossInputs], keeps_same_image: bool) -> list[tuple[str, list, list]]:
    """Per query its direction, its positives and its negatives; the first positive is its own pair."""
    found = []
    images, captions = now.images.vectors.detach(), now.captions.vectors.detach()
    batch_images, batch_captions = now.image_ids.tolist(), now.caption_image_ids.tolist()
    for of, own, own_ids, others, other_ids in (
        ("image", images, batch_images, captions, batch_captions),
        ("caption", captions, batch_captions, images, batch_images),
    ):
        for i, vector in enumerate(own):
            low, high = [], []
            for j, other in enumerate(others):
                is_own = own_ids[i] == other_ids[j]
                score = float(vector @ other)
                if is_own and (not keeps_same_image or i == j):
                    low.insert(0 if i == j else len(low), score)
                else:
                    high.append(score)
            for batch in earlier:
                pool = batch.captions.vectors if of == "image" else images_of(batch)
                for other, image_id in zip(pool.detach(), batch.caption_image_ids.tolist(), strict=True):
                    if keeps_same_image or image_id != own_ids[i]:
                        high.append(float(vector @ other))
            found.append((of, low, high))
    return found


def plain_top_f(found: list[tuple[str, list, list]], fraction: float, margin: float, warming: bool) -> float:
    total, means = 0.0, {"image": [], "caption": []}
    for of, low, high in found:
        if not low or not high:
            continue
        low = sorted(low)[: max(1, math.ceil(fraction * len(low) - 1e-9))]
        high = sorted(high, reverse=True)[: max(1, math.ceil(fraction * len(high) - 1e-9))]
        hinges = [max(0.0, n + margin - p) for n in high for p in low]
        total += sum(hinges)
        means[of].append(sum(hinges) / len(hinges))
    if warming:
        return total
    return sum(sum(each) / len(each) for each in means.values() if each) / (2 * margin)


def plain_loss(loss: Any, now: LossInputs, earlier: list[LossInputs]) -> float:
    spec = loss.spec
    found = queries(now, earlier, getattr(spec, "variant", "") == "diagonal")
    pairs, pool = len(now.image_ids), len(now.image_ids) + sum(len(batch.image_ids) for batch in earlier)
    if isinstance(spec, TopFSpec):
        return plain_top_f(found, 1.0 if loss.is_warming_up else loss.fraction, spec.margin, loss.is_warming_up)
    total = 0.0
    for of, low, high in found:
        if isinstance(spec, PvseSpec):
            hinges = [max(0.0, spec.margin + score - low[0]) for score in high]
            everything = spec.negatives == "sum" or loss.is_warming_up
            total += sum(hinges) / (pairs * pool) if everything else max(hinges, default=0.0) / pairs
            continue
        own, *others = ((2 - 2 * score) ** (1 if spec.squared else 0.5) for score in (low[0], *high))
        if isinstance(spec, ContrastiveSpec):
            used = sorted(others)[: 1 if spec.negatives == "hardest" else None]
            total += own + sum(max(0.0, spec.margin - other) for other in used) if of == "image" else 0.0
        else:
            used = others if loss.is_warming_up else sorted(others)[:1]
            total += sum(max(0.0, own - other + spec.margin) for other in used)
    return total


@pytest.mark.parametrize("spec", SPECS, ids=NAMES)
@pytest.mark.parametrize("seed", [0, 10])
def test_value_equals_plain_loops_over_batch_and_memory(spec, seed, memory_batch, remembering, memory_step) -> None:
    loss = remembering(spec, memory_size=8)
    batches = [memory_batch(seed + number) for number in range(4)]
    for number, batch in enumerate(batches):
        expected = plain_loss(loss.inner, batch, batches[max(0, number - 2) : number])  # eight pairs are two batches
        assert memory_step(loss, batch) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("spec", TOP_F, ids=["top_f", "warming"])
def test_top_f_remembers_batches_of_images_too(spec, memory_batch, remembering, memory_step) -> None:
    owner = torch.tensor([0, 0, 1, 2, 2])

    def make(seed: int, ids: list[int]) -> LossInputs:
        pairs, image_ids = memory_batch(seed, pairs=5), torch.tensor(ids)
        images, captions = Items(pairs.images.vectors[:3]), pairs.captions
        similarity = images.vectors @ captions.vectors.T
        return LossInputs(similarity, image_ids, image_ids[owner], owner, images=images, captions=captions)

    loss = remembering(spec, memory_size=10)
    batches = [make(0, [0, 1, 2]), make(1, [2, 3, 4]), make(2, [4, 0, 7])]
    for number, batch in enumerate(batches):
        expected = plain_loss(loss.inner, batch, batches[:number])
        assert memory_step(loss, batch) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("spec", SPECS, ids=NAMES)
def test_gradients_reach_the_batch_alone(spec, memory_batch, remembering, memory_step, embedded_pairs) -> None:
    loss = remembering(spec)
    memory_step(loss, memory_batch(0))
    second = memory_batch(1)

    def value(images: Tensor, captions: Tensor) -> Tensor:
        return loss(embedded_pairs(images, captions, second.image_ids)).value

    assert torch.autograd.gradcheck(value, (second.images.vectors, second.captions.vectors))
    assert not any(buffer.requires_grad for buffer in loss.buffers())


@pytest.mark.parametrize("spec", [*PVSE, *TRIPLETS, *TOP_F], ids=[*NAMES[:4], *NAMES[6:8]])
def test_a_selection_with_a_memory_is_of_the_batch_and_a_proxy(spec, memory_batch, remembering, memory_step) -> None:
    loss = remembering(spec)
    memory_step(loss, memory_batch(0))
    selection = loss(memory_batch(1)).selection
    if selection is not None:
        assert selection.is_proxy
        assert selection.scores.shape == selection.negatives.shape == (4, 4)


def test_images_of_one_item_alone_meet_the_memory(memory_batch, remembering, memory_step) -> None:
    """A lone pair has no triplet of its own, and every remembered one of another image is a negative."""
    for spec in TOP_F[:1] + TRIPLETS[:1]:
        loss = remembering(spec)
        assert memory_step(loss, memory_batch(3, pairs=1)) == 0
        other = next(seed for seed in range(9) if memory_batch(seed, pairs=1).image_ids != memory_batch(3, 1).image_ids)
        now = memory_batch(other, pairs=1)
        assert loss(now).value.item() == pytest.approx(plain_loss(loss.inner, now, [memory_batch(3, 1)]), abs=1e-9)


@pytest.mark.parametrize("spec", SPECS, ids=NAMES)
def test_a_memory_needs_one_cosine_embedding_per_item(spec) -> None:
    with_memory: MemorySpec = spec(memory_size=4)
    assert with_memory.needed_kinds == {"embedding"}
    assert with_memory.needed_scores == {"cosine"}
    assert build_loss(spec()).state_dict().keys().isdisjoint({"images", "captions"})
