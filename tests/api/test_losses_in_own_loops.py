"""Losses in other people's loops: batches in any order and precision, optimizers, files and processes."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from loss_values import LOSS_CLASSES, unit
from torch import Tensor, nn

import vsetune
from vsetune.config.component_specs import LOSSES, MemorySpec, SumSpec
from vsetune.losses.plain_loss import PlainLoss

SIZES = {"embedding_size": 8, "images": 100}
CENTERS = {"quantised_centers": 3}
MEMORY = {"memory_size": 16, "memory_start_epoch": 0}
SUM = {"parts": {"one": {"loss": {"name": "lmh", **MEMORY}}, "two": {"weight": 0.5, "loss": {"name": "clip"}}}}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in LOSSES),
    *(
        (name, MEMORY | ({"negatives": "hardest"} if name in {"adaptive_margin", "contrastive"} else {}))
        for name, spec in LOSSES.items() if issubclass(spec, MemorySpec)
    ),
    *((name, {"variant": "diagonal"}) for name in ("lmh", "info_nce", "siglip", "hcl", "pvse")),
    ("lmh", {"variant": "diagonal", **MEMORY}), ("lseh", {"variant": "released"}), ("order", {"negatives": "max"}),
    ("info_nce", {"learned": True}), ("margin_based", {"negatives": "all"}), ("top_f", {"warmup_epochs": 1}),
    ("semantic_center", {"centers": "quantised", **CENTERS, "negatives": "hardest"}),
    ("semantic_center", {"adaptive": True, "on_sphere": True}), ("sum", SUM),
]
IDS = torch.tensor([7, 3, 7, 20, 5, 9])
ROWS = torch.tensor([2, 0, 1, 5, 3, 4])


def made(name: str, settings: dict[str, Any]) -> PlainLoss:
    torch.manual_seed(0)
    if name == "sum":
        return PlainLoss(SumSpec.model_validate(settings), **SIZES)
    loss: PlainLoss = LOSS_CLASSES[name](**SIZES, **settings)
    return loss


def batch(seed: int, pairs: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    """Images, captions (pairs, 8) and semantic vectors of the captions, of any length."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(pairs, size, generator=generator) for size in (8, 8, 5))  # type: ignore[return-value]


def called(loss: PlainLoss, images: Tensor, captions: Tensor, **more: Any) -> Any:
    """The output; the same random numbers each time."""
    torch.manual_seed(1)
    if "order" in {each.name for each in loss.spec.terms().values()}:
        more["scores"] = -torch.cdist(images.float(), captions.float())
    return loss.output(images, captions, **more)


def step(loss: PlainLoss, value: Tensor) -> None:
    if value.requires_grad:
        value.backward()
    loss.before_step()
    loss.after_step()


@pytest.mark.parametrize(("name", "settings"), VARIANTS, ids=str)
def test_captions_in_another_order_are_the_same_pairs(name: str, settings: dict[str, Any]) -> None:
    one, other = made(name, settings), made(name, settings)
    for seed in (0, 1):  # the second batch meets a memory of the first
        images, captions, meaning = batch(seed)
        image, same = images.clone().requires_grad_(), images.clone().requires_grad_()
        found = called(one, image, captions, caption_rows=ROWS, image_ids=IDS, semantic_vectors=meaning)
        expected = called(other, same[ROWS], captions, image_ids=IDS[ROWS], semantic_vectors=meaning)
        assert found.value.item() == expected.value.item()
        assert found.value.item() != called(made(name, settings), images, captions, semantic_vectors=meaning).value
        if found.selection is not None:  # rows stay images
            assert torch.equal(found.selection.scores[ROWS], expected.selection.scores)
            assert torch.equal(found.selection.negatives[ROWS], expected.selection.negatives)
        for loss, output in ((one, found), (other, expected)):
            step(loss, output.value)
        torch.testing.assert_close(image.grad, same.grad)


def test_a_perfect_retrieval_in_another_order_costs_nothing() -> None:
    scores = torch.zeros(6, 6)
    scores[ROWS, torch.arange(6)] = 1
    assert vsetune.losses.LMH()(scores=scores, caption_rows=ROWS).item() == 0
    assert vsetune.losses.LMH()(scores=scores).item() == pytest.approx(12 * 1.2)


@pytest.mark.parametrize(("owners", "pairs"), [([0, 0, 1, 2, 2, 3], 4), ([0, 0, 2, 3], 4), ([1, 0], 3)], ids=str)
@pytest.mark.parametrize(
    ("name", "settings"),
    [(name, settings) for name, settings in VARIANTS if name == "sum" or LOSSES[name].several_positives], ids=str,
)
def test_several_captions_an_image_in_any_order(
    name: str, settings: dict[str, Any], owners: list[int], pairs: int
) -> None:
    """Also where there are as many captions as images, but one image has two and another none."""
    rows, ids = torch.tensor(owners), IDS[1 : 1 + pairs]
    one, other = made(name, settings), made(name, settings)
    order, places = torch.randperm(len(owners)), torch.randperm(pairs)
    for seed in (0, 1):
        images, (_, captions, meaning) = batch(seed, pairs)[0], batch(seed, len(owners))
        found = called(one, images, captions, caption_rows=rows, image_ids=ids, semantic_vectors=meaning)
        moved = called(
            other, images[places], captions[order], caption_rows=places.argsort()[rows][order], image_ids=ids[places],
            semantic_vectors=meaning[order],
        )
        torch.testing.assert_close(found.value, moved.value)
        for loss, output in ((one, found), (other, moved)):
            step(loss, output.value)


def test_as_many_captions_as_images_are_no_pairs_where_an_image_has_two() -> None:
    scores, rows = unit(4, 4, seed=3), [0, 0, 2, 3]
    by_hand = 0.0
    for j, i in enumerate(rows):
        own = scores[i, j]
        by_hand += max(0.0, max(float(0.2 + scores[i, k] - own) for k in range(4) if rows[k] != i))
        by_hand += max(0.0, max(float(0.2 + scores[k, j] - own) for k in range(4) if k != i))
    assert vsetune.losses.LMH()(scores=scores, caption_rows=torch.tensor(rows)).item() == pytest.approx(by_hand)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("name", "settings"), VARIANTS, ids=str)
def test_half_precision_and_autocast_give_the_number_of_float32(
    name: str, settings: dict[str, Any], half: torch.dtype
) -> None:
    """Of the same numbers: also for a zero vector, one of a length beyond float16, and many small ones."""
    images, captions, meaning = (each.to(half) for each in batch(2))
    images[0], images[1], captions[2] = 0, 3e4 * images[1].sign(), 1e-3 * captions[2]
    narrow = images.clone().requires_grad_()
    found = called(made(name, settings), narrow, captions, image_ids=IDS, semantic_vectors=meaning).value
    wide = images.float().requires_grad_()
    expected = called(
        made(name, settings), wide, captions.float(), image_ids=IDS, semantic_vectors=meaning.float()
    ).value
    assert found.item() == expected.item()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = called(
            made(name, settings), wide, captions.float(), image_ids=IDS, semantic_vectors=meaning.float()
        ).value
    assert cast.item() == expected.item()
    if name == "order":  # made of scores
        return
    found.backward()
    expected.backward()
    assert not wide.grad[0].any()
    torch.testing.assert_close(narrow.grad, wide.grad.to(half))


@pytest.mark.parametrize(("name", "settings"), VARIANTS, ids=str)
def test_a_loss_learns_with_adamw_and_clipped_gradients(name: str, settings: dict[str, Any]) -> None:
    loss = made(name, settings)
    images, captions, meaning = batch(4)
    encoder = nn.Linear(8, 8)
    learned = [*encoder.parameters(), *loss.parameters()]
    before = [each.detach().clone() for each in learned]
    optimizer = torch.optim.AdamW(learned, lr=1e-3, weight_decay=0)
    for _ in range(2):
        value = called(loss, encoder(images), captions, image_ids=IDS, semantic_vectors=meaning).value
        optimizer.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(learned, 1.0)
        loss.before_step()
        optimizer.step()
        loss.after_step()
    assert all(each.isfinite().all() for each in learned)
    still = [each for each, old in zip(learned, before, strict=True) if each.requires_grad and torch.equal(each, old)]
    assert still == []


def met(name: str, settings: dict[str, Any]) -> PlainLoss:
    """A loss that has had a training step and is between a forward and the next."""
    loss = made(name, settings)
    for seed in (0, 1):
        images, captions, meaning = batch(seed)
        value = called(loss, images.requires_grad_(), captions, image_ids=IDS, semantic_vectors=meaning).value
        if seed == 0:
            step(loss, value)
    return loss


def next_value(loss: PlainLoss) -> float:
    images, captions, meaning = batch(5)
    return float(called(loss, images, captions, image_ids=IDS, semantic_vectors=meaning).value.detach())


@pytest.mark.parametrize(("name", "settings"), VARIANTS, ids=str)
def test_a_loss_is_saved_loaded_and_copied_whole(name: str, settings: dict[str, Any]) -> None:
    loss, file = met(name, settings), io.BytesIO()
    torch.save(loss, file)
    file.seek(0)
    others = [torch.load(file, weights_only=False), copy.deepcopy(loss)]
    expected = next_value(loss)
    for other in others:
        assert repr(other) == repr(loss)
        assert next_value(other) == expected
        other.load_state_dict(loss.state_dict())


def answer(losses: list[PlainLoss], queue: Any) -> None:
    queue.put([next_value(loss) for loss in losses])


def test_losses_are_sent_to_a_process() -> None:
    losses = [met(name, settings) for name, settings in VARIANTS]
    context = torch.multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=answer, args=(losses, queue))
    process.start()
    found = queue.get(timeout=120)
    process.join()
    assert found == [next_value(loss) for loss in losses]
