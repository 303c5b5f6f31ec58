"""The ledger hands out what was promised, in order, and a new process continues it without loss or double count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.cells import resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.errors import StorageError
from vsetune.jobs.ledger import StudyLedger
from vsetune.jobs.trial_progress import Assignment
from vsetune.search.configurations import ConfigurationSearch
from vsetune.tracking.memory_store import MemoryStore
from vsetune.records.attempts import StudyRecord, ValidationPoint


def make_study(**changes: Any) -> StudySpec:
    plain = {
        "study": "tiny", "data": {"path": "x"}, "networks": [{"name": "vsepp"}],
        "losses": [{"name": "lmh"}, {"name": "lseh"}], "search": {"configurations": 2}, "seeds": [7, 8],
    }
    return parse_spec(plain | changes, StudySpec, where="test")


class Driver:
    """A process that runs a study: opened anew on the same store and search it stands for a restart."""

    def __init__(self, study: StudySpec, store: MemoryStore, folder: Path, *, retry_failed: bool = False) -> None:
        self.now = 0.0
        cells = resolve_cells(study, where="test")
        store.open_study(StudyRecord("tiny", study.fingerprint(), study.to_plain()), resume=True)
        search = ConfigurationSearch("tiny", cells, study.search, storage=f"sqlite:///{folder / 'search.db'}")
        self.ledger = StudyLedger(study, cells, store, search, clock=lambda: self.now)
        self.ledger.recover(retry_failed=retry_failed)

    def next(self) -> Assignment:
        assignment = self.ledger.next()
        assert isinstance(assignment, Assignment), assignment
        return assignment

    def run(self, assignment: Assignment, m_recall: float, *, number: int = 1, status: Any = "finished") -> str:
        trial = assignment.trial.trial
        self.ledger.open_attempt(trial, number=number, environment={}, protocol={}, inherited=[])
        self.ledger.record_point(trial, point(1, m_recall))
        self.ledger.close(trial, status, summary={"epochs": 1.0, "device_seconds": 10.0})
        return trial

    def run_all(self, m_recall: float = 10.0) -> list[str]:
        names = []
        while (assignment := self.ledger.next()) not in ("done", "wait"):
            assert isinstance(assignment, Assignment)
            names.append(self.run(assignment, m_recall + len(names)))
        return names


def point(step: int, m_recall: float) -> ValidationPoint:
    return ValidationPoint(step=step, epoch=float(step), pairs_seen=step, m_recall=m_recall, train_seconds=1.0)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(None)


PROMISED = {
    "vsepp.lmh-c000-s7", "vsepp.lmh-c001-s7", "vsepp.lseh-c000-s7", "vsepp.lseh-c001-s7",
    "vsepp.lmh-c001-s8", "vsepp.lseh-c001-s8",
}


def test_cells_take_turns_and_a_winner_is_confirmed_before_another_cell_goes_on(
    store: MemoryStore, tmp_path: Path
) -> None:
    driver = Driver(make_study(), store, tmp_path)
    names = driver.run_all()
    assert names[:4] == ["vsepp.lmh-c000-s7", "vsepp.lseh-c000-s7", "vsepp.lmh-c001-s7", "vsepp.lmh-c001-s8"]
    assert set(names) == PROMISED
    assert driver.ledger.promised() == len(PROMISED)
    assert not driver.ledger.has_work()


def test_cells_without_a_place_are_left_out_and_waited_for(store: MemoryStore, tmp_path: Path) -> None:
    driver = Driver(make_study(), store, tmp_path)
    lmh = driver.run(driver.next(), 10.0)
    lseh = driver.next().trial.trial
    assert (lmh, lseh) == ("vsepp.lmh-c000-s7", "vsepp.lseh-c000-s7")
    driver.ledger.open_attempt(lseh, number=1, environment={}, protocol={}, inherited=[])
    driver.ledger.interrupted(lseh, "its node left")
    driver.now = 10.0
    names = []
    while (assignment := driver.ledger.next({"vsepp.lmh"})) not in ("done", "wait"):
        assert isinstance(assignment, Assignment)
        names.append(driver.run(assignment, 11.0))
    assert names == ["vsepp.lmh-c001-s7", "vsepp.lmh-c001-s8"]
    assert assignment == "wait"
    assert driver.ledger.unfinished() == ["vsepp.lseh"]
    assert driver.next().trial.trial == lseh, "it kept its place in line"
    driver.run(driver.ledger.trials[lseh].assignment, 12.0, number=2)
    assert driver.ledger.next({"vsepp.lmh"}) == "wait", "the rest of its cell has not been asked for"
    driver.run_all(13.0)
    assert set(driver.ledger.trials) == PROMISED
    assert driver.ledger.next(set()) == "done"
    assert driver.ledger.unfinished() == []


def test_confirmation_waits_for_the_search_of_its_cell(store: MemoryStore, tmp_path: Path) -> None:
    driver = Driver(make_study(losses=[{"name": "lmh"}]), store, tmp_path)
    first, second = driver.next(), driver.next()
    assert driver.ledger.next() == "wait"
    driver.run(first, 30.0)
    assert driver.ledger.next() == "wait"
    driver.run(second, 20.0)
    confirmation = driver.next()
    assert (confirmation.phase, confirmation.trial.seed, confirmation.number) == ("confirm", 8, 0)
    assert confirmation.configuration == first.configuration
    driver.run(confirmation, 25.0)
    assert driver.ledger.next() == "done"


def test_a_restart_hands_out_interrupted_trials_first_and_repeats_no_finished_one(
    store: MemoryStore, tmp_path: Path
) -> None:
    driver = Driver(make_study(), store, tmp_path)
    finished = driver.run(driver.next(), 10.0)
    interrupted = driver.next()
    driver.ledger.open_attempt(interrupted.trial.trial, number=1, environment={}, protocol={}, inherited=[])
    driver.ledger.record_point(interrupted.trial.trial, point(1, 11.0))
    asked_only = driver.next()

    again = Driver(make_study(), store, tmp_path)
    assert [again.next().trial for _ in range(2)] == [asked_only.trial, interrupted.trial]
    again.ledger.open_attempt(
        interrupted.trial.trial, number=2, environment={}, protocol={}, inherited=[point(1, 11.0)]
    )
    again.ledger.close(interrupted.trial.trial, "finished", summary={"epochs": 1.0})
    again.run(asked_only, 12.0)
    names = {finished, interrupted.trial.trial, asked_only.trial.trial, *again.run_all(20.0)}
    assert names == PROMISED
    attempts = [(each.start.trial, each.start.number, each.status) for each in store.attempts("tiny")]
    assert (interrupted.trial.trial, 1, "killed") in attempts
    assert (interrupted.trial.trial, 2, "finished") in attempts
    assert len(attempts) == len(set(attempts)) == len(PROMISED) + 1


def test_a_result_in_the_store_that_the_search_missed_is_told_on_restart(store: MemoryStore, tmp_path: Path) -> None:
    driver = Driver(make_study(), store, tmp_path)
    assignment = driver.next()
    trial = assignment.trial.trial
    driver.ledger.open_attempt(trial, number=1, environment={}, protocol={}, inherited=[])
    driver.ledger.record_point(trial, point(1, 10.0))
    (attempt,) = store.attempts("tiny")
    store.finish_attempt(attempt.attempt_id, "finished", {"epochs": 1.0}, [], None)  # the driver dies right here

    again = Driver(make_study(), store, tmp_path)
    assert again.ledger.trials[trial].is_closed
    assert trial not in again.run_all()


def test_a_worker_that_died_gets_a_second_attempt_and_the_first_is_marked_killed(
    store: MemoryStore, tmp_path: Path
) -> None:
    driver = Driver(make_study(), store, tmp_path)
    trial = driver.next().trial.trial
    driver.ledger.open_attempt(trial, number=1, environment={}, protocol={}, inherited=[])
    driver.ledger.record_point(trial, point(1, 10.0))
    driver.ledger.open_attempt(trial, number=2, environment={}, protocol={}, inherited=[point(1, 10.0)])
    driver.ledger.record_point(trial, point(2, 12.0))
    first, second = store.attempts("tiny")
    assert (first.status, second.status) == ("killed", "running")
    assert second.curve == ((1.0, 10.0), (2.0, 12.0))


def test_a_failed_trial_stays_failed_unless_a_retry_is_asked_for(store: MemoryStore, tmp_path: Path) -> None:
    driver = Driver(make_study(), store, tmp_path)
    failed = driver.run(driver.next(), 10.0, status="failed")
    driver.run_all()
    assert not Driver(make_study(), store, tmp_path).ledger.has_work()
    retrying = Driver(make_study(), store, tmp_path, retry_failed=True)
    assert retrying.next().trial.trial == failed


def test_winners_that_were_confirmed_are_not_trained_again_when_failed_trials_are(
    store: MemoryStore, tmp_path: Path
) -> None:
    """While a failed trial of a search runs again the search is not over, and its winner not known."""
    driver = Driver(make_study(losses=[{"name": "lmh"}]), store, tmp_path)
    winner = driver.run(driver.next(), 10.0)
    failed = driver.run(driver.next(), 10.0, status="failed")
    assert driver.run_all() == [winner.replace("-s7", "-s8")]
    attempts = store.attempts("tiny")
    retrying = Driver(make_study(losses=[{"name": "lmh"}]), store, tmp_path, retry_failed=True)
    assert retrying.run(retrying.next(), 5.0, number=2) == failed
    assert retrying.run_all() == []
    assert not retrying.ledger.has_work()
    assert [each for each in store.attempts("tiny") if each.start.number == 1] == attempts


def test_a_cell_whose_trials_all_failed_ends_without_a_winner(store: MemoryStore, tmp_path: Path) -> None:
    driver = Driver(make_study(losses=[{"name": "lmh"}]), store, tmp_path)
    for _ in range(2):
        driver.run(driver.next(), 1.0, status="failed")
    assert driver.ledger.next() == "done"


def test_a_cell_at_its_budget_asks_for_no_further_configuration(store: MemoryStore, tmp_path: Path) -> None:
    study = make_study(budget={"epochs_per_cell": 1}, search={"configurations": 5}, seeds=[7])
    assert Driver(study, store, tmp_path).run_all() == ["vsepp.lmh-c000-s7", "vsepp.lseh-c000-s7"]


def test_a_trial_that_never_opened_can_still_be_closed_as_failed(store: MemoryStore, tmp_path: Path) -> None:
    driver = Driver(make_study(), store, tmp_path)
    trial = driver.next().trial.trial
    driver.ledger.close(trial, "failed", summary={}, error="its process died")
    (attempt,) = store.attempts("tiny")
    assert (attempt.status, attempt.error, attempt.start.number) == ("failed", "its process died", 1)


def test_an_interrupted_study_marks_running_attempts_as_killed_and_has_work_left(
    store: MemoryStore, tmp_path: Path
) -> None:
    driver = Driver(make_study(), store, tmp_path)
    trial = driver.next().trial.trial
    driver.ledger.open_attempt(trial, number=1, environment={}, protocol={}, inherited=[])
    assert driver.ledger.interrupt() == [trial]
    assert driver.ledger.has_work()
    assert [each.status for each in store.attempts("tiny")] == ["killed"]


def open_first(driver: Driver, m_recall: float = 11.0) -> str:
    trial = driver.next().trial.trial
    driver.ledger.open_attempt(trial, number=1, environment={}, protocol={}, inherited=[])
    driver.ledger.record_point(trial, point(1, m_recall))
    return trial


def test_an_interrupted_trial_goes_on_after_growing_pauses_and_then_is_left_open(
    store: MemoryStore, tmp_path: Path
) -> None:
    study = make_study(losses=[{"name": "lmh"}], seeds=[7], search={"configurations": 1}, resources={"retries": 4})
    driver = Driver(study, store, tmp_path)
    trial = open_first(driver)
    pauses = []
    while (pause := driver.ledger.interrupted(trial, "storage: away")) is not None:
        pauses.append(pause)
        driver.now += pause - 0.1
        assert driver.ledger.next() == "wait"
        driver.now += 0.1
        assert driver.next().trial.trial == trial
    assert pauses == [2.0, 4.0, 8.0, 16.0]
    assert driver.ledger.next() == "done"
    assert driver.ledger.has_work()
    assert [each.status for each in store.attempts("tiny")] == ["killed"]
    assert store.attempts("tiny")[0].error == "storage: away"
    assert Driver(study, store, tmp_path).next().trial.trial == trial


def test_a_trial_that_was_asked_to_leave_its_machine_goes_on_at_once_however_often(
    store: MemoryStore, tmp_path: Path
) -> None:
    driver = Driver(make_study(losses=[{"name": "lmh"}], resources={"retries": 0}), store, tmp_path)
    trial = open_first(driver)
    for _ in range(3):
        assert driver.ledger.interrupted(trial, "preempted: its machine will go", was_asked=True) == 0.0
        assert driver.next().trial.trial == trial


def test_a_new_validation_starts_the_count_of_interruptions_anew(store: MemoryStore, tmp_path: Path) -> None:
    driver = Driver(make_study(resources={"retries": 1}), store, tmp_path)
    trial = open_first(driver)
    for number in range(2, 6):
        assert driver.ledger.interrupted(trial, "memory: none left") == 2.0
        driver.now += 2.0
        assert driver.next().trial.trial == trial
        driver.ledger.open_attempt(trial, number=number, environment={}, protocol={}, inherited=[])
        driver.ledger.record_point(trial, point(number, 11.0))
    assert [each.status for each in store.attempts("tiny")] == ["killed"] * 4 + ["running"]


def test_validations_that_an_earlier_attempt_had_come_to_do_not_keep_a_trial_going(
    store: MemoryStore, tmp_path: Path
) -> None:
    """It goes on from a checkpoint before them, and dies after them again and again."""
    study = make_study(losses=[{"name": "lmh"}], seeds=[7], search={"configurations": 1}, resources={"retries": 3})
    driver = Driver(study, store, tmp_path)
    trial, pauses = open_first(driver), []
    for epoch in (2, 3):
        driver.ledger.record_point(trial, point(epoch, 12.0))
    while (pause := driver.ledger.interrupted(trial, "memory: none left")) is not None:
        pauses.append(pause)
        driver.now += pause
        assert driver.next().trial.trial == trial
        driver.ledger.open_attempt(
            trial, number=len(pauses) + 1, environment={}, protocol={}, inherited=[point(1, 11.0)]
        )
        for epoch in (2, 3):
            driver.ledger.record_point(trial, point(epoch, 12.0))
    assert pauses == [2.0, 4.0, 8.0]
    assert [len(each.curve) for each in store.attempts("tiny")] == [3, 3, 3, 3]

    later = Driver(study, store, tmp_path)  # another process counts anew, from what it finds
    assert later.next().trial.trial == trial
    later.ledger.open_attempt(trial, number=5, environment={}, protocol={}, inherited=[point(1, 11.0)])
    assert [later.ledger.interrupted(trial, "memory: none left") for _ in range(2)] == [2.0, 4.0]


def test_a_cell_with_an_interrupted_trial_is_not_asked_and_the_others_are(store: MemoryStore, tmp_path: Path) -> None:
    """The search would know less than undisturbed: with one trial at a time it would ask something else."""
    driver = Driver(make_study(search={"configurations": 3}), store, tmp_path)
    trial = open_first(driver)
    assert trial == "vsepp.lmh-c000-s7"
    driver.ledger.interrupted(trial, "storage: away")
    others = [driver.run(driver.next(), 10.0) for _ in range(3)]
    assert others == [f"vsepp.lseh-c00{number}-s7" for number in range(3)]
    assert driver.next().trial.trial == "vsepp.lseh-c000-s8", "the other cell is even confirmed meanwhile"
    driver.now += 2.0
    assert driver.next().trial.trial == trial


def test_an_interrupted_study_asks_what_an_undisturbed_one_asks(tmp_path: Path) -> None:
    study = make_study(losses=[{"name": "lmh"}], search={"configurations": 8}, seeds=[7])
    asked: dict[str, dict[str, Any]] = {}
    for name, is_disturbed in (("undisturbed", False), ("disturbed", True)):
        folder = tmp_path / name
        folder.mkdir()
        store = MemoryStore(None)
        driver = Driver(study, store, folder)
        while (assignment := driver.ledger.next()) not in ("done", "wait"):
            assert isinstance(assignment, Assignment)
            m_recall = 100 * float(assignment.configuration["loss.margin"])
            if is_disturbed:
                driver.ledger.open_attempt(
                    assignment.trial.trial, number=1, environment={}, protocol={}, inherited=[]
                )
                driver = Driver(study, store, folder)  # killed in the middle of every trial
                assignment = driver.next()
                driver.run(assignment, m_recall, number=2)
                driver = Driver(study, store, folder)  # and between trials
            else:
                driver.run(assignment, m_recall)
        asked[name] = {trial: dict(each.assignment.configuration) for trial, each in driver.ledger.trials.items()}
    assert len(asked["undisturbed"]) == 8
    assert asked["disturbed"] == asked["undisturbed"]


class FailingSearch:
    """Stands between ledger and search: raises StorageError while `is_away`."""

    def __init__(self, search: ConfigurationSearch) -> None:
        self.search, self.is_away = search, False

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.is_away:
                raise StorageError("search.storage: locked")
            return getattr(self.search, name)(*args, **kwargs)

        return call


def test_a_search_that_does_not_answer_delays_the_next_trial_and_loses_no_outcome(
    store: MemoryStore, tmp_path: Path
) -> None:
    driver = Driver(make_study(seeds=[7]), store, tmp_path)
    search = FailingSearch(driver.ledger._search)
    driver.ledger._search = search  # type: ignore[assignment]
    first = driver.next()
    search.is_away = True
    driver.run(first, 10.0)
    assert driver.ledger.next() == "wait"
    assert driver.ledger.search_outage == "search.storage: locked"
    search.is_away = False
    assert driver.ledger.next() == "wait", "it is not asked all the time"
    driver.now += 5.0
    assert driver.next().trial.cell == "vsepp.lseh"
    assert driver.ledger.search_outage is None
    assert not search.search.suggestions("vsepp.lmh")[0].is_open


def test_a_search_that_stays_away_ends_the_study_interrupted(store: MemoryStore, tmp_path: Path) -> None:
    driver = Driver(make_study(), store, tmp_path)
    search = FailingSearch(driver.ledger._search)
    driver.ledger._search, search.is_away = search, True  # type: ignore[assignment]
    answers = []
    for _ in range(130):
        answers.append(driver.ledger.next())
        driver.now += 5.0
    assert answers[0] == "wait"
    assert answers[-1] == "done"
    assert driver.ledger.has_work()


def test_work_that_a_crash_lost_is_not_charged_to_the_budget(store: MemoryStore, tmp_path: Path) -> None:
    study = make_study(
        losses=[{"name": "lmh"}], budget={"epochs_per_cell": 3}, search={"configurations": 5}, seeds=[7],
        training={"epochs": 2},
    )
    driver = Driver(study, store, tmp_path)
    for _ in range(3):
        trial = driver.next().trial.trial
        driver.ledger.open_attempt(trial, number=1, environment={}, protocol={}, inherited=[])
        driver.ledger.record_point(trial, point(1, 11.0))
        driver.ledger.close(trial, "pruned", summary={"epochs": 1.0, "wasted_epochs": 2.0})
    assert driver.ledger.next() == "done"


def test_the_winner_is_the_best_finished_trial_even_if_a_stopped_one_was_better(
    store: MemoryStore, tmp_path: Path
) -> None:
    driver = Driver(make_study(losses=[{"name": "lmh"}], search={"configurations": 3}), store, tmp_path)
    for m_recall, status in ((50.0, "pruned"), (30.0, "finished"), (90.0, "failed"), (20.0, "finished")):
        driver.run(driver.next(), m_recall, status=status)
    assert driver.next().number == 1
