"""Every network learns with every loss that fits it: one step on the tiny data."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch
from trained_here import first_step, learner_of

from vsetune.config.component_specs import LOSSES, NETWORKS
from vsetune.config.study.compatibility import mismatch
from vsetune.config.study.training import TrialSpec

UNITS: tuple[Literal["pairs", "images"], ...] = ("pairs", "images")
SETTINGS: dict[str, dict[str, Any]] = {
    "many_to_many": {"semantics": "svd"}, "semantic_center": {"quantised_centers": 4},
}
NO_DROPOUT = {"tags": {"dropout": 0.0}}
"""Where the retrieval loss itself draws random numbers, which come out otherwise behind a head that is left out."""


@pytest.mark.parametrize("network", NETWORKS)
def test_a_step_changes_the_network_and_gives_finite_numbers(network: str, make_trial: Any, small: Any) -> None:
    fitting = [
        (loss, unit) for loss in LOSSES for unit in UNITS
        if mismatch(NETWORKS[network](), LOSSES[loss](), batch_unit=unit) is None
    ]
    problems = []
    for loss, unit in fitting:
        case = f"{network}.{loss}, batches of {unit}"
        trial = make_trial(
            network=small(network), loss={"name": loss} | SETTINGS.get(loss, {}), batch_unit=unit, batch_size=6
        )
        try:
            claims = claims_of_a_step(trial)
        except Exception as error:
            error.add_note(case)
            raise
        problems += [f"{case}: {claim} is not true" for claim, holds in claims.items() if not holds]
    assert problems == []


def claims_of_a_step(trial: TrialSpec) -> dict[str, bool]:
    """What must be true after the first step of a trial, and whether it is."""
    learner = learner_of(trial)
    before = [parameter.detach().clone() for parameter in learner.network.parameters()]
    learner.loss.start_epoch(0)
    result = first_step(trial, learner, epoch=0.0)
    after = list(learner.network.parameters())
    return {
        "the loss is finite": bool(torch.isfinite(result.loss)),
        "the gradient is finite": bool(torch.isfinite(result.gradient_norm)),
        "there is a gradient": bool(result.gradient_norm > 0),
        "the network stays finite": all(bool(torch.isfinite(parameter).all()) for parameter in after),
        "the network changes": any(not torch.equal(old, new) for old, new in zip(before, after, strict=True)),
    }


def parts(network: dict[str, Any], make_trial: Any, **settings: Any) -> dict[str, float]:
    result = first_step(make_trial(network=network, **settings))
    return {"loss": result.loss.item()} | {name: value.item() for name, value in result.output.parts.items()}


@pytest.mark.parametrize(("network", "part", "weight"), [
    ("vsrn", "network_captioning", "captioning_weight"), ("cgmn", "network_matching", "matching_weight"),
    ("tags", "network_mlm", "mlm_weight"), ("tags", "network_istm", "istm_weight"),
    ("tags", "network_wod", "wod_weight"), ("tags", "network_woc", "woc_weight"),
])
def test_what_a_network_adds_to_the_loss_is_logged_beside_it(
    network: str, part: str, weight: str, make_trial: Any, small: Any
) -> None:
    plain = small(network) | NO_DROPOUT.get(network, {})
    once = parts(plain | {weight: 1.0}, make_trial)
    twice = parts(plain | {weight: 2.0}, make_trial)
    assert once[part] > 0
    assert once["loss"] == pytest.approx(once["retrieval"] + added(once))
    assert twice[part] == pytest.approx(2 * once[part])
    assert twice["retrieval"] == pytest.approx(once["retrieval"])
    without = parts(plain | {weight: 0.0}, make_trial)
    assert part not in without
    assert without["loss"] == pytest.approx(once["retrieval"] + added(without))


def added(parts: dict[str, float]) -> float:
    return sum(value for name, value in parts.items() if name.startswith("network_"))


@pytest.mark.parametrize(("network", "weight"), [
    ("vsrn", "captioning_weight"), ("cgmn", "matching_weight"), ("tags", "wod_weight"),
])
def test_a_phase_weighs_what_the_network_brings(
    network: str, weight: str, make_trial: Any, small: Any
) -> None:
    phases = [{"epochs": 1, "network": {weight: 0.0}}, {"network": {weight: 2.0}}]
    trial = make_trial(network=small(network) | {weight: 1.0}, phases=phases)
    learner = learner_of(trial)
    part = {"captioning_weight": "captioning", "matching_weight": "matching", "wod_weight": "wod"}[weight]
    assert f"network_{part}" not in first_step(trial, learner).output.parts
    assert first_step(trial, learner.enter(1, learned=True)).output.parts[f"network_{part}"] > 0


def test_a_frozen_network_adds_nothing(make_trial: Any, small: Any) -> None:
    trial = make_trial(
        network=small("vsrn"), loss={"name": "info_nce", "learned": True}, phases=[{"trains": "loss"}]
    )
    assert "network_captioning" not in first_step(trial).output.parts


def test_the_match_probability_is_measured_by_what_the_loss_has_learned(make_trial: Any, small: Any) -> None:
    network = small("pcme") | {"similarity": "match_probability", "match_scale": 9.0}
    for loss in ({"name": "pcme"}, {"name": "sum", "parts": {"own": {"loss": {"name": "pcme"}}}}):
        trial = make_trial(network=network, loss=loss)
        learner = learner_of(trial)
        assert learner.network.match_scale == 9
        first_step(trial, learner)
        learned = learner.loss.shared_parameters()
        assert learned["match_scale"] != 15
        assert torch.equal(learner.network.match_scale, learned["match_scale"])
        assert torch.equal(learner.network.match_shift, learned["match_shift"])


def test_the_terms_of_pvse_for_several_embeddings_reach_the_loss(make_trial: Any, small: Any) -> None:
    weights = {"diversity_weight": 0.5, "discrepancy_weight": 0.25}
    found = parts(small("pvse") | {"embeddings": 2}, make_trial, loss={"name": "pvse"} | weights)
    assert found["diversity"] > 0
    assert found["discrepancy"] > 0
    added = 0.5 * found["diversity"] + 0.25 * found["discrepancy"]
    assert found["loss"] == pytest.approx(found["ranking"] + added, rel=1e-5)
    one = parts(small("pvse") | {"embeddings": 1}, make_trial, loss={"name": "pvse"} | weights)
    assert one.keys() == {"loss", "ranking"}


def test_the_spread_of_pcme_reaches_its_loss(make_trial: Any, small: Any) -> None:
    loss = {"name": "pcme", "kl_weight": 0.5, "uniformity_weight": 0.25}
    found = parts(small("pcme"), make_trial, loss=loss)
    assert found["divergence"] > 0
    added = 0.5 * found["divergence"] + 0.25 * found["uniformity"]
    assert found["loss"] == pytest.approx(found["contrastive"] + added, rel=1e-5)
    points = parts(small("vsepp"), make_trial, loss=loss)
    assert points["divergence"] == 0


def test_every_part_of_pcme_is_trained_by_its_loss(make_trial: Any, small: Any) -> None:
    trial = make_trial(network=small("pcme") | {"end_state": "final"}, loss={"name": "pcme"})
    learner = learner_of(trial)
    first_step(trial, learner)
    gradients = {name: value.grad for name, value in learner.network.named_parameters()}
    assert all(gradient is not None and gradient.abs().sum() > 0 for gradient in gradients.values())
