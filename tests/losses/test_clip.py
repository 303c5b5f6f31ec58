"""CLIP's loss: the formula of InfoNCE with a learned temperature, its cap, and its start from a network."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from vsetune.config.component_specs import SumSpec
from vsetune.losses.clip.spec import ClipSpec
from vsetune.losses.info_nce.spec import InfoNceSpec
from vsetune.losses.loss_base import LossContext
from vsetune.losses.loss_building import build_loss


def test_the_worked_value_of_e_at_the_published_start(e, make_pairs) -> None:
    output = build_loss(ClipSpec())(make_pairs(e))
    assert output.value.item() == pytest.approx(0.771142, abs=1e-6)
    assert output.parts["temperature"].item() == pytest.approx(0.07)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.2])
@pytest.mark.parametrize("seed", range(2))
def test_as_published_it_is_cross_entropy_on_the_diagonal_in_both_directions(
    seed, label_smoothing, random_pairs, make_pairs
) -> None:
    similarity, ids, _ = random_pairs(seed, 7)
    loss = build_loss(ClipSpec(variant="diagonal", label_smoothing=label_smoothing)).double()
    logits, target = similarity * loss.log_scale.exp(), torch.arange(7)
    both = [cross_entropy(each, target, label_smoothing=label_smoothing) for each in (logits, logits.T)]
    assert loss(make_pairs(similarity, ids)).value.item() == pytest.approx((sum(both) / 2).item(), abs=1e-9)


def test_it_is_info_nce_with_a_learned_temperature(random_pairs, make_pairs) -> None:
    inputs = make_pairs(*random_pairs(0, 9)[:2])
    pair = [build_loss(spec).double() for spec in (ClipSpec(), InfoNceSpec(learned=True))]
    values = [loss(inputs).value for loss in pair]
    assert values[0].item() == values[1].item()
    slopes = [torch.autograd.grad(value, loss.log_scale)[0] for value, loss in zip(values, pair, strict=True)]
    assert torch.equal(*slopes)
    assert slopes[0] != 0


def test_a_scale_of_the_network_is_taken_where_asked_and_capped() -> None:
    held = {"logit_scale": torch.tensor(math.log(400.0)), "logit_bias": torch.tensor(-3.0)}
    own, taken, fixed = (
        build_loss(ClipSpec(**settings)) for settings in ({}, {"start": "network"}, {"start": "network", "learned": 0})
    )
    for loss in (own, taken, fixed):
        loss.take_network_parameters(held)
    assert own.log_scale.item() == pytest.approx(-math.log(0.07))
    assert taken.log_scale.item() == pytest.approx(math.log(100.0))
    assert fixed.shared_parameters() == {}
    build_loss(ClipSpec(start="network")).take_network_parameters({})
    assert taken.shared_parameters() == {"logit_scale": taken.log_scale}


def test_a_part_of_a_sum_takes_the_scale_too() -> None:
    plain = {"parts": {"lmh": {"loss": {"name": "lmh"}}, "clip": {"loss": {"name": "clip", "start": "network"}}}}
    both = build_loss(SumSpec.model_validate(plain), LossContext(embedding_size=4, concepts=6))
    both.take_network_parameters({"logit_scale": torch.tensor(1.5)})
    assert both.shared_parameters()["logit_scale"].item() == pytest.approx(1.5)
