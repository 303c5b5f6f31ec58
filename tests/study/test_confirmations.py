"""`study confirm`: winner, runner-up and papers' settings over seeds that did not search, each once."""

from __future__ import annotations

from typing import Any

import pytest
from driven_ledgers import ledger_of, run_through
from tiny_studies import tiny_study

from vsetune.board.board_notes import notes
from vsetune.board.building import build
from vsetune.config.study.cells import resolve_cells
from vsetune.records.writer import StudyWriter
from vsetune.study.confirmations import Confirming
from vsetune.study.ledger import StudyLedger
from vsetune.study.trials import PlannedTrial

REACHED = {"vsepp.lmh-c000": 40.0, "vsepp.lmh-c001": 45.0, "vsepp.lmh-c002": 44.0}


class Driver:
    """`confirm(n)` is a new process each time; what it trains ends at `reached` plus a tenth of the seed."""

    def __init__(self, **changes: Any) -> None:
        plain = {"training": {"epochs": 2}, "search": {"configurations": 3}, "seeds": [1, 4]}
        self.study, self.writer, self.reached = tiny_study(**plain | changes), StudyWriter(), dict(REACHED)

    def ledger(self, seeds: int | None) -> StudyLedger:
        confirming = None if seeds is None else Confirming(seeds, contenders=True)
        return ledger_of(self.study, self.writer, confirming=confirming)

    def train(self, ledger: StudyLedger, most: int = 100) -> list[str]:
        names: list[str] = []
        while len(names) < most and isinstance(planned := ledger.next(), PlannedTrial):
            name, seed = planned.name, planned.spec.seed
            names.append(name)
            height = self.reached.get(name.rpartition("-")[0], 30.0) + seed / 10
            run_through(ledger, name, [(1, height - 1), (2, height)], epochs=2.0)
        return names


def test_a_study_that_has_ended_is_confirmed_over_new_seeds_and_nothing_runs_twice() -> None:
    driver = Driver()
    driver.train(driver.ledger(None))
    first = driver.train(driver.ledger(2), most=3)
    assert first == ["vsepp.lmh-c002-s4", "vsepp.lmh-c000-s4", "vsepp.lmh-c001-s0"]  # c001-s4 the study has run itself
    ledger = driver.ledger(2)
    assert driver.train(ledger) == ["vsepp.lmh-c002-s0", "vsepp.lmh-c000-s0"]
    assert ledger.promised() == 3 + 3 * 2
    assert driver.train(driver.ledger(2)) == []
    assert driver.train(driver.ledger(3)) == ["vsepp.lmh-c001-s2", "vsepp.lmh-c002-s2", "vsepp.lmh-c000-s2"]
    attempts = driver.writer.attempts()
    confirming = [each.start for each in attempts if each.start.phase == "confirm"]
    assert {each.seed for each in confirming} == {0, 2, 4}
    assert {name for each in confirming for name in each.environment} == {"confirms"}, "their epochs are of no budget"
    roles = {each.trial.rpartition("-")[0]: each.environment.get("confirms") for each in confirming}
    assert roles == {
        "vsepp.lmh-c001": "winner", "vsepp.lmh-c002": "runner-up", "vsepp.lmh-c000": "papers' settings",
    }


def test_the_headline_is_the_winner_over_those_seeds_and_the_others_stand_beside_it() -> None:
    driver = Driver()
    driver.train(driver.ledger(None))
    driver.reached["vsepp.lmh-c002"] = 46.0
    driver.train(driver.ledger(3))
    board = build(driver.writer.attempts(), baseline="lmh")
    (row,) = board.rows
    assert [seed.seed for seed in row.headline] == [0, 2, 4]
    assert row.best_m_recall == pytest.approx(45.2)
    assert [each.role for each in row.contenders] == ["runner-up", "papers' settings"]
    assert [each.best_m_recall for each in row.contenders] == pytest.approx([46.2, 40.2])
    assert "runner_up_ahead" in row.flags
    told = (
        "vsepp lmh: run again together with its winner: runner-up 46.2 ± 0.2 over the seeds 0, 2, 4 (the winner 45.2); "
    )
    assert any(note.startswith(told) for note in notes(board))


def test_settings_of_the_papers_that_were_never_searched_are_run_under_a_name_of_their_own() -> None:
    driver = Driver(search={"configurations": 2, "include_defaults": False}, seeds=[0])
    driver.train(driver.ledger(None))
    assert driver.train(driver.ledger(1)) == ["vsepp.lmh-c001-s1", "vsepp.lmh-c000-s1", "vsepp.lmh-papers-s1"]


@pytest.mark.parametrize(("seeds", "count"), [(1, 3), (2, 5)])
def test_a_cell_without_a_search_gets_as_many_seeds_as_all_repeats_of_another(seeds: int, count: int) -> None:
    study = tiny_study(losses=[{"name": "lmh", "search": {}}], search={"repeats": 2}, seeds=[0, 1])
    (cell,) = resolve_cells(study, where="test")
    found = Confirming(seeds).seeds_of(study, cell)
    assert (len(set(found)), found[:1], 0 in found) == (count, [1], False)


def test_the_search_of_a_study_is_known_to_be_open() -> None:
    driver = Driver()
    driver.train(driver.ledger(None), most=2)
    assert driver.ledger(2).searching() == ["vsepp.lmh"]
