"""The ledger hands out what was promised, in order, and a new process continues it without loss or double count."""

from __future__ import annotations

from typing import Any

import pytest
from driven_ledgers import begin, ledger_of, point, run_through
from logged_studies import Logs, logs
from tiny_studies import tiny_study

from vsetune.config.study.study_spec import StudySpec
from vsetune.records.state import Attempt
from vsetune.records.studies import Studies
from vsetune.study.trials import PlannedTrial

__all__ = ["logs"]


def make_study(*losses: str, **changes: Any) -> StudySpec:
    named = [{"name": name} for name in losses or ("lmh", "lseh")]
    return tiny_study(*named, **{"search": {"configurations": 2}, "seeds": [7, 8]} | changes)


class Driver:
    """A process that runs a study: opened anew on the same log it stands for a restart."""

    def __init__(self, study: StudySpec, logs: Logs, *, retry_failed: bool = False) -> None:
        self.now = 0.0
        self.writer = logs.opened(study)
        self.ledger = ledger_of(study, self.writer, retry_failed=retry_failed, clock=lambda: self.now)

    def next(self) -> PlannedTrial:
        planned = self.ledger.next()
        assert isinstance(planned, PlannedTrial), planned
        return planned

    def run(self, planned: PlannedTrial, m_recall: float, *, number: int = 1, status: Any = "finished") -> str:
        trial = planned.name
        run_through(
            self.ledger, trial, [(1, m_recall)], number=number, status=status, epochs=1.0, device_seconds=10.0,
        )
        return trial

    def run_all(self, m_recall: float = 10.0) -> list[str]:
        names = []
        while (planned := self.ledger.next()) not in ("done", "wait"):
            assert isinstance(planned, PlannedTrial)
            names.append(self.run(planned, m_recall + len(names)))
        return names


def recorded() -> list[Attempt]:
    """What the log says to somebody else."""
    return Studies().attempts("tiny")


PROMISED = {
    "vsepp.lmh-c000-s7", "vsepp.lmh-c001-s7", "vsepp.lseh-c000-s7", "vsepp.lseh-c001-s7",
    "vsepp.lmh-c001-s8", "vsepp.lseh-c001-s8",
}


def test_cells_take_turns_and_a_winner_is_confirmed_before_another_cell_goes_on(logs: Logs) -> None:
    driver = Driver(make_study(), logs)
    names = driver.run_all()
    assert names[:4] == ["vsepp.lmh-c000-s7", "vsepp.lseh-c000-s7", "vsepp.lmh-c001-s7", "vsepp.lmh-c001-s8"]
    assert set(names) == PROMISED
    assert driver.ledger.promised() == len(PROMISED)
    assert not driver.ledger.has_work()


def test_every_cell_has_its_first_trial_before_any_is_repeated(logs: Logs) -> None:
    """So that a board can compare all losses early."""
    driver = Driver(make_study(search={"configurations": 1}, seeds=[7, 8, 9]), logs)
    assert [name.partition("-")[0] for name in driver.run_all()[:3]] == ["vsepp.lmh", "vsepp.lseh", "vsepp.lmh"]


def test_cells_without_a_place_are_left_out_and_waited_for(logs: Logs) -> None:
    driver = Driver(make_study(), logs)
    lmh = driver.run(driver.next(), 10.0)
    lseh = driver.next().name
    assert (lmh, lseh) == ("vsepp.lmh-c000-s7", "vsepp.lseh-c000-s7")
    begin(driver.ledger, lseh)
    driver.ledger.interrupted(lseh, "its node left")
    driver.now = 10.0
    names = []
    while (planned := driver.ledger.next({"vsepp.lmh"})) not in ("done", "wait"):
        assert isinstance(planned, PlannedTrial)
        names.append(driver.run(planned, 11.0))
    assert names == ["vsepp.lmh-c001-s7", "vsepp.lmh-c001-s8"]
    assert planned == "wait"
    assert driver.ledger.unfinished() == ["vsepp.lseh"]
    assert driver.next().name == lseh, "it kept its place in line"
    driver.run(driver.ledger.trials[lseh], 12.0, number=2)
    assert driver.ledger.next({"vsepp.lmh"}) == "wait", "the rest of its cell has not been asked for"
    driver.run_all(13.0)
    assert set(driver.ledger.trials) == PROMISED
    assert driver.ledger.next(set()) == "done"
    assert driver.ledger.unfinished() == []


def test_a_cell_whose_winner_is_to_be_confirmed_is_not_finished(logs: Logs) -> None:
    driver = Driver(make_study(search={"configurations": 1}, seeds=[7, 8]), logs)
    for left in (["vsepp.lmh", "vsepp.lseh"], ["vsepp.lmh", "vsepp.lseh"], ["vsepp.lseh"], []):
        driver.run(driver.next(), 10.0)
        assert driver.ledger.unfinished() == left


def test_confirmation_waits_for_the_search_of_its_cell(logs: Logs) -> None:
    driver = Driver(make_study("lmh"), logs)
    first, second = driver.next(), driver.next()
    assert driver.ledger.next() == "wait"
    driver.run(first, 30.0)
    assert driver.ledger.next() == "wait"
    driver.run(second, 20.0)
    assert driver.ledger.has_work()
    confirmation = driver.next()
    assert (confirmation.phase, confirmation.spec.seed, confirmation.number) == ("confirm", 8, 0)
    assert confirmation.configuration == first.configuration
    driver.run(confirmation, 25.0)
    assert driver.ledger.next() == "done"
    assert not driver.ledger.has_work()


def test_a_restart_hands_out_interrupted_trials_first_and_repeats_no_finished_one(logs: Logs) -> None:
    driver = Driver(make_study(), logs)
    finished = driver.run(driver.next(), 10.0)
    interrupted = driver.next()
    begin(driver.ledger, interrupted.name)
    driver.ledger.record_point(interrupted.name, point(1, 11.0))
    asked_only = driver.next()

    again = Driver(make_study(), logs)
    assert [again.next().name for _ in range(2)] == [asked_only.name, interrupted.name]
    begin(again.ledger, interrupted.name, point(1, 11.0), number=2)
    again.ledger.close(interrupted.name, "finished", summary={"epochs": 1.0})
    again.run(asked_only, 12.0)
    names = {finished, interrupted.name, asked_only.name, *again.run_all(20.0)}
    assert names == PROMISED
    attempts = [(each.start.trial, each.start.number, each.status) for each in recorded()]
    assert (interrupted.name, 1, "killed") in attempts
    assert (interrupted.name, 2, "finished") in attempts
    assert len(attempts) == len(set(attempts)) == len(PROMISED) + 1


def test_a_result_in_the_log_that_the_search_missed_is_told_on_restart(logs: Logs) -> None:
    driver = Driver(make_study(), logs)
    planned = driver.next()
    trial = planned.name
    begin(driver.ledger, trial)
    driver.ledger.record_point(trial, point(1, 10.0))
    (attempt,) = recorded()
    driver.writer.finish_attempt(attempt.attempt_id, "finished", summary={"epochs": 1.0}, error=None)  # it dies here

    again = Driver(make_study(), logs)
    assert again.ledger.trials[trial].is_closed
    assert trial not in again.run_all()


def test_a_worker_that_died_gets_a_second_attempt_and_the_first_is_marked_killed(logs: Logs) -> None:
    driver = Driver(make_study(), logs)
    trial = driver.next().name
    begin(driver.ledger, trial)
    driver.ledger.record_point(trial, point(1, 10.0))
    begin(driver.ledger, trial, point(1, 10.0), number=2)
    driver.ledger.record_point(trial, point(2, 12.0))
    first, second = recorded()
    assert (first.status, second.status) == ("killed", "running")
    assert second.curve == ((1.0, 10.0), (2.0, 12.0))


def test_winners_that_were_confirmed_are_not_trained_again_when_failed_trials_are(logs: Logs) -> None:
    """While a failed trial of a search runs again the search is not over, and its winner not known."""
    driver = Driver(make_study("lmh"), logs)
    winner = driver.run(driver.next(), 10.0)
    failed = driver.run(driver.next(), 10.0, status="failed")
    assert driver.run_all() == [winner.replace("-s7", "-s8")]
    attempts = recorded()
    retrying = Driver(make_study("lmh"), logs, retry_failed=True)
    assert retrying.run(retrying.next(), 5.0, number=2) == failed
    assert retrying.run_all() == []
    assert not retrying.ledger.has_work()
    assert [each for each in recorded() if each.start.number == 1] == attempts


def open_first(driver: Driver, m_recall: float = 11.0) -> str:
    trial = driver.next().name
    begin(driver.ledger, trial)
    driver.ledger.record_point(trial, point(1, m_recall))
    return trial


@pytest.mark.parametrize("retries", [0, 4])
def test_an_interrupted_trial_goes_on_after_growing_pauses_and_then_is_left_open(logs: Logs, retries: int) -> None:
    study = make_study(
        "lmh", seeds=[7], search={"configurations": 1}, resources={"retries": retries},
    )
    driver = Driver(study, logs)
    trial = open_first(driver)
    pauses = []
    while (pause := driver.ledger.interrupted(trial, "storage: away")) is not None:
        pauses.append(pause)
        driver.now += pause - 0.1
        assert driver.ledger.next() == "wait"
        driver.now += 0.1
        assert driver.next().name == trial
    assert pauses == [2.0, 4.0, 8.0, 16.0][:retries]
    assert driver.ledger.trials[trial].is_left_open
    assert driver.ledger.next() == "done"
    assert driver.ledger.has_work()
    assert [each.status for each in recorded()] == ["killed"]
    assert recorded()[0].error == "storage: away"
    assert Driver(study, logs).next().name == trial


def test_a_trial_that_was_asked_to_leave_its_machine_goes_on_at_once_however_often(logs: Logs) -> None:
    driver = Driver(make_study("lmh", resources={"retries": 0}), logs)
    trial = open_first(driver)
    for _ in range(3):
        assert driver.ledger.interrupted(trial, "preempted: its machine will go", was_asked=True) == 0.0
        assert driver.next().name == trial


def test_a_new_validation_starts_the_count_of_interruptions_anew(logs: Logs) -> None:
    driver = Driver(make_study(resources={"retries": 1}), logs)
    trial = open_first(driver)
    for number in range(2, 6):
        assert driver.ledger.interrupted(trial, "memory: none left") == 2.0
        driver.now += 2.0
        assert driver.next().name == trial
        begin(driver.ledger, trial, number=number)
        driver.ledger.record_point(trial, point(number, 11.0))
    assert [each.status for each in recorded()] == ["killed"] * 4 + ["running"]


def test_validations_that_an_earlier_attempt_had_come_to_do_not_keep_a_trial_going(logs: Logs) -> None:
    """It goes on from a checkpoint before them, and dies after them again and again."""
    study = make_study("lmh", seeds=[7], search={"configurations": 1}, resources={"retries": 3})
    driver = Driver(study, logs)
    trial, pauses = open_first(driver), []
    for epoch in (2, 3):
        driver.ledger.record_point(trial, point(epoch, 12.0))
    while (pause := driver.ledger.interrupted(trial, "memory: none left")) is not None:
        pauses.append(pause)
        driver.now += pause
        assert driver.next().name == trial
        begin(driver.ledger, trial, point(1, 11.0), number=len(pauses) + 1)
        for epoch in (2, 3):
            driver.ledger.record_point(trial, point(epoch, 12.0))
    assert pauses == [2.0, 4.0, 8.0]
    assert [len(each.curve) for each in recorded()] == [3, 3, 3, 3]

    later = Driver(study, logs)  # another process counts anew, from what it finds
    assert later.next().name == trial
    begin(later.ledger, trial, point(1, 11.0), number=5)
    assert [later.ledger.interrupted(trial, "memory: none left") for _ in range(2)] == [2.0, 4.0]


def test_a_cell_with_an_interrupted_trial_is_not_asked_and_the_others_are(logs: Logs) -> None:
    """The search would know less than undisturbed: with one trial at a time it would ask something else."""
    driver = Driver(make_study(search={"configurations": 3}), logs)
    trial = open_first(driver)
    assert trial == "vsepp.lmh-c000-s7"
    driver.ledger.interrupted(trial, "storage: away")
    others = [driver.run(driver.next(), 10.0) for _ in range(3)]
    assert others == [f"vsepp.lseh-c00{number}-s7" for number in range(3)]
    assert driver.next().name == "vsepp.lseh-c000-s8", "the other cell is even confirmed meanwhile"
    driver.now += 2.0
    assert driver.next().name == trial


def test_an_interrupted_study_asks_what_an_undisturbed_one_asks(logs: Logs) -> None:
    asked: dict[str, dict[str, Any]] = {}
    for name, is_disturbed in (("undisturbed", False), ("disturbed", True)):
        study = make_study("lmh", study=name, search={"configurations": 8}, seeds=[7])
        driver = Driver(study, logs)
        while (planned := driver.ledger.next()) not in ("done", "wait"):
            assert isinstance(planned, PlannedTrial)
            m_recall = 100 * float(planned.configuration["loss.margin"])
            if is_disturbed:
                begin(driver.ledger, planned.name)
                driver = Driver(study, logs)  # killed in the middle of every trial
                planned = driver.next()
                driver.run(planned, m_recall, number=2)
                driver = Driver(study, logs)  # and between trials
            else:
                driver.run(planned, m_recall)
        asked[name] = {trial: dict(each.configuration) for trial, each in driver.ledger.trials.items()}
    assert len(asked["undisturbed"]) == 8
    assert asked["disturbed"] == asked["undisturbed"]


def test_work_that_a_crash_lost_is_not_charged_to_the_budget(logs: Logs) -> None:
    study = make_study(
        "lmh", budget={"epochs_per_cell": 3}, search={"configurations": 5}, seeds=[7],
        training={"epochs": 2},
    )
    driver = Driver(study, logs)
    for _ in range(3):
        trial = driver.next().name
        begin(driver.ledger, trial)
        driver.ledger.record_point(trial, point(1, 11.0))
        driver.ledger.close(trial, "pruned", summary={"epochs": 1.0, "wasted_epochs": 2.0})
    assert driver.ledger.next() == "done"


def test_the_winner_is_the_best_finished_trial_even_if_a_stopped_one_was_better(logs: Logs) -> None:
    driver = Driver(make_study("lmh", search={"configurations": 3}), logs)
    for m_recall, status in ((50.0, "pruned"), (30.0, "finished"), (90.0, "failed"), (20.0, "finished")):
        driver.run(driver.next(), m_recall, status=status)
    best, repeated = driver.ledger.trials["vsepp.lmh-c001-s7"], driver.next()
    assert (repeated.number, repeated.configuration, repeated.phase) == (1, best.configuration, "confirm")
    assert (repeated.name, repeated.spec.seed) == ("vsepp.lmh-c001-s8", 8)
