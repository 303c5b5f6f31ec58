"""How many trials a cell may ask for: by its epochs, by the most trials, and by the size of its space."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from refusals import refused
from tiny_studies import tiny_study

from vsetune.config.study.cells import repeated_cells, resolve_cells
from vsetune.study.cell_budget import MOST_TRIALS, CellBudget


def budget_of(epochs: float, *, search: Any = "default", grace_epochs: float = 5.0) -> CellBudget:
    """The budget of a cell whose trials have 10 epochs."""
    study = tiny_study(
        {"name": "lmh", "search": search}, training={"epochs": 10}, budget={"epochs_per_cell": epochs},
        scheduler={"grace_epochs": grace_epochs},
    )
    return CellBudget.of(study, resolve_cells(study, where="test")[0])


def test_a_budget_of_27_epochs_has_room_for_3_trials_of_10_and_one_of_24_for_2() -> None:
    assert [budget_of(epochs).room(0) for epochs in (24.0, 25.0, 27.0, 34.9, 35.0)] == [2, 3, 3, 3, 4]


def test_a_trial_begins_while_half_of_its_epochs_are_left() -> None:
    budget = budget_of(30.0)
    assert [replace(budget, committed=spent).room(3) for spent in (0.0, 15.0, 15.1, 25.0, 25.1, 40.0)] == [
        3, 2, 1, 1, 0, 0,
    ]


def test_a_budget_below_half_a_trial_allows_one_trial() -> None:
    budget = budget_of(3.0)
    assert (budget.room(0), replace(budget, committed=10.0).room(1)) == (1, 0)


@pytest.mark.parametrize(("epochs", "grace_epochs", "most"), [
    (10.0, 5.0, MOST_TRIALS), (30.0, 5.0, 3 * MOST_TRIALS), (3.0, 5.0, MOST_TRIALS),
    (10.0, 0.5, 20), (30.0, 0.5, 60), (25.0, 5.0, 20),
])
def test_the_most_trials_are_8_for_each_whole_training_and_more_where_trials_end_earlier(
    epochs: float, grace_epochs: float, most: int,
) -> None:
    budget = budget_of(epochs, grace_epochs=grace_epochs)
    assert budget.trials == most
    assert [replace(budget, most=1e9).room(asked) for asked in (most - 1, most, most + 1)] == [1, 0, 0]


@pytest.mark.parametrize(("constraints", "most"), [({}, MOST_TRIALS), ({"seconds_per_epoch": 1}, 10)])
def test_a_constraint_may_end_trials_after_one_epoch(constraints: dict[str, float], most: int) -> None:
    study = tiny_study(
        {"name": "lmh"}, training={"epochs": 10}, budget={"epochs_per_cell": 10}, search={"constraints": constraints},
    )
    assert CellBudget.of(study, resolve_cells(study, where="test")[0]).trials == most


def test_a_finite_space_allows_no_more_trials_than_it_has_configurations() -> None:
    budget = budget_of(100.0, search={"margin": {"choices": [0.1, 0.2, 0.3]}})
    assert (budget.trials, budget.room(0), budget.room(2)) == (3, 3, 1)


def test_a_cell_without_searched_settings_has_one_training() -> None:
    budget = budget_of(100.0, search="none")
    assert (budget.most, budget.room(0), replace(budget, committed=10.0).room(1)) == (10.0, 1, 0)


def test_a_cell_without_epochs_has_one_trial_of_one_seed() -> None:
    untrained = {"name": "lseh", "label": "zero_shot", "training": {"epochs": 0}}
    study = tiny_study(
        {"name": "lmh"}, untrained, seeds=[3, 4], search={"repeats": 2, "training": {"learning_rate": "default"}},
    )
    cells = {cell.name: cell for cell in repeated_cells(study, resolve_cells(study, where="test"))}
    assert list(cells) == ["vsepp.lmh", "vsepp.zero_shot", "vsepp.lmh.r2"]
    cell = cells["vsepp.zero_shot"]
    assert (dict(cell.domains), cell.seeds) == ({}, (3,))
    assert [CellBudget.of(study, cell).room(asked) for asked in (0, 1)] == [1, 0]


def test_a_baseline_without_epochs_is_refused_beside_losses_that_are_trained() -> None:
    study = tiny_study({"name": "lmh", "training": {"epochs": 0}}, {"name": "lseh"})
    with refused("VSE-C131", baseline="vsepp.lmh"):
        resolve_cells(study, where="test")
    resolve_cells(tiny_study({"name": "lmh"}, {"name": "lseh"}, training={"epochs": 0}), where="test")
