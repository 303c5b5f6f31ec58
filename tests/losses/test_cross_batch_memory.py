"""Cross-batch memory: which earlier pairs are negatives, by plain loops and by hand; what is remembered when."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from vsetune.config.component_specs import LOSSES, MemorySpec, SumSpec
from vsetune.losses.lmh.spec import LmhSpec
from vsetune.losses.loss_base import Items, LossContext, LossInputs
from vsetune.losses.loss_building import build_loss
from vsetune.losses.lseh.spec import LsehSpec
from vsetune.losses.lsh.spec import LshSpec

CONTEXT = LossContext(embedding_size=6, concepts=9)
CASES: list[tuple[str, dict[str, Any]]] = [
    ("lsh", {}), ("lsh", {"variant": "diagonal"}), ("lmh", {}), ("lmh", {"variant": "diagonal"}), ("lseh", {}),
    ("lseh", {"variant": "diagonal"}), ("luwm", {}), ("luwm", {"one_sided": True}), ("irtm", {}),
    ("irtm", {"hardest": 3, "variant": "diagonal"}), ("pvse", {}),
    ("pvse", {"negatives": "sum", "variant": "diagonal"}), ("pvse", {"warmup_epochs": 1}),
    ("adaptive_margin", {"negatives": "hardest"}),
    ("adaptive_margin", {"negatives": "hardest", "squared": True}),
    ("adaptive_margin", {"negatives": "hardest", "warmup_epochs": 1}), ("contrastive", {"negatives": "hardest"}),
    ("contrastive", {"negatives": "all"}), ("top_f", {"decay": "linear", "decay_steps": 4}),
    ("top_f", {"warmup_epochs": 1}),
]
every_case = pytest.mark.parametrize(("name", "settings"), CASES, ids=str)
Query = tuple[str, list[float], list[float]]
"""Its direction, its positives with that of its own pair first, its negatives."""


def lift(spec: Any, *captions: tuple[LossInputs, int]) -> float:
    if spec.name != "lseh":
        return 0.0
    first, second = (batch.semantic_vectors[place] for batch, place in captions)
    return spec.semantic_temperature * float(first @ second) / (float(first.norm()) * float(second.norm()))


def queries(spec: Any, now: LossInputs, earlier: list[LossInputs], *, of_pairs: bool = True) -> list[Query]:
    """Both queries of every pair, or those of every image and every caption."""
    found = []
    keeps_same_image, rows = getattr(spec, "variant", "decided") == "diagonal", now.caption_rows.tolist()
    askers = rows if of_pairs else range(len(now.image_ids))
    for of, asking in (("image", [(row, row) for row in askers]), ("caption", list(enumerate(rows)))):
        for place, (asker, row) in enumerate(asking):
            items = now.images if of == "image" else now.captions
            vector, image_id = items.vectors[asker].detach(), now.image_ids[row]
            own = row if of == "caption" else place if of_pairs else None
            low, high = [], []
            for batch in [now, *earlier]:
                vectors, ids = batch.captions.vectors, batch.caption_image_ids
                if of == "caption":  # remembered pair by pair
                    rows_met = slice(None) if batch is now else batch.caption_rows
                    vectors, ids = batch.images.vectors[rows_met], batch.image_ids[rows_met]
                for j, other in enumerate(vectors.detach()):
                    score = float(vector @ other)
                    if batch is now and j == own:
                        low.insert(0, score)
                    elif not keeps_same_image and ids[j] == image_id:
                        low.extend([score] if batch is now else [])
                    else:
                        high.append(score + lift(spec, (now, place), (batch, j)))
            found.append((of, low, high))
    return found


def plain_top_f(found: list[Query], loss: Any) -> float:
    total, means = 0.0, {"image": [], "caption": []}
    fraction, margin = 1.0 if loss.is_warming_up else loss.fraction, loss.spec.margin
    for of, low, high in found:
        if not low or not high:
            continue
        low = sorted(low)[: max(1, math.ceil(fraction * len(low) - 1e-9))]
        high = sorted(high, reverse=True)[: max(1, math.ceil(fraction * len(high) - 1e-9))]
        hinges = [max(0.0, n + margin - p) for n in high for p in low]
        total += sum(hinges)
        means[of].append(sum(hinges) / len(hinges))
    if loss.is_warming_up:
        return total
    return sum(sum(each) / len(each) for each in means.values() if each) / (2 * margin)


def plain_luwm(spec: Any, matched: float, hardest: float) -> float:
    if matched >= 1 - spec.epsilon or hardest + spec.margin <= matched:
        return 0.0
    negative = max(0.0, 0.03 - 0.4 * hardest + 0.9 * hardest**2)
    return max(0.0, 0.5 - 0.7 * matched + 0.2 * matched**2) + (
        0.0 if spec.one_sided and hardest < 0.4 / 1.8 else negative
    )


def plain_loss(loss: Any, now: LossInputs, earlier: list[LossInputs]) -> float:
    spec = loss.spec
    if spec.name == "top_f":
        return plain_top_f(queries(spec, now, earlier, of_pairs=False), loss)
    pairs, total = len(now.caption_rows), 0.0
    pool = pairs + sum(len(batch.caption_rows) for batch in earlier)
    for of, (matched, *_), negatives in queries(spec, now, earlier):
        if spec.name in ("contrastive", "adaptive_margin"):
            own, *others = ((2 - 2 * score) ** (1 if spec.squared else 0.5) for score in (matched, *negatives))
            takes_all = spec.negatives == "all" or loss.is_warming_up
            used = sorted(others)[: None if takes_all else 1]
            if spec.name == "adaptive_margin":
                total += sum(max(0.0, own - other + spec.margin) for other in used)
            elif of == "image":
                total += own + sum(max(0.0, spec.margin - other) for other in used)
            continue
        hinges = sorted((max(0.0, spec.margin + score - matched) for score in negatives), reverse=True)
        if not hinges:
            continue
        if spec.name == "luwm":
            total += plain_luwm(spec, matched, max(negatives)) / pairs
        elif spec.name == "irtm":
            total += sum(hinges[: spec.hardest]) / len(hinges[: spec.hardest]) / pairs
        elif spec.name == "pvse":
            takes_all = spec.negatives == "sum" or loss.is_warming_up
            total += sum(hinges) / (pairs * pool) if takes_all else hinges[0] / pairs
        else:
            total += sum(hinges) if spec.name == "lsh" else hinges[0]
    return total


@every_case
def test_value_equals_plain_loops_over_batch_and_memory(name, settings, memory_batch, remembering, memory_step) -> None:
    loss = remembering(LOSSES[name], memory_size=8, **settings)
    batches = [memory_batch(number) for number in range(4)]
    for number, batch in enumerate(batches):
        expected = plain_loss(loss.inner, batch, batches[max(0, number - 2) : number])  # eight pairs are two batches
        assert memory_step(loss, batch) == pytest.approx(expected, abs=1e-9)
    assert batches[0].images.vectors.grad.isfinite().all()
    assert not any(buffer.requires_grad for buffer in loss.buffers())


@pytest.mark.parametrize(("name", "settings"), [
    ("lsh", {}), ("lmh", {}), ("lmh", {"variant": "diagonal"}), ("top_f", {"decay": "linear", "decay_steps": 4}),
    ("top_f", {"warmup_epochs": 1}),
], ids=str)
def test_batches_of_images_remember_every_caption_with_its_image(
    name, settings, memory_batch, remembering, memory_step
) -> None:
    owner = torch.tensor([0, 0, 1, 2, 2])

    def make(seed: int, ids: list[int]) -> LossInputs:
        pairs, image_ids = memory_batch(seed, pairs=5), torch.tensor(ids)
        images, captions = Items(pairs.images.vectors[:3]), pairs.captions
        similarity = images.vectors @ captions.vectors.T
        return LossInputs(similarity, image_ids, image_ids[owner], owner, images=images, captions=captions)

    loss = remembering(LOSSES[name], memory_size=10, **settings)
    batches = [make(0, [0, 1, 2]), make(1, [2, 3, 4]), make(2, [4, 0, 7])]
    plain = build_loss(LOSSES[name](**settings | ({"variant": "decided"} if "variant" in settings else {})))
    for number, batch in enumerate(batches):
        plain.load_state_dict(loss.inner.state_dict())
        assert memory_step(loss, batch) == pytest.approx(plain_loss(plain, batch, batches[:number]), abs=1e-9)


@pytest.mark.parametrize("name", ["lseh", "adaptive_margin", "top_f"])
def test_gradients_reach_the_batch_and_never_the_memory(name, memory_batch, remembering, memory_step) -> None:
    loss = remembering(LOSSES[name], **({"negatives": "hardest"} if name == "adaptive_margin" else {}))
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


@every_case
def test_an_empty_memory_changes_no_bit_and_a_full_one_makes_selections_proxies(
    name, settings, memory_batch, remembering, memory_step
) -> None:
    batch, loss = memory_batch(0), remembering(LOSSES[name], **settings)
    assert memory_step(loss, batch) == build_loss(LOSSES[name](**settings))(batch).value.item()
    selection = loss(memory_batch(1)).selection
    if selection is not None:
        assert selection.is_proxy
        assert selection.scores.shape == selection.negatives.shape == (4, 4)


@every_case
def test_a_memory_needs_one_cosine_embedding_per_item(name, settings) -> None:
    with_memory: MemorySpec = LOSSES[name](memory_size=4, **settings)
    assert with_memory.needed_kinds == {"embedding"}
    assert with_memory.needed_scores == {"cosine"}


def test_it_starts_to_fill_and_to_count_with_its_epoch(memory_batch, memory_step) -> None:
    loss = build_loss(LmhSpec(memory_size=8, memory_start_epoch=2), CONTEXT).double()
    for epoch in (0, 1):
        loss.start_epoch(epoch)
        assert "memory_fill" not in loss(memory_batch(epoch)).parts
        memory_step(loss, memory_batch(epoch))
    assert loss.filled == 0
    loss.start_epoch(2)
    assert memory_step(loss, memory_batch(2)) == build_loss(LmhSpec())(memory_batch(2)).value.item()
    assert loss.filled == 4
    assert loss(memory_batch(3)).parts["memory_fill"].item() == 0.5
    assert loss(memory_batch(3)).value > build_loss(LmhSpec())(memory_batch(3)).value


def test_only_training_steps_are_remembered(memory_batch, remembering, memory_step) -> None:
    loss = remembering(LmhSpec)
    loss.eval()
    memory_step(loss, memory_batch(0))
    assert loss.filled == 0
    loss.train()
    loss(memory_batch(0))
    assert loss.filled == 0
    loss.after_step()
    assert loss.filled == 4
    loss.after_step()
    assert loss.filled == 4


@pytest.mark.parametrize("sizes", [[3, 3, 3, 3], [1, 2, 5], [4, 9, 2], [12], [5, 5, 5]])
def test_the_ring_holds_the_last_pairs_whatever_the_batches(sizes, memory_batch, remembering, memory_step) -> None:
    loss = remembering(LsehSpec, memory_size=5)
    batches = [memory_batch(number, pairs=pairs) for number, pairs in enumerate(sizes)]
    for batch in batches:
        memory_step(loss, batch)
    seen = torch.cat([batch.captions.vectors.detach() for batch in batches])[-5:]
    assert sorted(loss.captions.tolist()) == sorted(seen.tolist())
    semantic = torch.cat([batch.semantic_vectors for batch in batches])[-5:]
    assert sorted(loss.semantic_vectors.tolist()) == sorted(semantic.tolist())
    rows = {tuple(row): int(image_id) for row, image_id in zip(loss.captions.tolist(), loss.image_ids, strict=True)}
    ids = torch.cat([batch.image_ids for batch in batches])[-5:]
    assert rows == {tuple(row): int(image_id) for row, image_id in zip(seen.tolist(), ids, strict=True)}
    assert loss.filled == 5


def test_a_state_of_another_memory_size_is_refused() -> None:
    saved = build_loss(LmhSpec(memory_size=7), CONTEXT).state_dict()
    with pytest.raises(RuntimeError, match="size mismatch"):
        build_loss(LmhSpec(memory_size=8), CONTEXT).load_state_dict(saved)


def test_a_new_phase_empties_the_memory_and_hands_the_inner_loss_on(
    memory_batch, remembering, memory_step, monkeypatch
) -> None:
    previous, following, plain = remembering(LmhSpec), remembering(LmhSpec), build_loss(LmhSpec())
    previous.start_epoch(3)
    memory_step(previous, memory_batch(0))
    handed: list[object] = []
    monkeypatch.setattr(following.inner, "continue_from", handed.append)
    following.continue_from(previous)
    following.continue_from(plain)
    assert following.filled == 0
    assert handed == [previous.inner, plain]


def test_a_sum_of_losses_keeps_the_memory_of_its_part(memory_batch, remembering) -> None:
    plain = {"mine": {"loss": {"name": "lmh", "memory_size": 6, "memory_start_epoch": 0}}}
    plain["other"] = {"weight": 0.5, "loss": {"name": "lsh"}}
    loss = build_loss(SumSpec(parts=plain), CONTEXT).double()
    alone = remembering(LmhSpec, memory_size=6)
    for number in range(3):
        batch = memory_batch(number)
        expected = alone(batch).value + 0.5 * build_loss(LshSpec())(batch).value
        assert loss(batch).value.item() == pytest.approx(expected.item())
        loss.after_step()
        alone.after_step()
    assert loss(memory_batch(3)).parts["mine_memory_fill"].item() == 1.0


@pytest.mark.parametrize(("name", "what"), [
    ("lseh", "images"), ("lseh", "captions"), ("lseh", "semantic_vectors"), ("top_f", "images"), ("pvse", "captions"),
])
def test_one_nan_in_the_memory_reaches_the_value(name, what, memory_batch, remembering, memory_step) -> None:
    loss = remembering(LOSSES[name])
    memory_step(loss, memory_batch(0))
    getattr(loss, what)[2, 1] = float("nan")
    assert loss(memory_batch(20)).value.isnan()


def test_half_precision_networks_are_remembered_and_compared_in_float32(memory_batch, memory_step) -> None:
    loss = build_loss(LmhSpec(memory_size=8, memory_start_epoch=0), CONTEXT)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        memory_step(loss, memory_batch(0, dtype=torch.float32))
        inside = loss(memory_batch(1, dtype=torch.float32))
    assert inside.value.dtype == torch.float32
