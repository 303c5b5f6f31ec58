"""SigLIP: worked numbers, plain loops, several captions, learned scale and bias, their start from a network."""

from __future__ import annotations

import math

import pytest
import torch

from vsetune.losses.loss_building import build_loss
from vsetune.losses.siglip.loss import sigmoid_loss
from vsetune.losses.siglip.spec import SiglipSpec

EYE = torch.eye(2, dtype=torch.bool)


def test_a_value_by_hand() -> None:
    logits = torch.tensor([[0.0, 0.0], [math.log(3.0), math.log(3.0)]], dtype=torch.float64)
    # pairs: ln 2 and ln(1 + 1/3); no pairs: ln 2 and ln(1 + 3); the sum over two images
    by_hand = (2 * math.log(2) + math.log(4 / 3) + math.log(4)) / 2
    assert sigmoid_loss(logits, EYE, ~EYE).item() == pytest.approx(by_hand, abs=1e-12)


def test_the_published_start_is_a_scale_of_ten_and_a_bias_of_minus_ten() -> None:
    loss = build_loss(SiglipSpec())
    assert loss.log_scale.item() == pytest.approx(math.log(10))
    assert loss.bias.item() == -10
    assert loss.log_scale.requires_grad
    assert loss.bias.requires_grad


@pytest.mark.parametrize("variant", ["decided", "diagonal"])
@pytest.mark.parametrize("seed", range(2))
def test_pairs_equal_plain_loops_on_duplicate_images(variant, seed, random_pairs, make_pairs) -> None:
    similarity, ids, _ = random_pairs(seed, 9)
    loss, total = build_loss(SiglipSpec(scale=4.0, bias=-1.5, variant=variant)).double(), 0.0
    scale = loss.log_scale.exp().item()
    for i, row in enumerate(similarity.tolist()):
        for j, score in enumerate(row):
            if i == j or variant == "diagonal" or ids[i] != ids[j]:
                sign = 1 if i == j else -1
                total += math.log1p(math.exp(-sign * (scale * score - 1.5)))
    assert loss(make_pairs(similarity, ids)).value.item() == pytest.approx(total / 9, abs=1e-9)


def test_all_captions_of_an_image_are_its_pairs(several, several_owner, make_images) -> None:
    loss, total = build_loss(SiglipSpec(scale=4.0, bias=-1.0)).double(), 0.0
    scale = loss.log_scale.exp().item()
    for i, row in enumerate(several.tolist()):
        for j, score in enumerate(row):
            sign = 1 if several_owner[j] == i else -1
            total += math.log1p(math.exp(-sign * (scale * score - 1.0)))
    assert loss(make_images(several, several_owner)).value.item() == pytest.approx(total / 3, abs=1e-9)


def test_scale_and_bias_of_the_network_are_taken_where_asked() -> None:
    held = {"logit_scale": torch.tensor(4.7), "logit_bias": torch.tensor(-12.5)}
    own, taken = build_loss(SiglipSpec()), build_loss(SiglipSpec(start="network"))
    for loss in (own, taken):
        loss.take_network_parameters(held)
    assert own.bias.item() == -10
    assert taken.log_scale.item() == pytest.approx(4.7)
    assert taken.bias.item() == -12.5
    assert taken.shared_parameters() == {"logit_scale": taken.log_scale, "logit_bias": taken.bias}
    build_loss(SiglipSpec(start="network")).take_network_parameters({})
