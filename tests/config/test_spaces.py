"""A space that contradicts itself, and losses that would not compare, are told before anything is run."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from tiny_studies import tiny_study

from vsetune.config.component_specs import LOSSES, NETWORKS
from vsetune.config.spec.base import Choices
from vsetune.config.study.cells import build_trial, refusal, resolve_cells
from vsetune.config.study.compatibility import mismatch
from vsetune.config.study.study_spec import StudySpec
from vsetune.errors import ConfigError


def study(**changes: Any) -> StudySpec:
    losses = changes.pop("losses", [{"name": "lmh"}, {"name": "adaptive_margin"}])
    return tiny_study(*losses, **{"baseline": "lmh"} | changes)


def searching(**domains: Any) -> StudySpec:
    return study(losses=[{"name": "lmh", "search": "none"}, {"name": "adaptive_margin", "search": domains}])


def test_a_space_is_judged_by_its_own_values_and_not_by_a_default_outside_of_it() -> None:
    """The default margin of 0.2 lies above this cap; the search never draws it."""
    losses = [{"name": "adaptive_margin", "fixed": {"cap": 0.15}, "search": {"margin": {"low": 0.05, "high": 0.12}}}]
    spec = study(losses=losses, baseline="adaptive_margin")
    (cell,) = resolve_cells(spec, where="x")
    assert cell.defaults() == {"loss.margin": 0.12}
    assert build_trial(spec, cell, {}, trial="t", seed=0) == build_trial(spec, cell, cell.defaults(), trial="t", seed=0)


@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_the_declared_ranges_of_every_loss_and_network_fit_together(loss: str) -> None:
    fitting = [name for name, spec in NETWORKS.items() if mismatch(spec(), LOSSES[loss](), batch_unit="pairs") is None]
    if not fitting:
        pytest.skip("needs settings of a network")
    networks = [{"name": name, "search": "default"} for name in fitting]
    spec = study(
        networks=networks, losses=[{"name": loss}], baseline=loss, search={"training": {"learning_rate": "default"}},
    )
    for cell in resolve_cells(spec, where="x"):
        assert refusal(spec, cell, cell.defaults()) is None


def test_a_configuration_that_no_spec_accepts_has_a_reason_in_one_line() -> None:
    spec = searching(margin={"low": 0.05, "high": 0.3})
    cell = resolve_cells(spec, where="x")[1]
    assert refusal(spec, cell, {"loss.margin": 0.3}) is None
    reason = refusal(spec, cell, {"loss.margin": 5.0})
    assert reason is not None
    assert reason.startswith("cell vsepp.adaptive_margin: loss")
    assert "\n" not in reason


def test_networks_with_other_batches_compare_each_with_itself() -> None:
    networks = [{"name": "vsepp"}, {"name": "vse_infinity", "training": {"batch_unit": "images", "batch_size": 32}}]
    losses = [{"name": "lmh"}, {"name": "info_nce", "training": {"epochs": 40}}]
    assert len(resolve_cells(study(networks=networks, losses=losses), where="x")) == 4


def test_a_batch_size_is_searched_where_no_losses_are_compared() -> None:
    search = {"training": {"batch_size": {"choices": [32, 64]}}}
    assert resolve_cells(study(search=search, losses=[{"name": "lmh"}]), where="x")


def test_many_searched_settings_are_checked_in_pairs() -> None:
    domains = {
        "margin": {"low": 0.05, "high": 0.2}, "cap": {"low": 0.3, "high": 1.0}, "growth": {"low": 1.1, "high": 2},
    }
    cell = resolve_cells(searching(**domains), where="x")[1]
    assert set(cell.domains) == {"loss.margin", "loss.cap", "loss.growth"}
    for values in itertools.product((0.05, 0.2), (0.3, 1.0), (1.1, 2)):
        assert refusal(searching(**domains), cell, dict(zip(cell.domains, values, strict=True))) is None


def test_a_sum_whose_phases_change_a_part_has_a_space() -> None:
    phases = [{"epochs": 1}, {"loss": {"lmh": {"margin": 0.3}}}]
    parts = [{"name": "lmh"}, {"name": "info_nce"}]
    both = {"loss": parts, "label": "both", "training": {"epochs": 4, "phases": phases}}
    spec = study(losses=[{"name": "lmh"}, both])
    searched = {cell.loss_name: set(cell.domains) for cell in resolve_cells(spec, where="x")}
    assert "loss.lmh.margin" in searched["both"]


def test_choices_are_searched_as_their_setting_reads_them() -> None:
    """YAML reads 1e-3 as text. As text it would be no number to a sampler, and no default."""
    cells = resolve_cells(study(search={"training": {"learning_rate": {"choices": ["1e-3", "0.1", 2]}}}), where="f")
    assert cells[0].domains["training.learning_rate"] == Choices(choices=[0.001, 0.1, 2.0])


@pytest.mark.parametrize(("changes", "expected"), [
    ({"training": {"learning_rate": [1e-3, 3e-3]}}, "search.training, as learning_rate: {choices: [..., ...]}"),
    ({"training": {"learning_rate": {"low": 1e-4, "high": 1}}}, "search.training, as learning_rate: {choices:"),
    ({"losses": [{"name": "lmh", "fixed": {"margin": [0.1, 0.2]}}]}, "`search` of the loss, as margin: {choices:"),
    ({"losses": [{"name": "lmh", "search": {"margin": [0.1, 0.2]}}]}, "{low: ..., high: ...} or {choices: [..., ...]}"),
    ({"search": {"training": {"learning_rate": "1e-3"}}}, "need `default`, {low: ..., high: ...} or {choices:"),
])
def test_several_values_of_a_setting_lead_to_choices(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_cells(study(**changes), where="study.yaml")
    assert all(expected in problem for problem in caught.value.problems)
