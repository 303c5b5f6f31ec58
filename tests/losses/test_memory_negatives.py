"""Cross-batch memory: which earlier pairs count as negatives of hinges on similarities, by plain loops and by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from vsetune.losses.irtm.spec import IrtmSpec
from vsetune.losses.lmh.spec import LmhSpec
from vsetune.losses.loss_base import Items, LossContext, LossInputs
from vsetune.losses.loss_building import build_loss
from vsetune.losses.lseh.spec import LsehSpec
from vsetune.losses.lsh.spec import LshSpec
from vsetune.losses.luwm.spec import LuwmSpec
from vsetune.losses.parts.spec_fields import HingeSpec

SPECS = [
    LshSpec, LmhSpec, LsehSpec, LuwmSpec, IrtmSpec,
    lambda **fields: LshSpec(variant="diagonal", **fields), lambda **fields: LmhSpec(variant="diagonal", **fields),
    lambda **fields: LsehSpec(variant="diagonal", **fields), lambda **fields: LuwmSpec(one_sided=True, **fields),
    lambda **fields: IrtmSpec(hardest=3, variant="diagonal", **fields),
]
NAMES = ["lsh", "lmh", "lseh", "luwm", "irtm", "lsh.d", "lmh.d", "lseh.d", "luwm.one_sided", "irtm.3.d"]


def cosine(first: Tensor, second: Tensor) -> float:
    return float(first @ second) / (math.sqrt(float(first @ first)) * math.sqrt(float(second @ second)))


def plain_loss(spec: HingeSpec | LsehSpec, now: LossInputs, earlier: list[LossInputs]) -> float:
    """Every query against the other pairs of its batch, then against all pairs of the earlier batches."""
    total, size = 0.0, len(now.image_ids)
    for i in range(size):
        p = now.similarity[i, i].item()
        for query, items in ((now.images, "captions"), (now.captions, "images")):
            scores = []
            for batch in [now, *earlier]:
                for j in range(len(batch.image_ids)):
                    if batch is now and j == i:
                        continue
                    if spec.variant == "decided" and batch.image_ids[j] == now.image_ids[i]:
                        continue
                    score = (query.vectors[i] @ getattr(batch, items).vectors[j]).item()
                    if isinstance(spec, LsehSpec):
                        lift = cosine(now.semantic_vectors[i], batch.semantic_vectors[j])
                        score += spec.semantic_temperature * lift
                    scores.append(score)
            total += plain_term(spec, p, sorted(scores, reverse=True))
    return total / size if isinstance(spec, (LuwmSpec, IrtmSpec)) else total


def plain_term(spec: HingeSpec | LsehSpec, p: float, scores: list[float]) -> float:
    hinges = [max(0.0, spec.margin + score - p) for score in scores]
    if isinstance(spec, LshSpec):
        return sum(hinges)
    if isinstance(spec, IrtmSpec):
        return sum(hinges[: spec.hardest]) / len(hinges[: spec.hardest])
    if not isinstance(spec, LuwmSpec):
        return hinges[0]
    h = scores[0]
    if p >= 1 - spec.epsilon or h + spec.margin <= p:
        return 0.0
    negative = 0.03 - 0.4 * h + 0.9 * h * h
    if spec.one_sided and h < 0.4 / 1.8:
        negative = 0.0
    return max(0.0, 0.5 - 0.7 * p + 0.2 * p * p) + max(0.0, negative)


@pytest.mark.parametrize("spec", SPECS, ids=NAMES)
@pytest.mark.parametrize("seed", [0, 10])
def test_value_equals_plain_loops_over_batch_and_memory(spec, seed, memory_batch, remembering, memory_step) -> None:
    loss = remembering(spec, memory_size=8)
    batches = [memory_batch(seed + number) for number in range(4)]
    for number, batch in enumerate(batches):
        earlier = batches[max(0, number - 2) : number]  # eight pairs are two batches
        expected = plain_loss(loss.inner.spec, batch, earlier)
        assert memory_step(loss, batch) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("spec", SPECS, ids=NAMES)
def test_gradients_reach_the_batch_and_never_the_memory(spec, memory_batch, remembering, memory_step) -> None:
    loss = remembering(spec)
    first, second = memory_batch(0), memory_batch(1)
    memory_step(loss, first)
    first.images.vectors.grad = None

    def value(images: Tensor, captions: Tensor) -> Tensor:
        inputs = LossInputs(
            images @ captions.T, second.image_ids, second.image_ids, second.caption_rows, second.semantic_vectors,
            images=Items(images), captions=Items(captions),
        )
        return loss(inputs).value

    assert torch.autograd.gradcheck(value, (second.images.vectors, second.captions.vectors))
    loss(second).value.backward()
    assert first.images.vectors.grad is None
    assert not any(buffer.requires_grad for buffer in loss.buffers())


def test_a_remembered_caption_becomes_the_hardest_negative_by_hand(memory_step) -> None:
    context = LossContext(embedding_size=2, concepts=9)
    loss = build_loss(LmhSpec(memory_size=3, memory_start_epoch=0), context)

    def batch(images: list[list[float]], captions: list[list[float]], ids: list[int]) -> LossInputs:
        x, y = torch.tensor(images), torch.tensor(captions)
        return LossInputs(
            (x @ y.T).requires_grad_(), torch.tensor(ids), torch.tensor(ids), torch.arange(len(ids)),
            images=Items(x), captions=Items(y),
        )

    # a lone pair has no negative; then image (1, 0) meets caption (0.8, 0.6) again: [0.2 + 0.8 - 0.6]+ = 0.4,
    # its caption (0.6, 0.8) meets image (0, 1): [0.2 + 0.8 - 0.6]+ = 0.4
    first = batch([[0.0, 1.0]], [[0.8, 0.6]], [0])
    second = batch([[1.0, 0.0]], [[0.6, 0.8]], [1])
    assert memory_step(loss, first) == 0.0
    assert memory_step(loss, second) == pytest.approx(0.8)
    # a pair of image 0 ignores the remembered pair of image 0 and meets image 1's: 0.2 + 0 - 0.6 and 0.2 + 0.8 - 0.6
    third = batch([[0.0, 1.0]], [[0.8, 0.6]], [0])
    assert memory_step(loss, third) == pytest.approx(0.4 + 0.4)


def test_an_item_of_the_same_image_counts_under_diagonal_only(memory_batch, remembering, memory_step) -> None:
    for variant, is_zero in (("decided", True), ("diagonal", False)):
        loss = remembering(LmhSpec, variant=variant)
        assert memory_step(loss, memory_batch(3, pairs=1)) == 0.0
        value = loss(memory_batch(3, pairs=1)).value.item()
        assert value == (0.0 if is_zero else pytest.approx(0.4))  # its own earlier view: the margin, twice


@pytest.mark.parametrize("spec", [LshSpec, LmhSpec], ids=["lsh", "lmh"])
@pytest.mark.parametrize("variant", ["decided", "diagonal"])
def test_batches_of_images_remember_every_caption_with_its_image(
    spec, variant, memory_batch, remembering, memory_step
) -> None:
    owner = torch.tensor([0, 0, 1, 2, 2])

    def make(seed: int, ids: list[int]) -> LossInputs:
        pairs = memory_batch(seed, pairs=5)
        images, captions, ids_ = pairs.images.vectors[:3], pairs.captions.vectors, torch.tensor(ids)
        return LossInputs(
            images @ captions.T, ids_, ids_[owner], owner, images=Items(images), captions=Items(captions)
        )

    first, second = make(0, [0, 1, 2]), make(1, [2, 3, 4])
    loss = remembering(spec, variant=variant)
    memory_step(loss, first)
    assert loss.filled == 5
    total = 0.0
    for caption, row in enumerate(owner.tolist()):
        p, image_id = second.similarity[row, caption].item(), int(second.image_ids[row])
        remembered = [j for j in range(5) if int(first.caption_image_ids[j]) != image_id]
        assert len(remembered) == (3 if image_id == 2 else 5)
        by_image = [second.similarity[row, k].item() for k in range(5) if owner[k] != row]
        by_image += [(second.images.vectors[row] @ first.captions.vectors[j]).item() for j in remembered]
        by_caption = [second.similarity[i, caption].item() for i in range(3) if i != row]
        by_caption += [
            (first.images.vectors[owner[j]] @ second.captions.vectors[caption]).item() for j in remembered
        ]
        total += sum(plain_term(loss.inner.spec, p, sorted(scores, reverse=True)) for scores in (by_image, by_caption))
    assert loss(second).value.item() == pytest.approx(total, abs=1e-9)
