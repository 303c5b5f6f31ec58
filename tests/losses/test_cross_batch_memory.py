"""Cross-batch memory: which earlier pairs count as negatives, what is remembered when, and exact continuation."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor
from torch.nn import functional

from vsetune.config.losses import HingeSpec, IrtmSpec, LmhSpec, LsehSpec, LshSpec, LuwmSpec, SumSpec
from vsetune.errors import ConfigError
from vsetune.losses import LossInputs, build_loss
from vsetune.losses.base import Items, LossContext
from vsetune.losses.cross_batch_memory import CrossBatchMemory

SIZE, WIDTH = 6, 5
CONTEXT = LossContext(embedding_size=SIZE, concepts=9)
SPECS = [
    LshSpec, LmhSpec, LsehSpec, LuwmSpec, IrtmSpec,
    lambda **fields: LshSpec(variant="diagonal", **fields), lambda **fields: LmhSpec(variant="diagonal", **fields),
    lambda **fields: LsehSpec(variant="diagonal", **fields), lambda **fields: LuwmSpec(one_sided=True, **fields),
    lambda **fields: IrtmSpec(hardest=3, variant="diagonal", **fields),
]
NAMES = ["lsh", "lmh", "lseh", "luwm", "irtm", "lsh.d", "lmh.d", "lseh.d", "luwm.one_sided", "irtm.3.d"]
MakeBatch = Callable[..., LossInputs]


def make_batch(seed: int, pairs: int = 4, dtype: torch.dtype = torch.float64) -> LossInputs:
    """Pairs of unit vectors with gradient; images repeat within and between batches."""
    generator = torch.Generator().manual_seed(seed)
    images, captions = (
        functional.normalize(torch.randn(pairs, SIZE, generator=generator, dtype=dtype), dim=1).requires_grad_()
        for _ in range(2)
    )
    ids = torch.randint(CONTEXT.concepts, (pairs,), generator=generator)
    vectors = torch.randn(pairs, WIDTH, generator=generator, dtype=dtype)
    return LossInputs(
        images @ captions.T, ids, ids, torch.arange(pairs), vectors, images=Items(images), captions=Items(captions)
    )


def remembering(spec: Callable[..., HingeSpec], memory_size: int = 10, **fields: object) -> CrossBatchMemory:
    loss = build_loss(spec(memory_size=memory_size, memory_start_epoch=0, **fields), CONTEXT).double()
    assert isinstance(loss, CrossBatchMemory)
    return loss


def step(loss: CrossBatchMemory, inputs: LossInputs) -> float:
    """Forward, backward, remember."""
    output = loss(inputs)
    output.value.backward()
    loss.before_step()
    loss.after_step()
    return output.value.item()


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
def test_value_equals_plain_loops_over_batch_and_memory(spec, seed) -> None:
    loss = remembering(spec, memory_size=8)
    batches = [make_batch(seed + number) for number in range(4)]
    for number, batch in enumerate(batches):
        earlier = batches[max(0, number - 2) : number]  # eight pairs are two batches
        expected = plain_loss(loss.inner.spec, batch, earlier)
        assert step(loss, batch) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("spec", SPECS, ids=NAMES)
def test_gradients_reach_the_batch_and_never_the_memory(spec) -> None:
    loss = remembering(spec)
    first, second = make_batch(0), make_batch(1)
    step(loss, first)
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


def test_a_remembered_caption_becomes_the_hardest_negative_by_hand() -> None:
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
    assert step(loss, first) == 0.0
    assert step(loss, second) == pytest.approx(0.8)
    # a pair of image 0 ignores the remembered pair of image 0 and meets image 1's: 0.2 + 0 - 0.6 and 0.2 + 0.8 - 0.6
    third = batch([[0.0, 1.0]], [[0.8, 0.6]], [0])
    assert step(loss, third) == pytest.approx(0.4 + 0.4)


def test_an_item_of_the_same_image_counts_under_diagonal_only() -> None:
    for variant, is_zero in (("decided", True), ("diagonal", False)):
        loss = remembering(LmhSpec, variant=variant)
        assert step(loss, make_batch(3, pairs=1)) == 0.0
        value = loss(make_batch(3, pairs=1)).value.item()
        assert value == (0.0 if is_zero else pytest.approx(0.4))  # its own earlier view: the margin, twice


@pytest.mark.parametrize("spec", [LshSpec, LmhSpec], ids=["lsh", "lmh"])
@pytest.mark.parametrize("variant", ["decided", "diagonal"])
def test_batches_of_images_remember_every_caption_with_its_image(spec, variant) -> None:
    owner = torch.tensor([0, 0, 1, 2, 2])

    def make(seed: int, ids: list[int]) -> LossInputs:
        pairs = make_batch(seed, pairs=5)
        images, captions, ids_ = pairs.images.vectors[:3], pairs.captions.vectors, torch.tensor(ids)
        return LossInputs(
            images @ captions.T, ids_, ids_[owner], owner, images=Items(images), captions=Items(captions)
        )

    first, second = make(0, [0, 1, 2]), make(1, [2, 3, 4])
    loss = remembering(spec, variant=variant)
    step(loss, first)
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


@pytest.mark.parametrize("spec", SPECS[:5], ids=NAMES[:5])
def test_an_empty_memory_changes_no_bit(spec) -> None:
    batch = make_batch(0, dtype=torch.float32)
    loss = build_loss(spec(memory_size=8, memory_start_epoch=0), CONTEXT)
    assert torch.equal(loss(batch).value, build_loss(spec())(batch).value)


def test_it_starts_to_fill_and_to_count_with_its_epoch() -> None:
    loss = build_loss(LmhSpec(memory_size=8, memory_start_epoch=2), CONTEXT).double()
    for epoch in (0, 1):
        loss.start_epoch(epoch)
        assert "memory_fill" not in loss(make_batch(epoch)).parts
        step(loss, make_batch(epoch))
    assert loss.filled == 0
    loss.start_epoch(2)
    assert step(loss, make_batch(2)) == build_loss(LmhSpec())(make_batch(2)).value.item()
    assert loss.filled == 4
    assert loss(make_batch(3)).parts["memory_fill"].item() == 0.5
    assert loss(make_batch(3)).value > build_loss(LmhSpec())(make_batch(3)).value


def test_only_training_steps_are_remembered() -> None:
    loss = remembering(LmhSpec)
    loss.eval()
    step(loss, make_batch(0))
    assert loss.filled == 0
    loss.train()
    loss(make_batch(0))
    assert loss.filled == 0
    loss.after_step()
    assert loss.filled == 4
    loss.after_step()
    assert loss.filled == 4


@pytest.mark.parametrize("sizes", [[3, 3, 3, 3], [1, 2, 5], [4, 9, 2], [12], [5, 5, 5]])
def test_the_ring_holds_the_last_pairs_whatever_the_batches(sizes) -> None:
    loss = remembering(LsehSpec, memory_size=5)
    batches = [make_batch(number, pairs=pairs) for number, pairs in enumerate(sizes)]
    for batch in batches:
        step(loss, batch)
    seen = torch.cat([batch.captions.vectors.detach() for batch in batches])[-5:]
    assert sorted(loss.captions.tolist()) == sorted(seen.tolist())
    semantic = torch.cat([batch.semantic_vectors for batch in batches])[-5:]
    assert sorted(loss.semantic_vectors.tolist()) == sorted(semantic.tolist())
    rows = {tuple(row): int(image_id) for row, image_id in zip(loss.captions.tolist(), loss.image_ids, strict=True)}
    ids = torch.cat([batch.image_ids for batch in batches])[-5:]
    assert rows == {tuple(row): int(image_id) for row, image_id in zip(seen.tolist(), ids, strict=True)}
    assert loss.filled == 5


@pytest.mark.parametrize("spec", SPECS[:5], ids=NAMES[:5])
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_a_restored_memory_goes_on_bit_for_bit(spec, steps, tmp_path) -> None:
    before = build_loss(spec(memory_size=7, memory_start_epoch=1), CONTEXT)
    before.start_epoch(1)
    for number in range(steps):
        step(before, make_batch(number, pairs=3, dtype=torch.float32))
    torch.save(before.state_dict(), tmp_path / "state.pt")
    after = build_loss(spec(memory_size=7, memory_start_epoch=1), CONTEXT)
    after.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    twin = copy.deepcopy(after)
    for number in range(steps, steps + 4):
        values = [step(loss, make_batch(number, pairs=3, dtype=torch.float32)) for loss in (before, after, twin)]
        assert values[0] == values[1] == values[2]
    for name, value in before.state_dict().items():
        assert torch.equal(value, after.state_dict()[name]), name


def test_a_state_of_another_memory_size_is_refused() -> None:
    saved = build_loss(LmhSpec(memory_size=7), CONTEXT).state_dict()
    with pytest.raises(RuntimeError, match="size mismatch"):
        build_loss(LmhSpec(memory_size=8), CONTEXT).load_state_dict(saved)


def test_a_new_phase_starts_with_an_empty_memory() -> None:
    previous, following = remembering(LmhSpec), remembering(LshSpec)
    previous.start_epoch(3)
    step(previous, make_batch(0))
    following.continue_from(previous)
    assert following.filled == 0
    following.continue_from(build_loss(LmhSpec()))
    assert following.filled == 0


def test_a_sum_of_losses_keeps_the_memory_of_its_part() -> None:
    plain = {"mine": {"loss": {"name": "lmh", "memory_size": 6, "memory_start_epoch": 0}}}
    plain["other"] = {"weight": 0.5, "loss": {"name": "lsh"}}
    loss = build_loss(SumSpec(parts=plain), CONTEXT).double()
    alone = remembering(LmhSpec, memory_size=6)
    for number in range(3):
        batch = make_batch(number)
        expected = alone(batch).value + 0.5 * build_loss(LshSpec())(batch).value
        assert loss(batch).value.item() == pytest.approx(expected.item())
        loss.after_step()
        alone.after_step()
    assert loss(make_batch(3)).parts["mine_memory_fill"].item() == 1.0


def test_its_selection_is_of_the_batch_and_marked_as_a_proxy() -> None:
    loss = remembering(LmhSpec)
    assert not loss(make_batch(0)).selection.is_proxy
    loss.after_step()
    selection = loss(make_batch(1)).selection
    assert selection.is_proxy
    assert selection.scores.shape == selection.negatives.shape == (4, 4)


@pytest.mark.parametrize("spec", SPECS[:5], ids=NAMES[:5])
def test_one_nan_in_the_memory_reaches_the_value(spec) -> None:
    for name in ("images", "captions", *(["semantic_vectors"] if spec is LsehSpec else [])):
        loss = remembering(spec)
        step(loss, make_batch(0))
        getattr(loss, name)[2, 1] = float("nan")
        assert loss(make_batch(20)).value.isnan(), name


def test_equal_embeddings_give_the_collapse_value_and_no_gradient_along_the_sphere() -> None:
    context = LossContext(embedding_size=3, concepts=99)
    loss = build_loss(LmhSpec(memory_size=8, memory_start_epoch=0), context)
    for number in range(3):
        vectors = torch.eye(3)[:1].repeat(4, 1).requires_grad_()
        ids = torch.arange(4) + 4 * number
        output = loss(LossInputs(vectors @ vectors.T, ids, ids, torch.arange(4), None, Items(vectors), Items(vectors)))
        assert output.value.item() == pytest.approx(8 * 0.2)
        output.value.backward()
        torch.testing.assert_close(vectors.grad[:, 1:], torch.zeros(4, 2))
        loss.after_step()


def test_half_precision_networks_are_remembered_and_compared_in_float32() -> None:
    loss = build_loss(LmhSpec(memory_size=8, memory_start_epoch=0), CONTEXT)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        step(loss, make_batch(0, dtype=torch.float32))
        inside = loss(make_batch(1, dtype=torch.float32))
    assert inside.value.dtype == torch.float32


def test_networks_that_only_score_pairs_are_refused_in_one_line(e, make_pairs) -> None:
    with pytest.raises(ConfigError, match=r"memory_size: got images with embeddings of shape None.*memory_size to 0"):
        remembering(LmhSpec)(make_pairs(e))


def test_lseh_without_semantic_vectors_is_refused() -> None:
    batch = make_batch(0)
    blind = LossInputs(
        batch.similarity, batch.image_ids, batch.image_ids, batch.caption_rows, None, batch.images, batch.captions
    )
    with pytest.raises(ConfigError, match="got a batch without semantic vectors"):
        remembering(LsehSpec, warmup_epochs=1)(blind)


def test_a_memory_needs_to_know_the_size_of_the_embeddings() -> None:
    with pytest.raises(ConfigError, match="LmhSpec: needs the embedding size"):
        build_loss(LmhSpec(memory_size=4))


def test_released_lseh_has_no_memory() -> None:
    with pytest.raises(ValidationError, match="variant decided or diagonal"):
        LsehSpec(variant="released", memory_size=4)


def test_a_memory_restricts_the_networks_a_loss_fits() -> None:
    assert LmhSpec(memory_size=4).needed_kinds == {"embedding"}
    assert LmhSpec(memory_size=4).needed_scores == {"cosine"}
    assert len(LmhSpec().needed_kinds) > 1
