"""A study whose searches widen their ranges: equal budgets, the same after a kill, and told on its board."""

from __future__ import annotations

from typing import Any

import pytest
from logged_studies import Logs, logs
from repeated_studies import cells_of, study_of

from vsetune.config.study.study_spec import StudySpec
from vsetune.records.events import AttemptRecord, ValidationPoint
from vsetune.records.studies import Studies
from vsetune.report.board_notes import notes
from vsetune.study.explaining import explain
from vsetune.study.ledger import StudyLedger
from vsetune.study.recorded_boards import recorded_board
from vsetune.study.study_records import logged_search
from vsetune.study.trials import Assignment

__all__ = ["logs"]
BUDGET = 12


def study(name: str, **search: Any) -> StudySpec:
    """Both losses search the same learning rate; the higher, the better. Of lseh only up to 0.002."""
    return study_of(
        study=name, losses=[{"name": "lmh", "search": "none"}, {"name": "lseh", "search": "none"}], baseline="lmh",
        search={"configurations": BUDGET, "repeats": 2, "training": {"learning_rate": "default"}} | search, seeds=[0],
    )


def trained(spec: StudySpec, logs: Logs, most: int = 1000) -> None:
    """By a new process, which dies after so many trials."""
    writer = logs.opened(spec)
    search = logged_search(writer, cells_of(spec), spec.search)
    ledger = StudyLedger(spec, cells_of(spec), writer, search)
    ledger.recover()
    for _ in range(most):
        assignment = ledger.next()
        if not isinstance(assignment, Assignment):
            break
        name, rate = assignment.trial.trial, assignment.trial.training.learning_rate
        best_at = 1.0 if ".lmh" in assignment.trial.cell else 0.002
        ledger.open_attempt(name, number=1, environment={}, protocol={}, inherited=[])
        ledger.record_point(name, ValidationPoint(1, 2.0, 2, 50 - 100 * abs(rate - best_at) / (rate + best_at), 1.0))
        ledger.close(name, "finished", summary={"epochs": 2.0})
    logs.close(spec.study)


def configurations(name: str) -> list[tuple[str, Any]]:
    return [(each.start.trial, dict(each.start.configuration)) for each in Studies().attempts(name)]


def epochs_of(attempts: list[AttemptRecord]) -> dict[str, float]:
    found: dict[str, float] = {}
    for each in attempts:
        found[each.start.cell] = found.get(each.start.cell, 0.0) + each.curve[-1][0]
    return found


@pytest.mark.parametrize("sampler", ["gp", "tpe"])
def test_every_cell_has_the_same_budget_and_a_killed_study_goes_on_as_an_undisturbed_one(
    logs: Logs, sampler: str
) -> None:
    trained(study("undisturbed", widen=True, sampler=sampler), logs)
    for _ in range(5):
        trained(study("killed", widen=True, sampler=sampler), logs, most=11)
    assert configurations("killed") == configurations("undisturbed")
    rates = [each["training.learning_rate"] for trial, each in configurations("killed") if ".lmh" in trial]
    assert max(rates) > 0.003
    trained(study("narrow", sampler=sampler), logs)
    wide, narrow = (epochs_of(Studies().attempts(name)) for name in ("killed", "narrow"))
    assert set(wide.values()) == set(narrow.values()) == {2.0 * BUDGET}


def test_the_board_and_the_explanation_have_the_widened_range_of_each_cell(logs: Logs) -> None:
    trained(study("wide", widen=True), logs)
    board = recorded_board(Studies(), "wide")
    searched = {row.loss: " ".join(row.searched) for row in board.rows}
    assert "0.0001 to 0.003, log (the default range" in searched["lmh"]
    for repeat in (1, 2):
        assert f"search {repeat}" in searched["lmh"].partition(", widened to 0.0001 to ")[2]
    assert "widened" not in searched["lseh"]
    assert searched["lmh"] in " ".join(notes(board))
    (lmh,) = (row for row in board.rows if row.loss == "lmh")
    explained = {cell.name: cell for cell in explain(Studies().record("wide"), Studies().attempts("wide")).cells}
    for pick in lmh.repeats:
        cell = explained["vsepp.lmh" + (f".r{pick.repeat}" if pick.repeat > 1 else "")]
        high = cell.space.domains["training.learning_rate"].high
        assert max(trial.configuration["training.learning_rate"] for trial in cell.trials) <= high
        assert high > 0.003
        assert cell.importances.trials == BUDGET, "trials beyond the range of the file are judged too"
    assert explained["vsepp.lseh"].space.domains["training.learning_rate"].high == 0.003
