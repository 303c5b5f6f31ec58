"""What holds for every loss, whatever its formula. Formulas, worked cases and quirks stand in the file of each loss."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from vsetune.config.component_specs import LOSSES, SumSpec
from vsetune.losses.loss_building import build_loss
from vsetune.quality.checks import Check, Result
from vsetune.quality.loss_batches import CONTEXT, LossSubject, output_of, pairs, run_steps
from vsetune.quality.loss_checks import LOSS_CHECKS, resumes_exactly, step_times

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
    "irtm": [{"hardest": 2}, {"variant": "diagonal"}, {"hardest": 1}],
    "order": [{"negatives": "max"}],
    "pvse": [{"negatives": "sum", "kernel": "squared"}],
    "pcme": [{"variant": "released", "uniformity_weight": 1.0}],
    "contrastive": [{"negatives": "hardest"}, {"negatives": "all", "squared": True}],
    "adaptive_margin": [
        {"negatives": "hardest"}, {"negatives": "hardest", "squared": True},
        {"warmup_epochs": 1, "interval": 2, "ratio": 0.1},
    ],
    "margin_based": [{"negatives": "all"}],
    "many_to_many": [{"direction": "as_printed", "lowest": "semantic"}, {"threshold": 1.0}],
    "top_f": [{"warmup_epochs": 1}, {"decay_steps": 4}],
    "info_nce": [{"positives": "inside"}, {"label_smoothing": 0.1}, {"learned": True}],
    "clip": [{"learned": False}, {"label_smoothing": 0.1, "variant": "diagonal"}],
    "siglip": [{"learned": False}, {"variant": "diagonal"}],
    "hcl": [{"learned": True, "variant": "diagonal"}, {"tau_plus": 0.0}, {"beta": 0.0}, {"softmax_temperature": 0.01}],
    "pcme_pp": [{"variant": "diagonal"}, {"pseudo_weight": 0.0, "kl_weight": 0.0}],
    "nt_xent": [{"learned": True, "variant": "diagonal"}],
    "additive_margin": [{"learned": False}],
    "semantic_center": [
        {"centers": "quantised", "quantised_centers": 3, "negatives": "hardest", "repulsion_every": 3},
        {"adaptive": True, "interval": 2, "ratio": 0.1, "train_classifiers": False},
    ],
}
"""Settings beside the defaults, for the checks of values."""
OF_VALUES = ("value", "gradcheck", "permutation", "small batches", "extremes", "resume")
READ_MORE = ("lseh", "many_to_many", "semantic_center", "sum")
"""Begin the names of cases whose settings decide how they read more than the similarity."""
REMEMBERING: dict[str, dict[str, Any]] = {
    "lsh": {}, "lmh": {}, "lseh": {}, "luwm": {}, "irtm": {}, "pvse": {}, "top_f": {},
    "adaptive_margin": {"negatives": "hardest"}, "contrastive": {"negatives": "hardest"},
}
"""Losses that take a memory, with the settings that they need for it."""
OF_SUM = LossSubject(SumSpec, {"parts": {part: {"loss": {"name": part}} for part in ("lmh", "info_nce")}})


def subject(name: str, settings: dict[str, Any] | None = None) -> LossSubject:
    return LossSubject(LOSSES[name], ({"quantised_centers": 2} if name == "semantic_center" else {}) | (settings or {}))


CASES = {
    " ".join([name, *(f"{key}={value}" for key, value in settings.items())]): subject(name, settings)
    for name in LOSSES for settings in ({}, *VARIANTS.get(name, []))
}
every_case = pytest.mark.parametrize("case", CASES)


def is_slow(case: str, check: Check[LossSubject]) -> bool:
    return check.name == "ranges" and case in TAKE_SECONDS


@pytest.mark.parametrize(("case", "check"), [
    pytest.param(case, check, id=f"{case}-{check}", marks=[pytest.mark.slow] if is_slow(case, check) else [])
    for case in (*CASES, "sum") for check in LOSS_CHECKS
    if case in LOSSES or check.name in OF_VALUES or (check.name == "nan" and case.startswith(READ_MORE))
    or (check.name == "several captions" and case != "sum")
])
def test_the_quality_list(case: str, check: Check[LossSubject]) -> None:
    checked = CASES.get(case, OF_SUM)
    found, name = check.finding(checked), checked.resolved().name
    assert found.result is not Result.FAILS, found.note
    if found.result is Result.NOT_APPLICABLE:
        is_declared = {
            "permutation": name in DRAW_AT_RANDOM, "several captions": not LOSSES[name].several_positives,
        }
        assert is_declared.get(check.name), found.note


@pytest.mark.parametrize("name", REMEMBERING)
def test_a_loss_with_a_memory_resumes_exactly_too(name: str) -> None:
    memory = {"memory_size": 7, "memory_start_epoch": 1}
    found = resumes_exactly(LossSubject(LOSSES[name], REMEMBERING[name] | memory))
    assert found.result is Result.HOLDS, found.note


MINED = (
    "lmh", "lmh variant=diagonal", "lseh", "lseh variant=diagonal", "lseh variant=released", "luwm",
    "luwm variant=diagonal", "luwm one_sided=True", "irtm hardest=1", "order negatives=max", "pvse",
    "adaptive_margin negatives=hardest", "adaptive_margin negatives=hardest squared=True",
    "semantic_center centers=quantised quantised_centers=3 negatives=hardest repulsion_every=3",
)
NOT_MINED = (
    "lsh", "lsh variant=diagonal", "lmh warmup_epochs=1", "order", "pvse negatives=sum kernel=squared",
    "top_f warmup_epochs=1",
)
NEVER_MINE = ("contrastive", "adaptive_margin", "margin_based", "many_to_many", "semantic_center")


@every_case
def test_the_hard_negatives_that_a_loss_reports_are_those_it_mines_or_a_proxy(case: str) -> None:
    loss = CASES[case]
    inputs, name = pairs(loss.kinds()[0]), case.split()[0]
    selection = output_of(loss.build(), inputs).selection
    assert (selection is None) == (case not in MINED and (case in NOT_MINED or name in NEVER_MINE))
    if selection is None:
        return
    assert selection.is_proxy == (case not in MINED)
    assert torch.equal(selection.scores, inputs.similarity.detach()) == (name not in ("lseh", "additive_margin"))
    assert not selection.scores.requires_grad
    ignores = getattr(loss.resolved(), "variant", "decided") == "decided"
    other = inputs.image_ids[:, None] != inputs.image_ids if ignores else ~torch.eye(6, dtype=torch.bool)
    assert torch.equal(selection.negatives, other)
    assert (selection.active_images is None) == (case not in MINED and name not in ("irtm", "top_f"))


LEARNED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("clip", "info_nce", "hcl", "nt_xent"), ("log_scale",)), "siglip": ("log_scale", "bias"),
    "additive_margin": ("slope", "intercept"), "margin_based": ("boundary",),
    **dict.fromkeys(("pcme", "pcme_pp"), ("scale", "shift")),
}
"""By loss, unless it is fixed; semantic centres stand in their own file, all others learn nothing."""


@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith("semantic_center")])
def test_what_a_loss_learns_it_learns_with_the_network_or_at_its_own_rate(case: str) -> None:
    loss, name = CASES[case].build(), case.split()[0]
    expected = LEARNED.get(name, ()) if getattr(CASES[case].resolved(), "learned", True) else ()
    names = {id(parameter): name for name, parameter in loss.named_parameters()}
    groups = [(group.sgd_rate, [names[id(each)] for each in group.parameters]) for group in loss.parameter_groups()]
    assert groups == ([(0.1 if name == "margin_based" else None, list(expected))] if expected else [])


@every_case
def test_the_way_of_a_gpu_gives_the_same_values_and_states(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU is asked no question about values."""
    (kind, *_), steps = CASES[case].kinds(torch.float64), range(6)
    here, there = CASES[case].build(dtype=torch.float64), CASES[case].build(dtype=torch.float64)
    expected = run_steps(here, kind, steps)
    for name, module in list(sys.modules.items()):
        if name.startswith("vsetune.losses") and hasattr(module, "is_on_cpu"):
            monkeypatch.setattr(module, "is_on_cpu", lambda tensor: False)
    assert run_steps(there, kind, steps) == pytest.approx(expected, rel=1e-12)
    for name, value in here.state_dict().items():
        torch.testing.assert_close(there.state_dict()[name], value, rtol=1e-9, atol=1e-12, msg=name)


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


@pytest.mark.parametrize("name", [*LOSSES, "sum"])
def test_a_loaded_loss_knows_the_epoch_it_was_saved_in(name: str) -> None:
    loss, other = (build_loss((OF_SUM if name == "sum" else subject(name)).resolved(), CONTEXT) for _ in range(2))
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
