"""PCME: worked numbers from given samples, plain loops, points, draws, both readings of the KL, float32 extremes."""

from __future__ import annotations

import math

import pytest
import torch
from loss_values import unit
from torch import Tensor

from vsetune.losses.loss_base import Items, LossInputs
from vsetune.losses.loss_building import build_loss
from vsetune.losses.pcme.loss import draw_samples, kl_to_standard_normal, match_nll, uniformity
from vsetune.losses.pcme.spec import PcmeSpec

IMAGES = [[[1, 0], [0.8, 0.6]], [[0, 1], [-0.6, 0.8]]]
CAPTIONS = [[[0.96, 0.28], [0.6, 0.8]], [[-0.28, 0.96], [0, 1]]]
IMAGE_SCALES = [[-1, -0.5], [-2, 0]]
CAPTION_SCALES = [[-0.2, -0.4], [-1, -1]]


def double(rows: object) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def batch(images: Items, captions: Items, ids: Tensor | None = None) -> LossInputs:
    size = images.vectors.shape[0]
    ids = torch.arange(size) if ids is None else ids
    return LossInputs(
        images.vectors @ captions.vectors.T, ids, ids, torch.arange(size), images=images, captions=captions
    )


def random_batch(seed: int, pairs: int, size: int = 4, dtype: torch.dtype = torch.float64) -> LossInputs:
    items = [
        Items(unit(pairs, size, seed=4 * seed + k, dtype=dtype), unit(pairs, size, seed=4 * seed + 2 + k, dtype=dtype))
        for k in range(2)
    ]
    ids = torch.randint(max(2, pairs // 2), (pairs,), generator=torch.Generator().manual_seed(seed))
    return batch(*items, ids)


def nll_of(images: Tensor, captions: Tensor, value: float) -> Tensor:
    return match_nll(images, captions, scale=torch.tensor(value), shift=torch.tensor(value))


def test_worked_likelihoods() -> None:
    nll = nll_of(double(IMAGES), double(CAPTIONS), 5.0)
    expected = double([[0.067552, 0.274542], [0.362147, 0.006810]])
    torch.testing.assert_close(nll, expected, atol=1e-6, rtol=0)
    assert 2 * nll.sum().item() == pytest.approx(1.422104, abs=1e-6)


def test_worked_uniformity_and_divergences() -> None:
    images, captions = double(IMAGES), double(CAPTIONS)
    assert uniformity(torch.cat([images, captions]).flatten(0, 1)).item() == pytest.approx(-1.050938, abs=1e-6)
    samples_and_scales = [(images, double(IMAGE_SCALES)), (captions, double(CAPTION_SCALES))]
    released = [kl_to_standard_normal(x.mean(dim=1), s).item() for x, s in samples_and_scales]
    consistent = [kl_to_standard_normal(x.mean(dim=1), 2 * s).item() for x, s in samples_and_scales]
    assert released == pytest.approx([1.704873, 1.352405], abs=1e-6)
    assert consistent == pytest.approx([3.160765, 2.235160], abs=1e-6)


def test_worked_total(monkeypatch) -> None:
    worked = [double(IMAGES), double(CAPTIONS)]
    inputs = batch(*(Items(x.mean(dim=1), double(s)) for x, s in zip(worked, (IMAGE_SCALES, CAPTION_SCALES),
                                                                     strict=True)))
    monkeypatch.setattr("vsetune.losses.pcme.loss.draw_samples", lambda items, count: worked[items is inputs.captions])
    spec = PcmeSpec(samples=2, scale=5, shift=5, uniformity_weight=10, kl_weight=0.001, variant="released")
    output = build_loss(spec)(inputs)
    assert output.value.item() == pytest.approx(-9.084215, abs=1e-6)
    assert output.parts["contrastive"].item() == pytest.approx(1.422104, abs=1e-6)
    assert output.parts["uniformity"].item() == pytest.approx(-1.050938, abs=1e-6)
    assert output.parts["divergence"].item() == pytest.approx(1.704873 + 1.352405, abs=1e-6)
    assert output.parts["scale"].item() == output.parts["shift"].item() == 5
    decided = build_loss(spec.model_copy(update={"variant": "decided"}))(inputs)
    assert decided.parts["divergence"].item() == pytest.approx(3.160765 + 2.235160, abs=1e-6)


def plain_nll(images: list, captions: list, matches: bool, a: float, b: float) -> float:
    total = 0.0
    for x in images:
        for y in captions:
            z = -a * math.sqrt(math.dist(x, y) ** 2 + 1e-6) + b
            probability = math.exp(z) / (math.exp(z) + math.exp(-z))
            total += probability if matches else 1 - probability
    return -math.log(total / (len(images) * len(captions)))


def plain_uniformity(samples: list) -> float:
    values = [
        math.exp(-2 * math.dist(samples[i], samples[j]) ** 2) for i in range(len(samples)) for j in range(i)
    ]
    return math.log(sum(values) / len(values))


@pytest.mark.parametrize("variant", ["decided", "released"])
@pytest.mark.parametrize("seed", range(2))
def test_value_equals_plain_loops_on_duplicate_images(variant, seed) -> None:
    inputs = random_batch(seed, pairs=6)
    spec = PcmeSpec(samples=3, scale=3, shift=2, kl_weight=0.2, uniformity_weight=0.4, variant=variant)
    torch.manual_seed(seed)
    value = build_loss(spec)(inputs).value.item()
    torch.manual_seed(seed)
    images, captions = (draw_samples(items, 3).tolist() for items in (inputs.images, inputs.captions))
    ids, expected = inputs.image_ids.tolist(), 0.0
    for i in range(6):
        for j in range(6):
            if i == j or variant == "released" or ids[i] != ids[j]:
                expected += 2 * plain_nll(images[i], captions[j], i == j, 3, 2)
    expected += 0.4 * plain_uniformity([sample for item in images + captions for sample in item])
    for items, samples in ((inputs.images, images), (inputs.captions, captions)):
        for n in range(6):
            for d in range(4):
                s, mean = items.log_scales[n, d].item(), items.vectors[n, d].item()
                if variant == "released":
                    mean = sum(sample[d] for sample in samples[n]) / 3
                    expected += 0.2 * -0.5 * (1 + s - mean**2 - math.exp(s))
                else:
                    expected += 0.2 * -0.5 * (1 + 2 * s - mean**2 - math.exp(2 * s))
    assert value == pytest.approx(expected, abs=1e-9)


def test_samples_are_mean_plus_standard_deviation_times_noise() -> None:
    items = Items(double([[1.0, -2.0]]), double([[0.5, -1.0]]))
    torch.manual_seed(3)
    drawn = draw_samples(items, 20000)
    assert drawn.shape == (1, 20000, 2)
    assert drawn.mean(dim=1)[0].tolist() == pytest.approx([1.0, -2.0], abs=0.04)
    assert drawn.std(dim=1)[0].tolist() == pytest.approx([math.exp(0.5), math.exp(-1)], rel=0.03)
    torch.manual_seed(3)
    assert torch.equal(draw_samples(items, 20000), drawn)


def test_points_draw_nothing_and_have_no_divergence() -> None:
    inputs = random_batch(0, pairs=5)
    points = batch(Items(inputs.images.vectors), Items(inputs.captions.vectors), inputs.image_ids)
    before = torch.get_rng_state()
    output = build_loss(PcmeSpec(kl_weight=1.0))(points)
    assert torch.equal(torch.get_rng_state(), before)
    assert output.parts["divergence"].item() == 0
    assert output.value.item() == output.parts["contrastive"].item()
    narrow = Items(inputs.images.vectors, torch.full((5, 4), -50.0)), Items(inputs.captions.vectors)
    close = build_loss(PcmeSpec(kl_weight=0.0))(batch(*narrow, inputs.image_ids))
    assert close.value.item() == pytest.approx(output.value.item(), abs=1e-9)


@pytest.mark.parametrize("logit", [50.0, -50.0])
def test_likelihoods_stay_finite_in_float32_at_extreme_logits(logit) -> None:
    images = torch.zeros(2, 2, 4, requires_grad=True)
    captions = torch.zeros(2, 2, 4, requires_grad=True)
    nll = match_nll(images, captions, scale=torch.tensor(15.0), shift=torch.tensor(logit))
    nll.sum().backward()
    assert nll.isfinite().all()
    assert nll.amax().item() == pytest.approx(100, abs=0.1)
    assert images.grad.isfinite().all()


def test_opposite_points_cost_what_the_logarithm_says_in_float32() -> None:
    images = torch.tensor([[[1.0, 0.0]], [[1.0, 0.0]]], requires_grad=True)
    nll = nll_of(images, -images.detach(), 15.0)
    nll.sum().backward()
    assert nll[0, 0].item() == pytest.approx(30, abs=1e-4)  # 2 (15 x 2 - 15); the plain form is ln 1e-13
    assert nll[0, 1].item() == pytest.approx(math.exp(-30), rel=1e-3)
    assert images.grad.isfinite().all()


@pytest.mark.parametrize("variant", ["decided", "released"])
@pytest.mark.parametrize("ids", [[2], [2, 2], [2, 2, 2]])
def test_captions_of_one_image_leave_the_matches_unless_released(variant, ids) -> None:
    tensors = [unit(len(ids), 8, seed=k, dtype=torch.float32).requires_grad_() for k in range(2)]
    loss = build_loss(PcmeSpec(variant=variant, uniformity_weight=1.0))
    output = loss(batch(Items(tensors[0]), Items(tensors[1]), torch.tensor(ids)))
    output.value.backward()
    nll = nll_of(tensors[0][:, None], tensors[1][:, None], 15.0)
    expected = nll.sum() if variant == "released" else nll.diagonal().sum()
    assert output.parts["contrastive"].item() == pytest.approx(2 * expected.item(), rel=1e-5)
    assert all(tensor.grad.isfinite().all() for tensor in tensors)


def test_released_uniformity_draws_128_samples_with_replacement() -> None:
    inputs = random_batch(2, pairs=40)
    spec = {"samples": 2, "uniformity_weight": 1.0}
    torch.manual_seed(1)
    released = build_loss(PcmeSpec(variant="released", **spec))(inputs).parts["uniformity"].item()
    torch.manual_seed(1)
    drawn = torch.cat([draw_samples(items, 2).flatten(0, 1) for items in (inputs.images, inputs.captions)])
    assert released == pytest.approx(uniformity(drawn[torch.randint(160, (128,))]).item(), abs=1e-12)
    torch.manual_seed(1)
    decided = build_loss(PcmeSpec(**spec))(inputs).parts["uniformity"].item()
    assert decided == pytest.approx(uniformity(drawn).item(), abs=1e-12)
