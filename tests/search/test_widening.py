"""A search that widens its ranges finds what lies beyond them, and never looks where the setting accepts nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest
from refusals import refused
from tiny_studies import tiny_cell

from vsetune.config.messages import SAMPLER_CANNOT_WIDEN
from vsetune.config.study.cells import refusal
from vsetune.search.configurations import ConfigurationSearch, Sampled, Suggestion
from vsetune.search.widening import WIDENED

BUDGET = {"gp": 16, "tpe": 40}
"""By sampler; tpe learns more slowly."""


def searched(
    sampler: str = "gp", *, best_at: float, count: int | None = None, kept: list[Sampled] | None = None, **search: Any
) -> list[Suggestion]:
    """So many configurations more, each told before the next, of a margin from 0.05 to 0.4 and a learning rate. kept:
    what earlier processes sampled, and then what this one does."""
    kept = [] if kept is None else kept
    study, cell = tiny_cell(
        "lmh", {"margin": {"low": 0.05, "high": 0.4}},
        **{"sampler": sampler, "configurations": BUDGET[sampler], "training": {"learning_rate": "default"}} | search,
    )
    running = ConfigurationSearch(
        [cell], study.search, sampled=kept, keep=kept.append, refuses=lambda _, each: refusal(study, cell, each),
    )

    def tell(each: Suggestion) -> None:
        height = 60 - 100 * abs(each.configuration["loss.margin"] - best_at)
        height -= 5 * abs(math.log10(each.configuration["training.learning_rate"]) + 3.2)
        running.tell(cell.name, each.number, "finished", curve=[(1.0, height)])

    for earlier in running.suggestions(cell.name):
        tell(earlier)
    found = []
    for _ in range(BUDGET[sampler] if count is None else count):
        suggestion = running.ask(cell.name)
        tell(suggestion)
        found.append(suggestion)
    return found


def margins(found: list[Suggestion]) -> list[float]:
    return [float(each.configuration["loss.margin"]) for each in found]


@pytest.mark.parametrize("sampler", ["gp", "tpe"])
def test_an_optimum_beyond_the_range_is_found_only_by_a_search_that_widens(sampler: str) -> None:
    for seed in range(2):
        narrow = margins(searched(sampler, best_at=0.5, seed=seed))
        wide = margins(searched(sampler, best_at=0.5, seed=seed, widen=True))
        assert max(narrow) <= 0.4
        assert min(abs(each - 0.5) for each in wide) < 0.03
        assert all(each <= 0.4 for each in wide[:BUDGET[sampler] // 3]), "not before a third of the budget has ended"


@pytest.mark.parametrize(("sampler", "killed_after"), [("gp", 6), ("gp", 7), ("gp", 12), ("tpe", 20), ("tpe", 30)])
def test_a_search_that_is_killed_and_resumed_has_the_same_ranges_and_configurations(
    sampler: str, killed_after: int
) -> None:
    kept: list[Sampled] = []
    undisturbed: list[Sampled] = []
    expected = searched(sampler, best_at=0.8, widen=True, kept=undisturbed)
    first = searched(sampler, best_at=0.8, widen=True, count=killed_after, kept=kept)
    rest = searched(sampler, best_at=0.8, widen=True, count=BUDGET[sampler] - killed_after, kept=kept)
    assert [*first, *rest] == expected
    assert kept == undisturbed
    assert any(WIDENED in each.attributes for each in kept)


def test_a_range_grows_at_most_twice_and_leaves_a_quarter_of_the_budget_for_what_is_new() -> None:
    kept: list[Sampled] = []
    searched(best_at=9.0, widen=True, kept=kept)
    ends = [each.attributes[WIDENED]["loss.margin"]["high"] for each in kept if WIDENED in each.attributes]
    assert sorted(set(ends)) == [0.6, 0.9]
    assert all(each.number < 0.75 * BUDGET["gp"] for each in kept if WIDENED in each.attributes)
    assert max(each.configuration["loss.margin"] for each in kept) <= 0.9


def test_a_range_is_not_widened_beyond_what_the_setting_accepts() -> None:
    """A margin is at least 0, and half of the range below 0.05 would be less."""
    kept: list[Sampled] = []
    found = margins(searched(best_at=-1.0, widen=True, kept=kept))
    assert 0 <= min(found) < 0.05
    assert min(each.attributes[WIDENED]["loss.margin"]["low"] for each in kept if WIDENED in each.attributes) >= 0
    assert all(each.state == "running" for each in kept), "none is refused"


def test_an_optimum_inside_its_range_widens_nothing_and_changes_no_configuration() -> None:
    assert searched(best_at=0.2, widen=True) == searched(best_at=0.2)


@pytest.mark.parametrize("sampler", ["cma-es", "nsga-ii", "sobol", "random", "grid"])
def test_samplers_that_need_ranges_that_stay_are_refused(sampler: str) -> None:
    with refused(SAMPLER_CANNOT_WIDEN, sampler=sampler):
        tiny_cell("lmh", sampler=sampler, widen=True)
