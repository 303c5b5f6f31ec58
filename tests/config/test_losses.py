"""What losses declare: complete, searchable where it matters, and refused with a reason where nothing fits."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from refusals import fits
from tiny_studies import tiny_study

from vsetune.config.component_specs import LOSSES, NETWORKS, LossSpec, NetworkSpec, SumSpec
from vsetune.config.spec.base import ALL_KINDS, ALL_SCORES, Choices, Kind, Score, conditions, tunables
from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.cells import build_trial, resolve_cells
from vsetune.config.study.compatibility import mismatch
from vsetune.config.study.loss_settings import with_settings
from vsetune.config.study.study_spec import StudySpec
from vsetune.config.study.training import TrialSpec
from vsetune.losses.lmh.spec import LmhSpec
from vsetune.losses.luwm.spec import LuwmSpec
from vsetune.losses.nt_xent.spec import NtXentSpec
from vsetune.losses.semantic_center.spec import SemanticCenterSpec
from vsetune.networks.vsepp.spec import VseppSpec

TRIAL: dict[str, Any] = {
    "study": "s", "trial": "t", "cell": "c", "data": {"path": "d"}, "network": {"name": "vsepp"}, "seed": 0,
    "loss": {"name": "lmh"}, "training": {"epochs": 4},
}


def study(losses: list[dict[str, Any]], **changes: Any) -> StudySpec:
    return tiny_study(*losses, **changes)


def trial_of(**changes: Any) -> TrialSpec:
    return parse_spec(TRIAL | changes, TrialSpec, where="t")


class ScoreNetwork(NetworkSpec):
    """A matching network: it only scores pairs."""

    name: str = "matcher"

    @property
    def kind(self) -> Kind:
        return "score"

    @property
    def score(self) -> Score:
        return "unbounded"


SUM = SumSpec.model_validate({"parts": {"lmh": {"loss": LmhSpec()}, "center": {"loss": SemanticCenterSpec()}}})


@pytest.mark.parametrize("spec", [*LOSSES.values(), *NETWORKS.values()])
def test_every_component_declares_its_source_and_ranges_that_hold_the_papers_default(spec: Any) -> None:
    assert any(character.isdigit() for character in spec.source)
    domains = dict(tunables(spec))
    for key, domain in domains.items():
        default = spec.model_fields[key].default
        inside = default in domain.choices if isinstance(domain, Choices) else domain.low <= default <= domain.high
        assert inside, f"{key}: the paper's default {default} is not in its own range"
        assert spec.model_fields[key].json_schema_extra["paper"], f"{key}: no source"
    for key, needed in conditions(spec).items():
        assert key in domains
        assert needed.keys() <= spec.model_fields.keys()


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_every_loss_declares_its_equation_networks_and_something_to_search(name: str) -> None:
    spec = LOSSES[name]
    assert spec.equation
    assert set() != spec.kinds <= ALL_KINDS
    assert spec.scores <= ALL_SCORES
    assert dict(tunables(spec))


@pytest.mark.parametrize(("network", "loss", "message"), [
    (ScoreNetwork(), SemanticCenterSpec(), "VSE-C061"), (ScoreNetwork(), LmhSpec(), None),
    (ScoreNetwork(), LmhSpec(memory_size=100), "VSE-C061"),
    (ScoreNetwork(), LuwmSpec(), "VSE-C062"), (ScoreNetwork(), LuwmSpec(allow_unbounded=True), None),
    (VseppSpec(normalize_images=False), NtXentSpec(), "VSE-C062"),
    (VseppSpec(), SUM, None), (ScoreNetwork(), SUM, "VSE-C061"),
])
def test_what_does_not_fit_is_refused_for_its_reason(
    network: NetworkSpec, loss: LossSpec, message: str | None
) -> None:
    reason = mismatch(network, loss, batch_unit="pairs")
    assert reason is None if message is None else reason is not None and fits(reason, message)


def test_the_worst_part_of_a_sum_decides() -> None:
    reason = mismatch(VseppSpec(), SUM, batch_unit="images")
    assert reason is not None
    assert fits(reason, "VSE-C065", loss="semantic_center")


def test_every_pair_of_loss_and_kind_of_network_fits_or_is_refused_with_one_line() -> None:
    cases = itertools.product(sorted(LOSSES), sorted(ALL_KINDS), sorted(ALL_SCORES))
    assert [problem for case in cases for problem in problems_with(*case)] == []


def problems_with(loss: str, kind: Kind, score: Score) -> list[str]:
    """What is wrong with how a network that gives this kind and score is taken or refused."""
    gives = {"kind": property(lambda self: kind), "score": property(lambda self: score)}
    network = type("Probe", (ScoreNetwork,), gives)()
    spec = LOSSES[loss]()
    reason = mismatch(network, spec, batch_unit="pairs")
    case = f"{loss} with a network that gives {kind}, {score}: "
    if (reason is None) != (kind in spec.needed_kinds and score in spec.needed_scores):
        return [f"{case}got {reason!r}, need what the loss declares: {spec.needed_kinds}, {spec.needed_scores}"]
    if reason is not None and not (loss in reason and "matcher" in reason and "\n" not in reason):
        return [f"{case}got {reason!r}, need one line that names both"]
    return []


def test_a_loss_may_change_the_network_it_is_tried_with() -> None:
    (cell,) = resolve_cells(
        study([{"name": "order", "network": {"absolute": True, "similarity": "order"}}]), where="f.yaml"
    )
    assert cell.network == {"name": "vsepp", "absolute": True, "similarity": "order"}


def test_a_setting_without_effect_is_not_searched_by_default() -> None:
    (cell,) = resolve_cells(study([{"name": "top_f", "fixed": {"decay": "linear"}}]), where="f.yaml")
    assert "loss.sharpness" not in cell.domains
    (cell,) = resolve_cells(study([{"name": "top_f"}]), where="f.yaml")
    assert "loss.sharpness" in cell.domains


def test_a_setting_that_matters_in_a_later_phase_is_searched() -> None:
    phases = [{"epochs": 2}, {"loss": {"centers": "quantised", "quantised_centers": 50}}]
    (cell,) = resolve_cells(
        study([{"name": "semantic_center"}], training={"epochs": 4, "phases": phases}), where="f.yaml"
    )
    assert "loss.repulsion" in cell.domains
    assert "loss.growth" not in cell.domains


def test_losses_are_added_with_weights_and_searched_part_by_part() -> None:
    entry = {"loss": [
        {"name": "lmh"},
        {"name": "info_nce", "weight": 0.1, "search": {"weight": "default", "softmax_temperature": "default"}},
        {"name": "info_nce", "label": "cold", "fixed": {"softmax_temperature": 0.02}, "search": "none"},
    ], "label": "mixed"}
    spec = study([entry])
    (cell,) = resolve_cells(spec, where="f.yaml")
    assert list(cell.domains) == ["loss.lmh.margin", "loss.info_nce.weight", "loss.info_nce.softmax_temperature"]
    assert cell.defaults() == {
        "loss.lmh.margin": 0.2, "loss.info_nce.weight": 0.1, "loss.info_nce.softmax_temperature": 0.07,
    }
    trial = build_trial(spec, cell, {"loss.info_nce.weight": 0.5, "loss.lmh.margin": 0.1}, trial="t", seed=0)
    assert isinstance(trial.loss, SumSpec)
    assert {name: part.weight for name, part in trial.loss.parts.items()} == {"lmh": 1, "info_nce": 0.5, "cold": 1}
    terms = {label: loss.to_plain() for label, loss in trial.loss.terms().items()}
    assert (terms["lmh"]["margin"], terms["cold"]["softmax_temperature"]) == (0.1, 0.02)


def test_a_sum_is_called_by_its_parts() -> None:
    assert study([{"loss": [{"name": "lmh"}, {"name": "lsh"}]}]).losses[0].cell_name == "lmh_lsh"


def test_a_value_is_set_in_the_part_it_belongs_to() -> None:
    plain = {"name": "sum", "parts": {"a": {"weight": 1.0, "loss": {"name": "lmh"}}}}
    assert with_settings(plain, {"a": {"margin": 0.3}})["parts"]["a"]["loss"] == {"name": "lmh", "margin": 0.3}
    assert with_settings(plain, {"a": {"weight": 2.0}})["parts"]["a"]["weight"] == 2.0
    assert plain["parts"]["a"]["loss"] == {"name": "lmh"}  # type: ignore[index]


LMH_AND_NCE = {"name": "sum", "parts": {"lmh": {"loss": {"name": "lmh"}}, "nce": {"loss": {"name": "info_nce"}}}}
TAGS = {"network": {"name": "tags"}}


def test_a_phase_without_weights_of_the_network_is_recorded_as_before_there_were_any() -> None:
    phases = [{"epochs": 1}, {"network": {"istm_weight": 0.5}}]
    trial = trial_of(**TAGS, training={"epochs": 4, "phases": phases})
    plain = trial.to_plain()["training"]["phases"]
    assert "network" not in plain[0]
    assert plain[1]["network"] == {"istm_weight": 0.5}
    assert [trial.network_in(phase).istm_weight for phase in range(2)] == [1e-3, 0.5]


def test_each_phase_has_its_own_loss() -> None:
    phases = [{"epochs": 1}, {"epochs": 1, "loss": {"margin": 0.1}}, {"loss": {"margin": 0.3}}]
    trial = trial_of(training={"epochs": 4, "phases": phases})
    assert [trial.loss_in(phase).to_plain()["margin"] for phase in range(3)] == [0.2, 0.1, 0.3]


def test_a_phase_of_a_sum_changes_the_part_it_names() -> None:
    phases = [{"epochs": 1}, {"loss": {"lmh": {"margin": 0.1, "weight": 2}}}]
    second = trial_of(loss=LMH_AND_NCE, training={"epochs": 4, "phases": phases}).loss_in(1)
    assert isinstance(second, SumSpec)
    lmh, nce = (second.parts[name].to_plain() for name in ("lmh", "nce"))
    assert (lmh["loss"]["margin"], lmh["weight"], nce["weight"]) == (0.1, 2, 1)


def test_a_setting_that_every_phase_sets_is_not_searched() -> None:
    phases = [{"epochs": 2, "loss": {"margin": 0.1}}, {"loss": {"margin": 0.2}}]
    training = {"epochs": 4, "phases": phases}
    (cell,) = resolve_cells(study([{"name": "lsh"}], training=training), where="f.yaml")
    assert cell.domains == {}
