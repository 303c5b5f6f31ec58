"""Several studies side by side: what compares shares a board, what does not is told and keeps nothing else off it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from board_attempts import NEW

from vsetune.board.board_notes import notes
from vsetune.board.building import build
from vsetune.board.many_studies import StudyAttempts, build_many
from vsetune.records.state import Attempt


def study(
    name: str, attempts: Sequence[Attempt], baseline: str = "lmh", *, revision: str = "r1", **resolved: object
) -> StudyAttempts:
    return StudyAttempts(name, baseline, [
        replace(each, start=replace(
            each.start, study=name, resolved={**each.start.resolved, **resolved}, environment={
                **each.start.environment, "git_revision": revision,
            },
        ))
        for each in attempts
    ])


def shown(board):
    return [(row.loss, row.study, row.not_comparable is None) for row in board.rows]


def test_a_study_without_a_baseline_is_compared_with_that_of_another_seed_by_seed(attempt):
    found = build_many([study("first", [attempt("lmh")]), study("second", [attempt("lseh", NEW)])])
    (board,) = found.boards
    assert (board.study, shown(board)) == ("first + second", [("lmh", "first", True), ("lseh", "second", True)])
    assert board.rows[1].difference.percent == pytest.approx(-100 / 3)
    assert found.notes == ()
    together = build([attempt("lmh"), attempt("lseh", NEW)], baseline="lmh")
    assert [replace(row, study="") for row in board.rows] == [replace(row, study="") for row in together.rows]


def test_equal_losses_of_several_studies_are_rows_of_their_own(attempt):
    first = study("first", [attempt("lmh"), attempt("lseh", NEW)])
    second = study("second", [attempt("lmh", NEW), attempt("lseh", NEW, configuration=1)])
    (board,) = build_many([first, second]).boards
    assert {(row.loss, row.study) for row in board.rows} == {
        ("lmh", "first"), ("lseh", "first"), ("second/lmh", "second"), ("second/lseh", "second"),
    }
    assert [row.is_baseline for row in board.rows] == [True, False, False, False]


@pytest.mark.parametrize(("changed", "told"), [
    ({"network": {"name": "vsepp", "embedding_size": 9}}, "network.embedding_size is 256 in one and 9 in the other"),
    ({"training": {"epochs": 9}}, "training.epochs is 4 in one and 9 in the other"),
])
def test_another_network_or_a_longer_training_is_listed_with_the_reason_and_the_rest_stays(attempt, changed, told):
    same = {"network": {"name": "vsepp", "embedding_size": 256}, "training": {"epochs": 4}}
    first = study("first", [attempt("lmh"), attempt("lsh", NEW)], **same)
    second = study("second", [attempt("lseh", NEW)], **(same | changed))
    (board,) = build_many([first, second]).boards
    assert shown(board) == [("lmh", "first", True), ("lsh", "first", True), ("lseh", "second", False)]
    assert told in board.rows[2].not_comparable
    assert board.rows[2].difference is None
    assert any("not compared: vsepp lseh (first and second: " in note and told in note for note in notes(board))
    assert not board.rows[1].not_comparable
    assert board.rows[1].difference is not None, "it is compared all the same"


def test_what_was_searched_may_differ(attempt):
    def of(loss, rate):
        made = attempt(loss)
        return replace(made, start=replace(made.start, configuration={"network.dropout": rate}))

    first, second = (
        study(name, [of(loss, rate)], network={"dropout": rate})
        for name, loss, rate in (("first", "lmh", 0.1), ("second", "lseh", 0.2))
    )
    (board,) = build_many([first, second]).boards
    assert [row.not_comparable for row in board.rows] == [None, None]


def test_a_study_under_other_conditions_with_its_own_baseline_has_a_board_of_its_own(attempt):
    first = study("first", [attempt("lmh"), attempt("lseh", NEW)])
    second = study("second", [attempt("lmh", batch_size=64), attempt("lseh", NEW, batch_size=64)])
    third = study("third", [attempt("lsh", batch_size=64), attempt("top_f", batch_size=32)])
    boards = build_many([first, second, third]).boards
    assert [board.study for board in boards] == ["first + third", "second + third"]
    assert shown(boards[0]) == [("lmh", "first", True), ("lseh", "first", True), ("top_f", "third", False)]
    assert shown(boards[1]) == [("lmh", "second", True), ("lseh", "second", True), ("lsh", "third", True)]
    assert "batch_size is absent in one and 32 in the other" in boards[0].rows[2].not_comparable


def test_every_data_set_has_a_board_with_the_baseline_that_most_of_its_studies_name(attempt):
    first = study("first", [attempt("lmh"), attempt("lseh", NEW)])
    flickr = [attempt(loss, dataset="flickr", data_fingerprint="f") for loss in ("lmh", "lsh")]
    boards = build_many([first, study("second", flickr, "lsh"), study("third", [])])
    named = [(board.rows[0].dataset, board.baseline) for board in boards.boards]
    assert named == [("scenes", "lmh"), ("flickr", "lsh")]
    assert boards.notes == ("third: has no attempts yet",)
    boards = build_many([first, study("second", flickr)], baseline="lseh")
    assert {board.baseline for board in boards.boards} == {"lseh"}


def test_other_budgets_and_other_code_in_one_comparison_are_told(attempt):
    def tuned(loss, epochs):
        made = [attempt(loss, configuration=place) for place in (0, 1)]
        budget = {"budget_epochs": str(epochs), "budget_epochs_of_a_trial": "4"}
        return [replace(each, start=replace(each.start, environment=budget)) for each in made]

    found = build_many([study("first", tuned("lmh", 8)), study("second", tuned("lseh", 80), revision="r2")])
    assert found.notes == (
        "vsepp on scenes: the searches were given different epochs, so some were tuned more: lmh 8, lseh 80",
        "vsepp on scenes: recorded with different code: first r1, second r2",
    )
