"""What holds for every loss, whatever its formula: the quality list, and what only weighted sums need beside it."""

from __future__ import annotations

import math
from dataclasses import replace

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
