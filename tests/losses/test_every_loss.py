"""What holds for every loss, whatever its formula: the quality list, and what only weighted sums need beside it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from vsetune.config.component_specs import LOSSES, SumSpec
from vsetune.losses.loss_building import build_loss
from vsetune.quality.checks import Check, Result
from vsetune.quality.loss_batches import CONTEXT, LossSubject, pairs, surroundings_of
from vsetune.quality.loss_checks import LOSS_CHECKS, step_times

DRAW_AT_RANDOM = {"adaptive_margin", "contrastive", "margin_based", "semantic_center"}
TAKE_SECONDS = {"adaptive_margin", "semantic_center", "top_f"}
"""Losses with settings that act only after hundreds of steps; the check of their ranges is slow."""
ATTRACT_ALONE = {"siglip"}
"""Losses that take several positives and have a term for a positive without any negative."""
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "lsh": [{"variant": "diagonal"}],
    "lmh": [{"variant": "diagonal"}, {"warmup_epochs": 1}],
    "lseh": [{"variant": "diagonal"}, {"variant": "released"}],
    "luwm": [{"variant": "diagonal"}, {"one_sided": True}],
    "irtm": [{"hardest": 2}, {"variant": "diagonal"}],
    "order": [{"negatives": "max"}],
    "pvse": [{"negatives": "sum", "kernel": "squared"}],
    "pcme": [{"variant": "released", "uniformity_weight": 1.0}],
    "contrastive": [{"negatives": "hardest"}, {"negatives": "all", "squared": True}],
    "adaptive_margin": [{"negatives": "hardest"}, {"negatives": "hardest", "squared": True}, {"warmup_epochs": 1}],
    "margin_based": [{"negatives": "all"}],
    "many_to_many": [{"direction": "as_printed", "lowest": "semantic"}, {"threshold": 1.0}],
    "top_f": [{"warmup_epochs": 1}],
    "info_nce": [{"positives": "inside"}, {"label_smoothing": 0.1}, {"learned": True}],
    "clip": [{"learned": False}, {"label_smoothing": 0.1, "variant": "diagonal"}],
    "siglip": [{"learned": False}, {"variant": "diagonal"}],
    "hcl": [{"learned": True, "variant": "diagonal"}, {"tau_plus": 0.0}, {"beta": 0.0}],
    "pcme_pp": [{"variant": "diagonal"}, {"pseudo_weight": 0.0, "kl_weight": 0.0}],
    "nt_xent": [{"learned": True, "variant": "diagonal"}],
    "additive_margin": [{"learned": False}],
    "semantic_center": [{"centers": "quantised", "quantised_centers": 3, "negatives": "hardest"}],
}
"""Settings beside the defaults, for the checks of values."""
OF_VALUES = ("value", "gradcheck", "permutation", "nan", "small batches", "extremes", "resume")
SUM = SumSpec.model_validate({"parts": {part: {"loss": {"name": part}} for part in ("lmh", "info_nce")}})


def subject(name: str) -> LossSubject:
    return LossSubject(LOSSES[name], {"quantised_centers": 2} if name == "semantic_center" else {})


@pytest.mark.parametrize(("name", "check"), [
    pytest.param(
        name, check, id=f"{name}-{check}",
        marks=[pytest.mark.slow] if check.name == "ranges" and name in TAKE_SECONDS else [],
    )
    for name in LOSSES for check in LOSS_CHECKS
])
def test_the_quality_list(name: str, check: Check[LossSubject]) -> None:
    found = check.finding(subject(name))
    assert found.result is not Result.FAILS, found.note
    if found.result is Result.NOT_APPLICABLE:
        is_declared = {
            "permutation": name in DRAW_AT_RANDOM, "several captions": not LOSSES[name].several_positives,
        }
        assert is_declared.get(check.name), found.note


@pytest.mark.parametrize("check", [check for check in LOSS_CHECKS if check.name in OF_VALUES], ids=str)
@pytest.mark.parametrize(
    ("name", "settings"), [(name, settings) for name, found in VARIANTS.items() for settings in found], ids=str
)
def test_the_checks_of_values_with_other_settings(
    name: str, settings: dict[str, Any], check: Check[LossSubject]
) -> None:
    found = check.finding(LossSubject(LOSSES[name], settings))
    assert found.result is not Result.FAILS, found.note


@pytest.mark.parametrize("ids", [[3], [3, 3], [3, 3, 3, 3]])
@pytest.mark.parametrize(("name", "settings"), [
    (name, settings)
    for name in ("lsh", "lmh", "lseh", "luwm", "irtm", "top_f", "info_nce", "clip", "hcl", "additive_margin", "order")
    for settings in ({}, *VARIANTS[name]) if settings.get("variant", "decided") == "decided"
] + [("adaptive_margin", settings) for settings in VARIANTS["adaptive_margin"]], ids=str)
def test_a_batch_without_negatives_gives_zero_with_a_zero_gradient(name, settings, ids, make_pairs) -> None:
    similarity = torch.rand(len(ids), len(ids), requires_grad=True)
    loss = build_loss(LOSSES[name](**settings))
    value = loss(make_pairs(similarity, ids, torch.rand(len(ids), 3))).value
    assert value.item() == 0.0
    assert not torch.autograd.grad(value, similarity)[0].any()


@pytest.mark.parametrize(
    "name", [name for name, spec in LOSSES.items() if spec.several_positives and name not in ATTRACT_ALONE]
)
def test_one_image_with_all_its_captions_gives_zero_with_a_zero_gradient(name, make_images) -> None:
    similarity = torch.rand(1, 4, requires_grad=True)
    value = build_loss(LOSSES[name]())(make_images(similarity, torch.zeros(4, dtype=torch.int64))).value
    assert value.item() == 0.0
    assert not torch.autograd.grad(value, similarity)[0].any()


def test_one_nan_anywhere_in_the_similarity_never_gives_a_finite_sum_of_losses() -> None:
    loss, inputs = build_loss(SUM, CONTEXT), pairs(next(surroundings_of(SUM)))
    loss.start_epoch(0)
    assert math.isfinite(loss(inputs).value.detach())
    for place in range(inputs.similarity.numel()):
        broken = inputs.similarity.detach().clone()
        broken.view(-1)[place] = math.nan
        assert not math.isfinite(loss(replace(inputs, similarity=broken)).value.detach())


@pytest.mark.parametrize("name", [*LOSSES, "sum"])
def test_a_loaded_loss_knows_the_epoch_it_was_saved_in(name: str) -> None:
    loss, other = (build_loss(SUM if name == "sum" else subject(name).resolved(), CONTEXT) for _ in range(2))
    loss.start_epoch(3)
    other.start_epoch(1)
    assert other.counter("epoch") == 1
    other.load_state_dict(loss.state_dict())
    assert other.counter("epoch") == 3


def test_a_step_of_lmh_is_timed_against_itself() -> None:
    milliseconds, ratio = step_times(LOSSES["lmh"]())
    assert milliseconds > 0
    assert ratio > 0
    assert torch.get_num_threads() >= 1
