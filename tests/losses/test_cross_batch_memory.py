"""Cross-batch memory: what is remembered when, what it needs, and exact continuation."""

from __future__ import annotations

import copy

import pytest
import torch

from vsetune.config.component_specs import SumSpec
from vsetune.losses.adaptive_margin.spec import AdaptiveMarginSpec
from vsetune.losses.contrastive.spec import ContrastiveSpec
from vsetune.losses.irtm.spec import IrtmSpec
from vsetune.losses.lmh.spec import LmhSpec
from vsetune.losses.loss_base import Items, LossContext, LossInputs
from vsetune.losses.loss_building import build_loss
from vsetune.losses.lseh.spec import LsehSpec
from vsetune.losses.lsh.spec import LshSpec
from vsetune.losses.luwm.spec import LuwmSpec
from vsetune.losses.pvse.spec import PvseSpec
from vsetune.losses.top_f.spec import TopFSpec

CONTEXT = LossContext(embedding_size=6, concepts=9)
SPECS = [
    LshSpec, LmhSpec, LsehSpec, LuwmSpec, IrtmSpec, PvseSpec, TopFSpec,
    lambda **fields: AdaptiveMarginSpec(negatives="hardest", interval=3, **fields),
    lambda **fields: ContrastiveSpec(negatives="hardest", **fields),
]
NAMES = ["lsh", "lmh", "lseh", "luwm", "irtm", "pvse", "top_f", "adaptive_margin", "contrastive"]


@pytest.mark.parametrize("spec", SPECS, ids=NAMES)
def test_an_empty_memory_changes_no_bit(spec, memory_batch) -> None:
    batch = memory_batch(0, dtype=torch.float32)
    loss = build_loss(spec(memory_size=8, memory_start_epoch=0), CONTEXT)
    assert torch.equal(loss(batch).value, build_loss(spec())(batch).value)


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


@pytest.mark.parametrize("spec", SPECS, ids=NAMES)
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_a_restored_memory_goes_on_bit_for_bit(spec, steps, tmp_path, memory_batch, memory_step) -> None:
    before = build_loss(spec(memory_size=7, memory_start_epoch=1), CONTEXT)
    before.start_epoch(1)
    for number in range(steps):
        memory_step(before, memory_batch(number, pairs=3, dtype=torch.float32))
    torch.save(before.state_dict(), tmp_path / "state.pt")
    after = build_loss(spec(memory_size=7, memory_start_epoch=1), CONTEXT)
    after.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    twin = copy.deepcopy(after)
    for number in range(steps, steps + 4):
        batches = [memory_batch(number, pairs=3, dtype=torch.float32) for _ in range(3)]
        values = [memory_step(loss, batch) for loss, batch in zip((before, after, twin), batches, strict=True)]
        assert values[0] == values[1] == values[2]
    for name, value in before.state_dict().items():
        assert torch.equal(value, after.state_dict()[name]), name


def test_a_state_of_another_memory_size_is_refused() -> None:
    saved = build_loss(LmhSpec(memory_size=7), CONTEXT).state_dict()
    with pytest.raises(RuntimeError, match="size mismatch"):
        build_loss(LmhSpec(memory_size=8), CONTEXT).load_state_dict(saved)


def test_a_new_phase_starts_with_an_empty_memory(memory_batch, remembering, memory_step) -> None:
    previous, following = remembering(LmhSpec), remembering(LshSpec)
    previous.start_epoch(3)
    memory_step(previous, memory_batch(0))
    following.continue_from(previous)
    assert following.filled == 0
    following.continue_from(build_loss(LmhSpec()))
    assert following.filled == 0


def test_a_new_phase_hands_the_inner_loss_of_the_phase_before_to_its_own(remembering, monkeypatch) -> None:
    previous, following, plain = remembering(LmhSpec), remembering(LmhSpec), build_loss(LmhSpec())
    handed: list[object] = []
    monkeypatch.setattr(following.inner, "continue_from", handed.append)
    following.continue_from(previous)
    following.continue_from(plain)
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


@pytest.mark.parametrize("spec", SPECS[:-1], ids=NAMES[:-1])  # the last compares images with captions only
def test_one_nan_in_the_memory_reaches_the_value(spec, memory_batch, remembering, memory_step) -> None:
    for name in ("images", "captions", *(["semantic_vectors"] if spec is LsehSpec else [])):
        loss = remembering(spec)
        memory_step(loss, memory_batch(0))
        getattr(loss, name)[2, 1] = float("nan")
        assert loss(memory_batch(20)).value.isnan(), name


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


def test_half_precision_networks_are_remembered_and_compared_in_float32(memory_batch, memory_step) -> None:
    loss = build_loss(LmhSpec(memory_size=8, memory_start_epoch=0), CONTEXT)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        memory_step(loss, memory_batch(0, dtype=torch.float32))
        inside = loss(memory_batch(1, dtype=torch.float32))
    assert inside.value.dtype == torch.float32
