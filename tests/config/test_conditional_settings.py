"""Settings that matter only at some values of others: searched, they belong to the configurations they matter in."""

from __future__ import annotations

from typing import Any

from tiny_studies import tiny_study

from vsetune.config.study.cells import Cell, build_trial, resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.search.importances import importances_of

BOTH = {"decay": {"choices": ["hyperbolic", "linear"]}, "sharpness": "default"}


def resolved(loss: dict[str, Any], **study: Any) -> tuple[StudySpec, Cell]:
    spec = tiny_study(loss, **study)
    return spec, resolve_cells(spec, where="test")[0]


def test_a_setting_is_left_out_where_another_searched_one_leaves_it_without_effect() -> None:
    study, cell = resolved({"name": "top_f", "search": BOTH})
    assert cell.conditions == {"loss.sharpness": [{"loss.decay": "hyperbolic"}]}
    linear = cell.applying({"loss.decay": "linear", "loss.sharpness": 9.0})
    assert linear == {"loss.decay": "linear"}
    trial = build_trial(study, cell, linear, trial="t", seed=0)
    assert (trial.loss.decay, trial.loss.sharpness) == ("linear", 16.0)  # type: ignore[union-attr]
    assert cell.applying({"loss.decay": "hyperbolic", "loss.sharpness": 9.0}).keys() == cell.domains.keys()
    assert cell.defaults() == {"loss.decay": "hyperbolic", "loss.sharpness": 16.0}


def test_what_always_has_an_effect_is_always_drawn() -> None:
    for fixed in ({"decay": "hyperbolic"}, {"decay": "linear"}):
        _, cell = resolved({"name": "top_f", "fixed": fixed, "search": {"sharpness": "default"}})
        assert cell.conditions == {}, "the second was asked for by name"


def test_a_phase_that_sets_the_other_setting_counts_for_itself() -> None:
    """In one phase the decay is what was drawn, in the other it is held."""
    for held, found in (("linear", {"loss.sharpness": [{"loss.decay": "hyperbolic"}]}), ("hyperbolic", {})):
        phases = [{"epochs": 3}, {"epochs": 3, "loss": {"decay": held}}]
        _, cell = resolved({"name": "top_f", "search": BOTH}, training={"epochs": 6, "phases": phases})
        assert cell.conditions == found


def test_parts_of_a_sum_have_conditions_of_their_own() -> None:
    parts = [{"name": "top_f", "label": "one", "search": BOTH}, {"name": "top_f", "label": "two", "search": BOTH}]
    _, cell = resolved({"loss": parts, "label": "both"})
    drawn = {"loss.one.decay": "linear", "loss.one.sharpness": 5.0, "loss.two.decay": "hyperbolic",
             "loss.two.sharpness": 6.0}
    assert cell.applying(drawn) == {name: value for name, value in drawn.items() if name != "loss.one.sharpness"}


def test_importances_are_of_what_every_trial_has_and_name_the_rest() -> None:
    _, cell = resolved({"name": "top_f", "search": {**BOTH, "margin": "default"}})
    tried = [
        (cell.applying({"loss.decay": decay, "loss.sharpness": 5.0 + n, "loss.margin": 0.1 + n / 100}), 40.0 + n)
        for n, decay in enumerate(["linear", "hyperbolic"] * 6)
    ]
    found = importances_of(cell.domains, tried)
    assert found.shares.keys() == {"loss.decay", "loss.margin"}
    assert found.remark == "Not judged, because not every trial has them or they never changed: loss.sharpness."
