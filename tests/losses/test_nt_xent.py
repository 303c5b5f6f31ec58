"""NT-Xent: worked numbers, plain loops, items of the same image, learned temperature, edge cases."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from vsetune.errors import ConfigError
from vsetune.losses.loss_base import Items, LossInputs
from vsetune.losses.loss_building import build_loss
from vsetune.losses.nt_xent.loss import nt_xent_terms
from vsetune.losses.nt_xent.spec import NtXentSpec


def unit(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.nn.functional.normalize(values, dim=-1).to(dtype)


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
@pytest.mark.parametrize("seed", range(4))
def test_value_equals_plain_loops_on_duplicate_images(variant, seed) -> None:
    inputs = random_batch(seed, 8)
    value = build_loss(NtXentSpec(softmax_temperature=0.2, variant=variant))(inputs).value
    assert value.item() == pytest.approx(plain_value(inputs, 0.2, variant), abs=1e-9)


@pytest.mark.parametrize("spec", [NtXentSpec(), NtXentSpec(variant="diagonal", learned=True)])
def test_gradients_agree_with_finite_differences(spec) -> None:
    start, loss = random_batch(1, 5), build_loss(spec).double()
    tensors = [start.images.vectors.clone().requires_grad_(), start.captions.vectors.clone().requires_grad_()]
    assert torch.autograd.gradcheck(lambda a, b: loss(batch(a, b, start.image_ids)).value, tensors)


def test_items_of_the_same_image_get_no_gradient_from_one_another() -> None:
    ids = torch.tensor([0, 0, 1])
    logits = torch.rand(6, 6, dtype=torch.float64, requires_grad=True)
    nt_xent_terms(logits, ids, same_image_rule="decided")[0].sum().backward()
    both = torch.cat([ids, ids])
    partner = torch.eye(6, dtype=torch.bool).roll(3, dims=1)
    assert torch.equal(logits.grad != 0, (both[:, None] != both[None, :]) | partner)


def test_permuting_the_batch_or_exchanging_the_modalities_changes_nothing() -> None:
    inputs, loss = random_batch(2, 6), build_loss(NtXentSpec())
    value, order = loss(inputs).value.item(), torch.tensor([3, 0, 5, 1, 4, 2])
    images, captions, ids = inputs.images.vectors, inputs.captions.vectors, inputs.image_ids
    assert loss(batch(images[order], captions[order], ids[order])).value.item() == pytest.approx(value, abs=1e-12)
    assert loss(batch(captions, images, ids)).value.item() == pytest.approx(value, abs=1e-12)


def test_collapse_gives_the_logarithm_of_the_number_of_others() -> None:
    vectors = unit(1, 64, dtype=torch.float32).expand(8, 64).clone().requires_grad_()
    value = build_loss(NtXentSpec())(batch(vectors, vectors)).value
    value.backward()
    assert value.item() == pytest.approx(math.log(15), abs=1e-4)
    assert vectors.grad.isfinite().all()


def test_perfect_separation_at_a_low_temperature_costs_nothing_in_float32() -> None:
    vectors = torch.eye(6, requires_grad=True)
    value = build_loss(NtXentSpec(softmax_temperature=0.01))(batch(vectors, vectors)).value
    value.backward()
    assert value.item() == pytest.approx(0, abs=1e-6)
    assert vectors.grad.isfinite().all()


@pytest.mark.parametrize(("ids", "variant"), [([2], "decided"), ([2], "diagonal"), ([2, 2, 2], "decided")])
def test_a_batch_without_negatives_gives_zero_with_a_zero_gradient(ids, variant) -> None:
    images = unit(len(ids), 8, dtype=torch.float32).requires_grad_()
    value = build_loss(NtXentSpec(variant=variant))(batch(images, images.detach(), torch.tensor(ids))).value
    value.backward()
    assert value.item() == 0.0
    assert torch.equal(images.grad, torch.zeros_like(images))


@pytest.mark.parametrize("side", [0, 1])
def test_one_nan_reaches_the_value(side) -> None:
    both = [unit(4, 5), unit(4, 5, seed=1)]
    both[side][2, 3] = float("nan")
    assert build_loss(NtXentSpec())(batch(*both)).value.isnan()


def test_a_learned_temperature_is_trained_capped_and_kept() -> None:
    inputs, loss = random_batch(3, 6), build_loss(NtXentSpec(learned=True))
    fixed = build_loss(NtXentSpec())(inputs).value.item()
    assert list(build_loss(NtXentSpec()).parameters()) == []
    output = loss(inputs)
    output.value.backward()
    assert output.value.item() == pytest.approx(fixed, abs=1e-6)
    assert output.parts["temperature"].item() == pytest.approx(0.07)
    assert loss.log_scale.grad.item() != 0
    with torch.no_grad():
        loss.log_scale.fill_(9.0)
    assert loss(inputs).parts["temperature"].item() == pytest.approx(0.01)
    loss.after_step()
    assert loss.log_scale.item() == pytest.approx(math.log(100))
    after = build_loss(NtXentSpec(learned=True))
    after.load_state_dict(loss.state_dict())
    assert after.log_scale.item() == loss.log_scale.item()


def test_half_precision_is_computed_in_float32() -> None:
    images, captions = unit(5, 8, dtype=torch.bfloat16), unit(5, 8, seed=1, dtype=torch.bfloat16)
    loss = build_loss(NtXentSpec())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(batch(images, captions)).value
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(loss(batch(images.float(), captions.float())).value.item(), abs=1e-6)


def test_selection_is_marked_as_a_proxy() -> None:
    inputs = random_batch(0, 5)
    selection = build_loss(NtXentSpec())(inputs).selection
    assert selection.is_proxy
    assert torch.equal(selection.scores, inputs.similarity)
    assert torch.equal(selection.negatives, inputs.image_ids[:, None] != inputs.image_ids[None, :])


def test_networks_that_only_score_pairs_and_several_captions_are_refused(
    e, make_pairs, several, several_owner, make_images
) -> None:
    with pytest.raises(ConfigError, match="loss nt_xent: got a network that only scores pairs, need one embedding"):
        build_loss(NtXentSpec())(make_pairs(e))
    with pytest.raises(ConfigError, match="loss nt_xent: got 3 images x 5 captions"):
        build_loss(NtXentSpec())(make_images(several, several_owner))
