"""A study that asks for epochs to a target: the baseline first, then trials that stop at its best."""

from __future__ import annotations

from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest
from driven_ledgers import begin, point, run_through
from logged_studies import begun

from simulation.simulated_search import Course, VirtualClock, VirtualCluster
from vsetune.board.building import build
from vsetune.board.selection import winner_of
from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.cells import repeated_cells, resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.errors import ConfigError
from vsetune.records.state import trials_of
from vsetune.records.writer import StudyWriter
from vsetune.study.cell_objectives import target_cell
from vsetune.study.ledger import StudyLedger
from vsetune.study.trainable import as_result
from vsetune.study.trials import PlannedTrial
from vsetune.study.tune_adapter import CellScheduler, record_report


class Study:
    def __init__(self, *, seeds: tuple[int, ...] = (0,), **search: Any) -> None:
        plain = {
            "study": "soon", "data": {"path": "x"}, "networks": [{"name": "vsepp"}],
            "losses": [{"name": "lmh"}, {"name": "lseh"}], "training": {"epochs": 6}, "scheduler": {"kind": "none"},
            "search": {"configurations": 3, "sampler": "sobol", **search}, "seeds": list(seeds),
        }
        self.spec = parse_spec(plain, StudySpec, where="test")
        self.cells = resolve_cells(self.spec, where="test")
        self.writer, self.clock = StudyWriter(), VirtualClock()
        self.started: list[str] = []

    def ledger(self, *, retry_failed: bool = False) -> StudyLedger:
        begun(self.writer, self.spec)
        ledger = StudyLedger(self.spec, self.cells, self.writer, clock=self.clock)
        ledger.recover(retry_failed=retry_failed)
        return ledger

    def run(self) -> StudyLedger:
        ledger = self.ledger()
        scheduler = CellScheduler(
            self.spec.scheduler, epochs={cell.name: 6.0 for cell in self.cells}, target_of=ledger.target_of
        )
        VirtualCluster(
            ledger, scheduler, self.course, workers=2, clock=self.clock, on_closed=lambda trial: None,
        ).run()
        return ledger

    def course(self, planned: PlannedTrial) -> Course:
        """The baseline ends at 40, and 1 lower with every number; lseh is there the sooner the lower its number, but 0
        never is."""
        self.started.append(planned.name)
        number, is_baseline = planned.number, planned.spec.cell == "vsepp.lmh"
        last = 40.0 - number if is_baseline else 39.0 if number == 0 else 60.0 - 8 * number
        return Course([(float(epoch), last * epoch / 6) for epoch in range(1, 7)], 1.0)


def test_the_baseline_is_searched_first_and_what_reaches_its_best_stops_and_makes_room() -> None:
    study = Study(objective="epochs_to_target")
    assert study.ledger().target_of("vsepp.lseh") is None
    ledger = study.run()
    assert all(name.startswith("vsepp.lmh") for name in study.started[:3])
    assert (ledger.target_of("vsepp.lmh"), ledger.target_of("vsepp.lseh")) == (None, 40.0)
    soon = ledger.trials["vsepp.lseh-c001-s0"]
    assert (soon.status, soon.epoch) == ("finished", 5.0)  # 52 at the end: 43.3 at 5, the straight line says 4.62
    assert soon.error == "target reached: 43.33 at epoch 5, target 40.00"
    assert soon.attempts[-1].summary["search_value"] == pytest.approx(-6 * 40 / 52)
    never = ledger.trials["vsepp.lseh-c000-s0"]
    assert never.attempts[-1].summary["search_value"] == pytest.approx(-6 * (1 + 1 / 40))


def test_the_winner_is_the_soonest_and_its_row_says_that_it_was_cut_short() -> None:
    study = Study(objective="epochs_to_target")
    study.run()
    attempts = study.writer.attempts()
    assert winner_of(trials_of([each for each in attempts if each.start.loss == "lseh"])).start.trial[-7:] == "c001-s0"
    (row,) = [row for row in build(attempts, baseline="lmh").rows if row.loss == "lseh"]
    assert "stopped_at_target" in row.flags


def test_a_new_process_finds_the_target_again_and_nothing_left_to_do() -> None:
    study = Study(objective="epochs_to_target")
    study.run()
    again = study.ledger()
    assert again.target_of("vsepp.lseh") == 40.0
    assert not again.has_work()


def test_trials_from_before_a_retry_of_the_baseline_count_by_the_target_and_not_by_their_m_recall() -> None:
    study = Study(objective="epochs_to_target")
    ledger = study.ledger()
    for status, m_recall in (("finished", 40.0), ("finished", 30.0), ("failed", 20.0)):
        run_through(ledger, ledger.next().name, [(6, m_recall)], status=status)
    run_through(ledger, ledger.next().name, [(6, 50.0)])
    again = study.ledger(retry_failed=True)
    assert again.target_of("vsepp.lseh") is None, "the search of the baseline is not over"
    run_through(again, again.next().name, [(6, 35.0)], number=2)
    assert again.target_of("vsepp.lseh") == 40.0
    assert [trial.value for trial in again.history("vsepp.lseh")] == [-6.0]


def test_epochs_saved_by_stopping_at_the_target_go_to_further_trials() -> None:
    study = Study(objective="epochs_to_target", target=6.0)
    ledger = study.run()
    epochs = [trial.epoch for trial in ledger.trials.values() if trial.spec.cell == "vsepp.lseh"]
    assert epochs[:4] == [1.0] * 4
    assert len(epochs) > 3
    assert sum(epochs) == pytest.approx(3 * 6, abs=3)


def test_a_trial_that_breaks_a_constraint_is_never_the_winner() -> None:
    study = Study(constraints={"seconds_per_epoch": 2.0})
    ledger = study.ledger()
    for slow in (3.0, 1.0):
        name = ledger.next().name
        run_through(ledger, name, [(6, 10 * slow)], seconds_per_epoch=slow)
    first, second = study.writer.attempts()
    assert first.summary["constraint_excess"] == 0.5
    assert winner_of([(first,), (second,)]) is second
    assert winner_of([(first,)]) is None
    rows = build([first], baseline="lmh").rows
    assert [row.flags for row in rows] == [("none_allowed", "less_than_budget")]


def test_what_a_stopped_trial_that_breaks_a_constraint_leaves_over_goes_to_others_and_it_is_no_pick() -> None:
    study = Study(constraints={"seconds_per_epoch": 2.0}, configurations=2)
    ledger = study.ledger()
    scheduler = CellScheduler(
        study.spec.scheduler, epochs={"vsepp.lmh": 6.0}, constraints=study.spec.search.constraints
    )
    for seconds in (3.0, 3.0, 1.0, 1.0):
        planned = ledger.next()
        while planned.spec.cell != "vsepp.lmh":  # the other cell's are left running
            planned = ledger.next()
        name, epoch = planned.name, 1.0 if seconds > 2 else 6.0
        begin(ledger, name)
        summary = {"epochs": epoch, "seconds_per_epoch": seconds}
        heard = {"event": "point", "point": {"epoch": epoch, "m_recall": 50.0 * seconds}, "summary": summary}
        config = {"trial": planned.spec.to_plain(), "phase": "search"}
        is_stopped = scheduler.on_trial_result(None, SimpleNamespace(config=config), as_result(heard)) == "STOP"
        assert is_stopped == (seconds > 2)
        report = {"event": "point", "point": asdict(point(epoch, 20.0 * seconds)), "done": True,
                  "summary": summary, "is_finished": not is_stopped}
        record_report(ledger, name, report, stopped_by=scheduler.reasons.get(name, ""))
    attempts = [each for each in study.writer.attempts() if each.start.loss == "lmh"]
    assert [each.status for each in attempts] == ["pruned", "pruned", "finished", "finished"]
    assert attempts[0].error == "constraint seconds_per_epoch: 3 > 2"
    assert attempts[0].summary["constraint_excess"] == 0.5
    assert winner_of(trials_of(attempts)) is attempts[2]
    history = ledger.history("vsepp.lmh")
    assert [max(each.intermediate_values.values()) for each in history] == [-5.0, -5.0, 20.0, 20.0]


def test_the_target_of_a_repeat_is_the_same_repeat_of_the_baseline_if_there_is_one() -> None:
    study = Study(objective="epochs_to_target", repeats=2)
    cells = {cell.name: cell for cell in repeated_cells(study.spec, study.cells)}
    found = {name: target_cell(study.spec, cell, cells) for name, cell in cells.items()}
    assert found == {
        "vsepp.lmh": None, "vsepp.lmh.r2": None, "vsepp.lseh": "vsepp.lmh", "vsepp.lseh.r2": "vsepp.lmh.r2",
    }
    assert target_cell(study.spec, cells["vsepp.lseh.r2"], ["vsepp.lmh"]) == "vsepp.lmh"


def test_a_study_without_its_baseline_needs_a_target_of_its_own() -> None:
    plain = Study().spec.to_plain() | {"cells": ["vsepp.lseh"]}
    plain["search"] = plain["search"] | {"objective": "epochs_to_target"}
    with pytest.raises(ConfigError, match=r"search.target: "):
        parse_spec(plain, StudySpec, where="test")


def test_without_constraints_and_targets_the_sampler_reads_plain_m_recall() -> None:
    study = Study()
    ledger = study.run()
    assert ledger.target_of("vsepp.lmh") is None
    assert [trial.value for trial in ledger.history("vsepp.lmh")] == pytest.approx([40.0, 39.0, 38.0])


def test_what_a_search_is_after_is_no_number_of_a_run_that_confirms() -> None:
    study = Study(objective="epochs_to_target", target=30.0, seeds=(0, 1))
    study.run()
    attempts = study.writer.attempts()
    assert {each.start.phase: "search_value" in each.summary for each in attempts} == {"search": True, "confirm": False}
    assert not any("confirms" in each.start.environment for each in attempts)  # roles are those of `study confirm`
