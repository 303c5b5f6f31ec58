"""`search.repeats`: whole searches of a cell with samples, winners and seeds of their own."""

from __future__ import annotations

from typing import Any

import pytest
from refusals import refused
from repeated_studies import SEARCHED, cells_of, study_of, trained

from vsetune.board.building import build
from vsetune.config.study.cells import cell_of, resolve_cells, unused_seeds
from vsetune.errors import StudyConflict
from vsetune.records.writer import StudyWriter
from vsetune.study.cell_objectives import target_cell
from vsetune.study.confirmations import Confirming
from vsetune.study.observed import promised_trials
from vsetune.study.preparation import PreparedStudy
from vsetune.study.recorded_studies import repeated_study
from vsetune.study.run import require_free_seeds


def test_every_repeat_has_its_own_name_and_seeds_and_a_cell_without_a_search_has_them_all() -> None:
    cells = {cell.name: cell for cell in cells_of(study_of())}
    assert {name: (cell.repeat, cell.seeds) for name, cell in cells.items()} == {
        "vsepp.lmh": (1, (1, 4)), "vsepp.lmh.r2": (2, (0, 2)), "vsepp.lmh.r3": (3, (3, 5)),
        "vsepp.lsh": (1, (1, 4, 0, 2, 3, 5)),
    }
    assert [cell.name for cell in cells_of(study_of(search={"repeats": 1}))] == ["vsepp.lmh", "vsepp.lsh"]


def test_a_repeat_is_found_by_its_name() -> None:
    study = study_of()
    for cell in cells_of(study):
        assert cell_of(study, cell.name) == cell
    assert cell_of(study, "vsepp.lmh.r4") is cell_of(study, "vsepp.lsh.r2") is None


def test_repeats_sample_search_pick_and_confirm_apart() -> None:
    study, writer = study_of(search=SEARCHED, losses=[{"name": "lmh"}]), StudyWriter()
    done = trained(study, writer)
    by_cell = {cell.name: [each for each in done if each.spec.cell == cell.name] for cell in cells_of(study)}
    sampled = {
        name: [each.configuration["training.learning_rate"] for each in trials if each.phase == "search"]
        for name, trials in by_cell.items()
    }
    assert [len(each) for each in sampled.values()] == [3, 3, 3]
    assert len({rates[1] for rates in sampled.values()}) == 3, "each repeat starts on its own"
    for name, trials in by_cell.items():
        (confirmed,) = (each for each in trials if each.phase == "confirm")
        assert confirmed.configuration["training.learning_rate"] == max(sampled[name])
    seeds = {name: {each.spec.seed for each in trials} for name, trials in by_cell.items()}
    assert seeds == {"vsepp.lmh": {1, 4}, "vsepp.lmh.r2": {0, 2}, "vsepp.lmh.r3": {3, 5}}
    assert {(each.start.cell, each.start.repeat) for each in writer.attempts()} == {
        ("vsepp.lmh", 1), ("vsepp.lmh.r2", 2), ("vsepp.lmh.r3", 3),
    }
    assert len(done) == promised_trials(study, resolve_cells(study, where="test")) == 12


def test_the_first_repeat_is_the_search_of_a_study_without_repeats() -> None:
    def sampled(repeats: int) -> list[Any]:
        study = study_of(search=SEARCHED | {"repeats": repeats}, losses=[{"name": "lmh"}])
        return [(each.name, each.configuration) for each in trained(study, StudyWriter())
                if each.spec.cell == "vsepp.lmh"]

    assert sampled(3) == sampled(1)


def test_more_confirming_seeds_differ_between_repeats_and_add_to_the_first_ones() -> None:
    study = study_of()
    cells = {cell.name: cell for cell in cells_of(study)}
    more = {name: Confirming(3).seeds_of(study, cell) for name, cell in cells.items()}
    assert more == {
        "vsepp.lmh": [4, 6, 9], "vsepp.lmh.r2": [2, 7, 10], "vsepp.lmh.r3": [5, 8, 11],
        "vsepp.lsh": [4, 0, 2, 3, 5, 6, 7, 8, 9, 10, 11],
    }
    assert Confirming(2).seeds_of(study, cells["vsepp.lmh"]) == [4, 6]
    assert next(unused_seeds(study_of(search={"repeats": 1}), cells["vsepp.lsh"])) == 0


def test_the_target_of_a_repeat_is_the_same_repeat_of_the_baseline() -> None:
    study = study_of(search={"objective": "epochs_to_target"}, losses=[{"name": "lmh"}, {"name": "lseh"}])
    names = [cell.name for cell in cells_of(study)]
    targets = {cell.name: target_cell(study, cell, names) for cell in cells_of(study)}
    assert (targets["vsepp.lseh"], targets["vsepp.lseh.r3"]) == ("vsepp.lmh", "vsepp.lmh.r3")
    assert target_cell(study, cells_of(study)[3], ["vsepp.lmh"]) == "vsepp.lmh"
    assert targets["vsepp.lmh.r2"] is None


def test_repeats_are_in_the_fingerprint_only_where_there_are_several() -> None:
    once, thrice = study_of(search={"repeats": 1}), study_of()
    assert "repeats" not in once.fingerprinted()["search"]
    assert once.fingerprint() != thrice.fingerprint()


def prepared(repeats: int, **changes: Any) -> PreparedStudy:
    study = study_of(search=SEARCHED | {"repeats": repeats}, **changes)
    return PreparedStudy(study, cells_of(study), "ab12")


def resumed(writer: StudyWriter, again: PreparedStudy) -> list[tuple[str, int, Any]]:
    """The trials that the study runs when it begins or is resumed in this log: name, seed and configuration."""
    require_free_seeds(writer, again)
    writer.open_study(again.record(known=writer.state.record), resume=True)
    done = trained(again.spec, writer, is_open=True)
    return [(each.name, each.spec.seed, dict(each.configuration)) for each in done]


def test_a_study_goes_on_with_more_repeats_which_change_nothing_of_the_first() -> None:
    """It then has the trials of a study that had all repeats from the beginning, and each attempt as it was."""
    grown = StudyWriter()
    first = resumed(grown, prepared(1))
    before = grown.attempts()
    added = [*resumed(grown, prepared(2)), *resumed(grown, prepared(3))]
    assert grown.attempts()[: len(before)] == before
    whole = resumed(StudyWriter(), prepared(3))
    assert sorted(first + added, key=str) == sorted(whole, key=str)
    assert all(".r" in name or name.startswith("vsepp.lsh-") for name, *_ in added)
    assert resumed(grown, prepared(3)) == []
    assert grown.state.record.fingerprint == prepared(1).record().fingerprint
    assert grown.state.record.config["search"]["repeats"] == 3


@pytest.mark.parametrize(("repeats", "changes"), [(1, {}), (2, {}), (4, {"training": {"epochs": 3}})])
def test_fewer_repeats_or_another_change_beside_them_are_refused(repeats: int, changes: dict[str, Any]) -> None:
    writer = StudyWriter()
    resumed(writer, prepared(1))
    resumed(writer, prepared(3))
    with refused("VSE-R012", by=StudyConflict, study="tiny"):
        resumed(writer, prepared(repeats, **changes))


def test_more_repeats_are_refused_where_their_seeds_have_confirmed() -> None:
    writer = StudyWriter()
    resumed(writer, prepared(1))
    trained(prepared(1).spec, writer, Confirming(3), is_open=True)
    with refused("VSE-S086", by=StudyConflict, study="tiny", repeats=2, seeds="0, 2"):
        resumed(writer, prepared(2))
    assert resumed(writer, prepared(1)) == []


def test_a_row_of_several_searches_is_trained_again_by_the_seeds_of_its_best_search() -> None:
    study, writer = study_of(search=SEARCHED, losses=[{"name": "lmh"}]), StudyWriter()
    trained(study, writer)
    board = build(writer.attempts(), baseline="lmh")
    (row,) = board.rows
    assert row.has_searches
    again = repeated_study(study, board.rows, writer.attempts(), name="again", epochs=None)
    assert again.seeds == sorted({seed.seed for seed in row.seeds_of(row.pick) if not seed.chose})
    (cell,) = resolve_cells(again, where="again")
    assert cell.training["learning_rate"] == row.configuration["training.learning_rate"]
