"""What a cell has drawn is not drawn again, whichever sampler draws; a finite space ends when all of it has been."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from searches_here import SearchHere, sampled_by
from tiny_studies import tiny_cell

from vsetune.config.study.cells import Cell
from vsetune.config.study.study_spec import SearchSpec, StudySpec
from vsetune.records.events import Drawn
from vsetune.records.writer import StudyWriter
from vsetune.search.finite_spaces import configurations_in
from vsetune.search.space_gaps import gaps_of

SAMPLERS = get_args(SearchSpec.model_fields["sampler"].annotation)
MARGINS = {"margin": {"choices": [0.1, 0.2, 0.3]}}
DECAYS = {"margin": {"choices": [0.1, 0.2]}, "decay": {"choices": ["hyperbolic", "linear"]},
          "sharpness": {"choices": [2.0, 3.0, 4.0]}}
"""With two learning rates 16 configurations: sharpness has an effect with the hyperbolic decay alone."""


def study_of(loss: str, space: Any, **search: Any) -> tuple[StudySpec, Cell]:
    rates = {"learning_rate": {"choices": [2e-4, 1e-3]}}
    return tiny_cell(loss, space, **{"training": rates, "configurations": 30} | search)


def searched(
    study: StudySpec, cell: Cell, *, most: int = 40, writer: StudyWriter | None = None, **options: Any
) -> list[Drawn]:
    """Until the space is exhausted; the best is always at the same corner, where samplers that learn want to stay.
    writer: what earlier processes sampled, and then what this one does."""
    search = SearchHere([cell], study.search, writer, **options)

    def end(drawn: Drawn) -> None:
        settings = drawn.configuration
        rate = float(settings.get("training.learning_rate", 2e-4))
        best = 50 - 100 * abs(float(settings["loss.margin"]) - 0.3) - 1000 * rate
        search.end(cell.name, drawn.number, "finished", [(1.0, best)])

    for earlier in search.suggested(cell.name):
        end(earlier)
    found: list[Drawn] = []
    while len(found) < most and (drawn := search.ask(cell.name)) is not None:
        end(drawn)
        found.append(drawn)
    return found


def keys(found: list[Drawn]) -> set[str]:
    return {str(sorted(each.configuration.items())) for each in found}


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_space_of_choices_ends_after_as_many_trials_as_it_has_configurations(sampler: str) -> None:
    study, cell = study_of("lmh", MARGINS, sampler=sampler)
    found = searched(study, cell)
    assert (len(found), len(keys(found))) == (6, 6)


@pytest.mark.parametrize("sampler", ["tpe", "grid"])
def test_settings_without_effect_make_no_other_configuration_and_a_resumed_search_draws_the_same(
    sampler: str,
) -> None:
    study, cell = study_of("top_f", DECAYS, sampler=sampler)
    assert configurations_in(cell) == 16
    found = searched(study, cell)
    assert (len(found), len(keys(found))) == (16, 16)
    writer = StudyWriter()
    parts = [searched(study, cell, most=most, writer=writer) for most in (5, 8, 40)]
    assert [each for part in parts for each in part] == found
    assert SearchHere([cell], study.search, writer).ask(cell.name) is None


def test_why_a_configuration_was_drawn_again_is_kept_with_it() -> None:
    study, cell = study_of("lmh", MARGINS, sampler="random")
    told = [sampled_by(each) for each in searched(study, cell)]
    assert told[0] == "the papers' defaults"
    assert any(why.startswith("random: at random; draw 2, the one before was configuration ") for why in told)
    assert all(why.startswith("random: at random") for why in told[1:])


def test_where_a_range_has_hardly_any_values_an_equal_one_is_run_in_the_end_and_says_so() -> None:
    narrow = {"margin": {"low": 0.2, "high": 0.2000000000000001}}
    study, cell = study_of("lmh", narrow, sampler="random", training={})
    assert configurations_in(cell) is None
    search = SearchHere([cell], study.search)
    found = [drawn for _ in range(12) if (drawn := search.ask(cell.name)) is not None]
    assert len(keys(found)) < 12
    assert "all drawn before, run again as configuration" in sampled_by(found[-1])


def test_equal_draws_of_a_real_range_are_replaced_whatever_the_sampler_insists_on() -> None:
    """A Gaussian process whose best is a corner asks for that very point again and again; points near it are run."""
    study, cell = study_of("lmh", {"margin": {"low": 0.05, "high": 0.3}}, sampler="gp", training={}, configurations=9)
    found = searched(study, cell, most=9)
    assert len(keys(found)) == 9
    assert all(float(each.configuration["loss.margin"]) > 0.2 for each in found[4:])
    assert sampled_by(found[-1]) == "gp: model of 8 trials, then near it; draw 2, the one before was configuration 4"


def test_refused_configurations_are_not_drawn_again_and_a_space_without_a_valid_one_is_one_line() -> None:
    study, cell = study_of("lmh", MARGINS, sampler="random")
    found = searched(study, cell, refuses=lambda name, each: "too large" if each["loss.margin"] > 0.15 else None)
    assert [each.configuration["loss.margin"] for each in found] == [0.1, 0.1]
    all_of_it = "all 6 configurations of its space"
    search = SearchHere([cell], study.search, refuses=lambda name, each: "too large")
    assert search.ask(cell.name) is None
    problem = search.search.why_none(cell.name)
    assert problem is not None
    assert (problem.code, problem.fields["which"], problem.fields["reason"]) == ("VSE-E001", all_of_it, "too large")


def test_a_space_smaller_than_its_budget_is_told_before_anything_runs() -> None:
    study, cell = study_of("lmh", MARGINS)
    assert "has 6 configurations and the budget 30 whole trainings" in gaps_of(study.search, cell)
    smaller, cell = study_of("lmh", MARGINS, configurations=6)
    assert gaps_of(smaller.search, cell) == ""


def test_configurations_of_a_space_are_counted() -> None:
    cases: list[tuple[str, Any, dict[str, Any], int | None]] = [
        ("lmh", MARGINS, {}, 6), ("lmh", "none", {"training": {}}, 1), ("lmh", "default", {}, None),
        ("lmh", {"margin": {"low": 0.2, "high": 0.2}}, {}, 2),
        ("top_f", {"decay_steps": {"low": 200, "high": 203}}, {"training": {}}, 4),
        ("top_f", DECAYS | {"sharpness": "default"}, {}, None),
    ]
    for loss, space, changes, count in cases:
        assert configurations_in(study_of(loss, space, **changes)[1]) == count, space
