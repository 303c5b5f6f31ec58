"""A board says whose search trained more than a whole training less, or more, than it was given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from vsetune.board.board_notes import notes
from vsetune.board.building import build
from vsetune.board.export import to_csv
from vsetune.board.search_budgets import SearchBudget, recorded_budget
from vsetune.records.state import Attempt

Make = Callable[..., Attempt]


def given(attempts: Sequence[Attempt], *, epochs: float = 8, **limits: Any) -> list[Attempt]:
    """The same in a study whose search may train so many epochs, 2 a trial."""
    told = recorded_budget(epochs, epochs_of_a_trial=2.0, **limits)
    return [replace(each, start=replace(each.start, environment=told)) for each in attempts]


def trials(attempt: Make, *lengths: int, status: str = "finished") -> list[Attempt]:
    """Of half as many epochs as they have validations."""
    return [
        attempt("lmh", [40.0 + number, *[30.0] * (length - 1)], configuration=number, status=status)
        for number, length in enumerate(lengths)
    ]


def made(trained: float, **changes: Any) -> SearchBudget:
    return SearchBudget(8.0, 2.0, trained, **changes)


@pytest.mark.parametrize(("budget", "words"), [
    (made(8.0), "8 of 8"), (made(10.0), "10 of 8, a begun trial is finished"),
    (made(7.4), "7.4 of 8, the rest is less than half a training"), (made(4.0, is_over=False), "4 of 8, not over"),
    (made(3.0), "3 of 8, no trial is left to begin"), (made(6.5, failed=1.5), "6.5 of 8, failed trials count whole"),
    (made(5.0, is_out_of_time=True), "5 of 8, its device-seconds are used up"),
])
def test_a_budget_that_was_not_met_says_why_on_its_line(budget: SearchBudget, words: str) -> None:
    assert budget.words == words
    assert budget.left >= 0


@pytest.mark.parametrize(("lengths", "flag"), [
    ((4, 4, 4, 4), None), ((4, 4, 4), None), ((4, 4, 3), "less_than_budget"), ((4, 1, 1), "less_than_budget"),
    ((4, 4, 4, 4, 4), None), ((4, 4, 4, 4, 4, 1), "more_than_budget"),
])
def test_more_than_one_whole_training_beside_the_budget_is_flagged(attempt: Make, lengths: Any, flag: Any) -> None:
    (row,) = build(given(trials(attempt, *lengths)), baseline="lmh").rows
    assert [each for each in row.flags if "budget" in each] == ([flag] if flag else [])
    assert (row.search_budget.epochs, row.search_budget.trained) == (8, sum(lengths) / 2)


def test_what_confirms_is_not_charged_to_the_search_nor_is_what_a_crash_lost(attempt: Make) -> None:
    lost = attempt("lmh", [1, 2, 3, 4], configuration=9, status="killed")
    again = attempt("lmh", [11, 12, 13, 14], configuration=9, number=2)
    confirming = [attempt("lmh", [40.0] * 4, seed=seed, phase="confirm") for seed in (1, 2, 3)]
    (row,) = build([*given([*trials(attempt, 4, 4, 4), lost, again]), *confirming], baseline="lmh").rows
    assert (row.search_budget.trained, row.cost.epochs) == (8.0, 8.0 + 2.0 + 3 * 2.0)
    assert not any("budget" in flag for flag in row.flags)


def test_a_search_that_used_up_its_device_seconds_got_all_of_its_budget(attempt: Make) -> None:
    """30 seconds an epoch: two trials take 120."""
    for seconds, flags in ((121.0, ["less_than_budget"]), (120.0, [])):
        (row,) = build(given(trials(attempt, 4, 4), device_seconds=seconds), baseline="lmh").rows
        assert [each for each in row.flags if "budget" in each] == flags


def test_a_mark_says_how_much_the_search_got_and_no_recorded_budget_has_none(attempt: Make) -> None:
    board = build(given(trials(attempt, 4, 1)), baseline="lmh")
    (note,) = [line for line in notes(board) if "budget" in line]
    assert "had more chances: vsepp lmh (epochs: 2.5 of 8, no trial is left to begin)." in note
    lines = to_csv(board).splitlines()
    values = dict(zip(lines[0].split(","), lines[1].split(","), strict=False))
    assert (values["search_epochs"], values["budget_epochs"]) == ("2.5", "8.0")
    (row,) = build(trials(attempt, 4, 1), baseline="lmh").rows
    assert row.search_budget is None
    assert not any("budget" in flag for flag in row.flags)
