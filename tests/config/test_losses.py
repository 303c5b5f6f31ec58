"""What losses declare: complete, searchable where it matters, and refused with a reason where nothing fits."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from pydantic import ValidationError

from vsetune.config.component_specs import LOSSES, NetworkSpec, SumSpec
from vsetune.config.spec.base import ALL_KINDS, ALL_SCORES, Kind, Score, conditions, tunables
from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.cells import build_trial, resolve_cells
from vsetune.config.study.compatibility import mismatch
from vsetune.config.study.loss_settings import setting, with_setting
from vsetune.config.study.study_spec import StudySpec
from vsetune.config.study.training import TrialSpec
from vsetune.errors import ConfigError
from vsetune.losses.lmh.spec import LmhSpec
from vsetune.losses.luwm.spec import LuwmSpec
from vsetune.losses.nt_xent.spec import NtXentSpec
from vsetune.losses.semantic_center.spec import SemanticCenterSpec
from vsetune.networks.vsepp.spec import VseppSpec

STUDY: dict[str, Any] = {
    "study": "tiny", "data": {"path": "data/scenes"}, "networks": [{"name": "vsepp"}], "losses": [{"name": "lmh"}],
}
TRIAL: dict[str, Any] = {
    "study": "s", "trial": "t", "cell": "c", "data": {"path": "d"}, "network": {"name": "vsepp"}, "seed": 0,
    "loss": {"name": "lmh"}, "training": {"epochs": 4},
}


def study(losses: list[dict[str, Any]], **changes: Any) -> StudySpec:
    first = losses[0]
    baseline = first.get("label") or first.get("name") or "_".join(part["name"] for part in first["loss"])
    return parse_spec(STUDY | {"losses": losses, "baseline": baseline} | changes, StudySpec, where="f.yaml")


def problems(losses: list[dict[str, Any]], **changes: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        resolve_cells(study(losses, **changes), where="f.yaml")
    return caught.value.problems


class ScoreNetwork(NetworkSpec):
    """A matching network: it only scores pairs."""

    name: str = "matcher"

    @property
    def kind(self) -> Kind:
        return "score"

    @property
    def score(self) -> Score:
        return "unbounded"


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_every_loss_declares_equation_source_and_tunables_that_hold_its_default(name: str) -> None:
    spec = LOSSES[name]
    assert spec.equation
    assert any(character.isdigit() for character in spec.source)
    assert spec.kinds <= ALL_KINDS
    assert spec.kinds
    assert spec.scores <= ALL_SCORES
    domains = dict(tunables(spec))
    assert domains, "a loss without anything to search"
    for key, domain in domains.items():
        default = spec.model_fields[key].default
        inside = default in domain.choices if hasattr(domain, "choices") else domain.low <= default <= domain.high
        assert inside, f"{key}: the paper's default {default} is not in its own range"
        assert spec.model_fields[key].json_schema_extra["paper"], f"{key}: no source"  # type: ignore[index,call-overload]
    for key, needed in conditions(spec).items():
        assert key in domains
        assert needed.keys() <= spec.model_fields.keys()


def test_an_embedding_loss_on_a_network_that_only_scores_pairs_is_refused_with_the_reason() -> None:
    reason = mismatch(ScoreNetwork(), SemanticCenterSpec(), batch_unit="pairs")
    assert reason is not None
    assert "semantic_center needs one embedding per item, network matcher gives a score per pair" in reason
    assert mismatch(ScoreNetwork(), LmhSpec(), batch_unit="pairs") is None


def test_a_memory_needs_embeddings_whatever_its_loss() -> None:
    reason = mismatch(ScoreNetwork(), LmhSpec(memory_size=100), batch_unit="pairs")
    assert reason is not None
    assert "lmh with memory_size 100" in reason


def test_a_loss_of_cosines_on_a_network_without_them_is_refused_with_the_reason() -> None:
    reason = mismatch(VseppSpec(normalize_images=False), NtXentSpec(), batch_unit="pairs")
    assert reason is not None
    assert "needs similarities that are cosines, network vsepp with these settings gives unbounded scores" in reason


def test_the_worst_part_of_a_sum_decides() -> None:
    parts = {"lmh": {"loss": LmhSpec()}, "center": {"loss": SemanticCenterSpec()}}
    assert mismatch(VseppSpec(), SumSpec(parts=parts), batch_unit="pairs") is None
    assert "semantic_center" in str(mismatch(ScoreNetwork(), SumSpec(parts=parts), batch_unit="pairs"))
    assert "semantic_center does not define" in str(mismatch(VseppSpec(), SumSpec(parts=parts), batch_unit="images"))


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


def test_a_pair_that_does_not_fit_is_refused_when_the_study_is_checked() -> None:
    (line,) = problems([{"name": "nt_xent"}], networks=[{"name": "vsepp", "fixed": {"normalize_images": False}}])
    assert line.startswith("f.yaml: cell vsepp.nt_xent: loss nt_xent needs similarities that are cosines")


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
    assert setting(trial.loss, "lmh.margin") == 0.1
    assert setting(trial.loss, "cold.softmax_temperature") == 0.02


def test_a_sum_is_called_by_its_parts_and_two_equal_names_need_labels() -> None:
    assert study([{"loss": [{"name": "lmh"}, {"name": "lsh"}]}]).losses[0].cell_name == "lmh_lsh"
    with pytest.raises(ConfigError, match="lmh is listed twice under `loss`; give one of them a `label`"):
        study([{"loss": [{"name": "lmh"}, {"name": "lmh"}]}])


@pytest.mark.parametrize("entry", [{"label": "x"}, {"name": "lmh", "loss": [{"name": "lsh"}], "label": "x"}])
def test_an_entry_is_one_loss_or_a_sum(entry: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="need either `name` of one loss, or `loss` with a list"):
        study([entry])


def test_a_part_out_of_range_is_named_with_its_part() -> None:
    (line,) = problems([{"loss": [{"name": "lmh", "fixed": {"margin": -3}}, {"name": "lsh"}]}])
    assert line.startswith("f.yaml: cell vsepp.lmh_lsh: loss.lmh.margin: got -3, need a number >= 0")


def test_parts_that_read_different_semantic_vectors_are_refused() -> None:
    (line,) = problems([{"loss": [{"name": "lseh"}, {"name": "many_to_many"}]}])
    assert "lseh: svd, many_to_many: encoder" in line


def test_a_value_is_set_in_the_part_it_belongs_to() -> None:
    plain = {"name": "sum", "parts": {"a": {"weight": 1.0, "loss": {"name": "lmh"}}}}
    assert with_setting(plain, "a.margin", 0.3)["parts"]["a"]["loss"] == {"name": "lmh", "margin": 0.3}
    assert with_setting(plain, "a.weight", 2.0)["parts"]["a"]["weight"] == 2.0
    assert plain["parts"]["a"]["loss"] == {"name": "lmh"}  # type: ignore[index]
    with pytest.raises(ValueError, match="parts of the sum: a"):
        with_setting(plain, "margin", 0.3)


@pytest.mark.parametrize(
    ("phases", "message"),
    [
        ([{"epochs": 1}, {"epochs": 2}], "they take 3 epochs, training.epochs is 4"),
        ([{"epochs": 4}, {}], "they take 4 epochs before the last one, training.epochs is 4"),
        ([{}, {"epochs": 2}], "phases.0..epochs: only the last phase may leave it out"),
        ([{"epochs": 2}, {"loss": {"margin": -1}}], r"training.phases\[1\].loss.margin: got -1, need a number >= 0"),
        ([{"loss": {"marginn": 1}}], r"training.phases\[0\].loss.marginn: unknown key; did you mean margin\?"),
    ],
)
def test_phases_that_make_no_sense_are_refused(phases: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TrialSpec.model_validate(TRIAL | {"training": {"epochs": 4, "phases": phases}})


@pytest.mark.parametrize(
    ("network", "phases", "message"),
    [
        ({"name": "vsepp"}, [{"network": {"mlm_weight": 0}}],
         r"phases\[0\].network.mlm_weight: is no weight of a loss of network vsepp; it brings no loss of its own"),
        ({"name": "tags"}, [{"network": {"layers": 3}}],
         r"network.layers: is no weight of a loss of network tags; need one of mlm_weight, istm_weight, wod"),
        ({"name": "tags", "wod_weight": 0}, [{"epochs": 1}, {"network": {"wod_weight": 0.1}}],
         r"phases\[1\].network.wod_weight: got 0.1, but the network has wod_weight 0, which leaves that part out"),
        ({"name": "tags"}, [{"network": {"wod_weight": -1}}], r"phases\[0\].network.wod_weight: got -1.0, need"),
        ({"name": "tags"}, [{"trains": "loss", "network": {"wod_weight": 0}}], "`trains: loss` freezes it, and then"),
    ],
)
def test_phases_may_change_the_weights_of_what_a_network_brings_and_nothing_else_of_it(
    network: dict[str, Any], phases: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        TrialSpec.model_validate(TRIAL | {"network": network, "training": {"epochs": 4, "phases": phases}})


def test_a_phase_without_weights_of_the_network_is_recorded_as_before_there_were_any() -> None:
    phases = [{"epochs": 1}, {"network": {"istm_weight": 0.5}}]
    trial = TrialSpec.model_validate(TRIAL | {"network": {"name": "tags"}, "training": {"epochs": 4, "phases": phases}})
    plain = trial.to_plain()["training"]["phases"]
    assert "network" not in plain[0]
    assert plain[1]["network"] == {"istm_weight": 0.5}
    assert [trial.network_in(phase).istm_weight for phase in range(2)] == [1e-3, 0.5]


def test_each_phase_has_its_own_loss() -> None:
    phases = [{"epochs": 1}, {"epochs": 1, "loss": {"margin": 0.1}}, {"loss": {"margin": 0.3}}]
    trial = TrialSpec.model_validate(TRIAL | {"training": {"epochs": 4, "phases": phases}})
    assert [setting(trial.loss_in(phase), "margin") for phase in range(3)] == [0.2, 0.1, 0.3]


def test_a_phase_of_a_sum_changes_the_part_it_names() -> None:
    loss = {"name": "sum", "parts": {"lmh": {"loss": {"name": "lmh"}}, "nce": {"loss": {"name": "info_nce"}}}}
    phases = [{"epochs": 1}, {"loss": {"lmh": {"margin": 0.1, "weight": 2}}}]
    trial = TrialSpec.model_validate(TRIAL | {"loss": loss, "training": {"epochs": 4, "phases": phases}})
    second = trial.loss_in(1)
    assert (setting(second, "lmh.margin"), setting(second, "lmh.weight"), setting(second, "nce.weight")) == (0.1, 2, 1)


def test_a_misspelt_key_in_a_phase_of_a_sum_is_named_as_the_file_names_it() -> None:
    loss = {"name": "sum", "parts": {"lmh": {"loss": {"name": "lmh"}}, "nce": {"loss": {"name": "info_nce"}}}}
    expected = r"training.phases\[0\].loss.lmh.marginn: unknown key; did you mean margin"
    with pytest.raises(ValidationError, match=expected):
        TrialSpec.model_validate(TRIAL | {"loss": loss, "training": {"phases": [{"loss": {"lmh": {"marginn": 1}}}]}})


def test_a_setting_that_every_phase_sets_is_not_searched() -> None:
    phases = [{"epochs": 2, "loss": {"margin": 0.1}}, {"loss": {"margin": 0.2}}]
    training = {"epochs": 4, "phases": phases}
    (cell,) = resolve_cells(study([{"name": "lsh"}], training=training), where="f.yaml")
    assert cell.domains == {}
    (line,) = problems([{"name": "lsh", "search": {"margin": "default"}}], training=training)
    assert "losses[0].search.margin: every phase of the training sets it" in line


def test_the_number_of_quantised_centres_stays_from_phase_to_phase() -> None:
    phases = [{"epochs": 2, "loss": {"centers": "quantised", "quantised_centers": n}} for n in (20, 30)]
    with pytest.raises(ValidationError, match=r"quantised_centers changes between phases \(20, 30\)"):
        TrialSpec.model_validate(
            TRIAL | {"loss": {"name": "semantic_center"}, "training": {"epochs": 4, "phases": phases}}
        )


def test_luwm_takes_unbounded_scores_only_on_request() -> None:
    assert "need" in str(mismatch(ScoreNetwork(), LuwmSpec(), batch_unit="pairs"))
    assert mismatch(ScoreNetwork(), LuwmSpec(allow_unbounded=True), batch_unit="pairs") is None


def test_a_key_of_another_component_is_not_suggested() -> None:
    (line,) = problems([{"name": "order", "fixed": {"memory_size": 5},
                         "network": {"absolute": True, "similarity": "order"}}])
    assert line == "f.yaml: cell vsepp.order: loss.memory_size: unknown key; remove it"
