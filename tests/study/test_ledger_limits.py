"""Where the ledger stops asking, waiting and repeating, to the second and to the trial, and what it records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from driven_ledgers import begin, point, run_through
from logged_studies import begun
from tiny_studies import tiny_study

from vsetune.config.study.cells import resolve_cells
from vsetune.errors import StorageError
from vsetune.records.events import TARGET_REACHED
from vsetune.records.writer import StudyWriter
from vsetune.study.cell_budget import MOST_TRIALS
from vsetune.study.ledger import StudyLedger
from vsetune.study.trials import PlannedTrial, pause_after

FIRST = "vsepp.lmh-c000-s7"


class OfflineWriter(StudyWriter):
    """Keeps a study in memory. While it `is_away`, nothing that is added counts, as with a log on a full disk."""

    is_away = False

    def settle(self, within_s: float = 60.0) -> None:
        if self.is_away:
            raise StorageError("study.log: cannot be written")


class Study:
    """A study of one cell in memory, with a clock that is set by hand."""

    def __init__(self, **changes: Any) -> None:
        losses = changes.pop("losses", [])
        spec = tiny_study(*losses, **{"search": {"configurations": 3, "at_once": 3}, "seeds": [7]} | changes)
        self.now = 0.0
        self.writer = OfflineWriter()
        begun(self.writer, spec)
        self.ledger = StudyLedger(spec, resolve_cells(spec, where="test"), self.writer, clock=lambda: self.now)

    def next(self) -> str:
        """The next trial, or `wait` or `done`."""
        answer = self.ledger.next()
        return answer.name if isinstance(answer, PlannedTrial) else answer

    def ended(self, cell: str = "vsepp.lmh") -> list[tuple[int, str]]:
        """Trials that have ended for the sampler: number and state."""
        return [(each.number, each.state.name) for each in self.ledger.history(cell) if each.state.is_finished()]

    def restarted(self) -> StudyLedger:
        """The ledger of another process on the same log, not recovered yet."""
        cells = [each.cell for each in self.ledger.cells.values()]
        return StudyLedger(self.ledger.study, cells, self.writer)

    def open(self, trial: str, number: int = 1) -> None:
        begin(self.ledger, trial, number=number)

    def finish(self, trial: str, **summary: float) -> None:
        run_through(self.ledger, trial, [(1, 20.0)], **summary)


def test_pauses_double_up_to_a_minute() -> None:
    assert [pause_after(count) for count in (1, 2, 5, 6, 7, 40)] == [2, 4, 32, 60, 60, 60]


def test_an_attempt_is_recorded_with_everything_that_is_known_when_it_starts() -> None:
    study = Study()
    trial = study.next()
    study.ledger.open_attempt(
        trial, number=3, environment={"torch": "2"}, protocol={"images": 5}, inherited=[point(1, 9.0)]
    )
    (record,) = study.writer.attempts()
    start, planned = record.start, study.ledger.trials[trial]
    assert (start.study, start.trial, start.cell, start.network, start.loss) == (
        "tiny", FIRST, "vsepp.lmh", "vsepp", "lmh")
    assert (start.number, start.seed, start.phase) == (3, 7, "search")
    assert (start.configuration, start.resolved) == (planned.configuration, planned.spec.to_plain())
    whole = study.ledger.study.training.epochs
    told = {"torch": "2", "drawn_by": "the papers' defaults", "budget_epochs": str(3 * whole),
            "budget_epochs_of_a_trial": str(whole)}
    assert (start.environment, start.protocol) == (told, {"images": 5})
    assert record.curve == ((1.0, 9.0),)


def test_an_end_keeps_summary_artifacts_and_error_and_counts_for_the_sampler() -> None:
    study = Study()
    trial = study.next()
    study.open(trial)
    study.ledger.record_point(trial, point(1, 30.0))
    study.ledger.record_point(trial, point(2, 25.0))
    study.ledger.close(
        trial, "failed", summary={"device_seconds": 4.0, "epochs": 1.5}, artifacts=[Path("best.safetensors")],
        error="loss is NaN",
    )
    (record,) = study.writer.attempts()
    assert (record.status, record.error) == ("failed", "loss is NaN")
    assert {name: record.summary[name] for name in ("device_seconds", "epochs", "best_m_recall")} == {
        "device_seconds": 4.0, "epochs": 1.5, "best_m_recall": 30.0}
    assert study.ledger.trials[trial].error == "loss is NaN"
    assert study.writer.state.attempts[record.attempt_id].files == (f"trials/{trial}/best.safetensors",)
    assert study.ended() == [(0, "PRUNED")]


def test_an_end_is_recorded_once() -> None:
    study = Study()
    trial = study.next()
    study.finish(trial)
    study.ledger.close(trial, "failed", summary={}, error="too late")
    assert study.ledger.interrupted(trial, "too late") is None
    assert [each.status for each in study.writer.attempts()] == ["finished"]
    assert study.ended() == [(0, "COMPLETE")]


def test_a_restart_lets_failed_trials_rest_unless_told_otherwise() -> None:
    study = Study(search={"configurations": 1})
    trial = study.next()
    study.ledger.close(trial, "failed", summary={}, error="loss is NaN")
    again = study.restarted()
    again.recover()
    assert again.next() == "done"
    retrying = study.restarted()
    retrying.recover(retry_failed=True)
    assert retrying.next() == retrying.trials[trial]


def test_an_interrupted_attempt_keeps_the_totals_it_last_reported() -> None:
    study = Study()
    silent, trial = study.next(), study.next()
    study.open(silent)
    study.open(trial)
    study.ledger.record_point(trial, point(1, 10.0), summary={"device_seconds": 4.0})
    study.ledger.record_point(trial, point(2, 12.0), summary={"device_seconds": 8.0})
    for each in (silent, trial):
        study.ledger.interrupted(each, "worker died")
    first, second = study.writer.attempts()
    assert (first.status, first.summary, first.error) == ("killed", {"epochs": 0.0}, "worker died")
    assert second.summary["device_seconds"] == 8.0
    assert (second.summary["epochs"], second.summary["best_m_recall"]) == (2.0, 12.0)


def test_a_trial_interrupted_before_it_opened_leaves_no_attempt_and_is_handed_out_again() -> None:
    study = Study()
    trial = study.next()
    assert study.ledger.interrupted(trial, "no worker") == 2.0
    assert study.writer.attempts() == []
    assert study.ledger.trials[trial].error == "no worker"
    study.now = 1.9
    assert study.next() == "wait"
    study.now = 2.0
    assert study.next() == trial


@pytest.mark.parametrize("steps", [
    [(0.0, "wait"), (600.0, "wait"), (604.9, "back: wait"), (605.0, "done")],
    [(0.0, "wait"), (600.5, "done")],
    [(0.0, "wait"), (300.0, "wait"), (590.0, "wait"), (599.0, f"back: {FIRST}"), (700.0, "wait"), (1299.0, "wait")],
], ids=["asked every five seconds", "for ten minutes", "counted anew after an answer"])
def test_a_silent_log_is_waited_for_ten_minutes(steps: list[tuple[float, str]]) -> None:
    """steps: seconds and the answer then. back: while the log accepts events."""
    study = Study()
    for study.now, answer in steps:
        study.writer.is_away = not answer.startswith("back: ")
        assert study.next() == answer.removeprefix("back: ")
    assert study.ledger.has_work()


def test_an_outcome_that_the_log_cannot_take_counts_at_once_and_the_next_trial_waits_for_it() -> None:
    study = Study(search={"configurations": 3, "at_once": 1})
    first = study.next()
    study.writer.is_away = True
    study.finish(first)
    assert study.ended() == [(0, "COMPLETE")]
    assert study.next() == "wait"
    assert study.ledger.outage == "study.log: cannot be written"
    study.writer.is_away, study.now = False, 5.0
    assert study.next() == FIRST.replace("c000", "c001")
    assert study.ledger.outage is None
    assert len(study.writer.attempts()) == 1


def test_a_trial_that_waits_for_the_log_is_not_handed_out_where_its_cell_has_no_place() -> None:
    study = Study(losses=[{"name": "lmh"}, {"name": "lseh"}], search={"configurations": 1})
    study.writer.is_away = True
    assert study.next() == "wait"
    study.writer.is_away, study.now = False, 5.0
    other = study.ledger.next({"vsepp.lseh"})
    assert isinstance(other, PlannedTrial)
    assert other.name == "vsepp.lseh-c000-s7"
    assert study.ledger.next({"vsepp.lseh"}) == "wait"
    assert study.next() == FIRST


def test_a_study_with_a_running_trial_does_not_end_because_the_log_is_silent_and_hears_it_later() -> None:
    study = Study()
    trial = study.next()
    study.open(trial)
    study.writer.is_away = True
    for study.now in (0.0, 700.0):
        assert study.next() == "wait"
    study.writer.is_away, study.now = False, 705.0
    assert study.next() == FIRST.replace("c000", "c001")
    study.open(FIRST.replace("c000", "c001"))
    study.writer.is_away = True
    for study.now in (710.0, 1500.0):
        assert study.next() == "wait"
    for each in (trial, FIRST.replace("c000", "c001")):
        study.ledger.close(each, "finished", summary={})
    study.now = 1505.0
    assert study.next() == "done"


@pytest.mark.parametrize(("budget", "trials"), [
    ({"epochs_per_cell": 2}, 2), ({"epochs_per_cell": 2.5}, 3), ({"epochs_per_cell": 1.5}, 2),
    ({"device_seconds_per_cell": 20}, 2), ({"device_seconds_per_cell": 20.5}, 3),
    ({"epochs_per_cell": 9, "device_seconds_per_cell": 10}, 1),
    ({"epochs_per_cell": 1, "device_seconds_per_cell": 90}, 1),
])
def test_a_cell_asks_until_either_budget_is_used_up(budget: dict[str, float], trials: int) -> None:
    """Every trial takes one epoch and ten device-seconds."""
    study = Study(budget=budget, search={"configurations": 4}, training={"epochs": 1})
    asked = 0
    while (trial := study.next()) != "done":
        study.finish(trial, epochs=1.0, device_seconds=10.0)
        asked += 1
    assert asked == trials


def stop(study: Study, trial: str, epochs: int) -> None:
    curve = [(epoch, 20.0) for epoch in range(1, epochs + 1)]
    run_through(study.ledger, trial, curve, status="pruned", error="patience: below the median", epochs=epochs)


def test_what_stopped_trials_leave_over_goes_to_further_configurations() -> None:
    study = Study(search={"configurations": 3}, training={"epochs": 4})
    trained = 0
    while (trial := study.next()) != "done":
        stop(study, trial, 2)
        trained += 2
    assert (trained, study.ledger.promised()) == (12, 6)


def test_a_failed_trial_has_had_its_chance_even_where_it_never_opened() -> None:
    study = Study(search={"configurations": 2})
    for _ in range(2):
        study.ledger.close(study.next(), "failed", summary={}, error="its process died")
    assert study.next() == "done"
    assert [(each.status, each.error, each.start.number) for each in study.writer.attempts()] == 2 * [
        ("failed", "its process died", 1)]


def test_running_trials_are_accounted_for_whole() -> None:
    study = Study(search={"configurations": 3, "at_once": 9}, training={"epochs": 4})
    running = [study.next(), study.next(), study.next()]
    assert study.next() == "wait"
    stop(study, running[0], 1)
    assert study.next() == "vsepp.lmh-c003-s7", "three of four epochs came back, to half a trial"
    assert study.next() == "wait"


def test_a_search_that_stops_every_trial_as_soon_as_its_rule_may_trains_its_budget() -> None:
    rule = {"kind": "patience", "grace_epochs": 1}
    study = Study(search={"configurations": 2, "sampler": "random"}, training={"epochs": 100}, scheduler=rule)
    asked = 0
    while (trial := study.next()) != "done":
        stop(study, trial, 1)
        asked += 1
    assert asked == 151, "of 200 epochs less than half a training is left"


def test_a_search_whose_trials_reach_their_target_at_once_comes_to_an_end() -> None:
    study = Study(search={"configurations": 2}, training={"epochs": 4})
    asked = 0
    while (trial := study.next()) != "done":
        run_through(study.ledger, trial, [(0.01, 60.0)], error=f"{TARGET_REACHED}: 50")
        asked += 1
    assert asked == MOST_TRIALS * 2


@pytest.mark.parametrize(("search", "places", "wave", "then"), [
    ({"configurations": 12}, 0, 4, 2), ({"configurations": 3}, 64, 2, 2), ({"configurations": 60}, 1, 10, 2),
    ({"configurations": 12}, 64, 4, 3), ({"configurations": 60}, 7, 10, 7),
    ({"configurations": 12, "at_once": 5}, 64, 5, 5), ({"configurations": 12, "at_once": 1}, 64, 1, 1),
])
def test_a_search_that_learns_starts_side_by_side_and_goes_on_at_as_many_places_as_a_quarter_of_its_budget(
    search: dict[str, Any], places: int, wave: int, then: int
) -> None:
    study = Study(search=search, training={"epochs": 1})
    study.ledger.places = places
    asked = []
    while (trial := study.next()) != "wait":
        asked.append(trial)
    assert len(asked) == wave
    most = 0
    for _ in range(wave + 12):
        if asked:
            study.finish(asked.pop(0))
        while (trial := study.next()) not in ("wait", "done"):
            asked.append(trial)
            most = max(most, len(asked))
    assert most == then


def test_cells_that_are_searched_share_the_places_and_one_that_is_over_leaves_its_own_to_the_others() -> None:
    study = Study(
        losses=[{"name": "lmh"}, {"name": "lsh"}], search={"configurations": 40, "at_once": None},
        training={"epochs": 1}, budget={"epochs_per_cell": 20},
    )
    study.ledger.places = 8
    running: dict[str, list[str]] = {"lmh": [], "lsh": []}

    def fill() -> dict[str, int]:
        while (trial := study.next()) not in ("wait", "done"):
            running[trial.split(".")[1].split("-")[0]].append(trial)
        return {loss: len(trials) for loss, trials in running.items()}

    assert fill() == {"lmh": 10, "lsh": 10}, "both start side by side"
    for loss in running:
        while len(running[loss]) > 1:
            study.finish(running[loss].pop())
    assert fill() == {"lmh": 4, "lsh": 4}
    while running["lmh"]:
        study.finish(running["lmh"].pop())
        while (trial := study.next()) != "wait":
            running[trial.split(".")[1].split("-")[0]].append(trial)
    assert len(running["lsh"]) == 8, "the search of lmh is over"


def test_a_search_that_learns_nothing_runs_all_at_once() -> None:
    study = Study(search={"configurations": 12, "sampler": "random"}, training={"epochs": 1})
    assert [study.next() for _ in range(13)].index("wait") == 12


def test_a_cell_without_anything_to_search_has_one_configuration_and_every_seed() -> None:
    study = Study(losses=[{"name": "lmh", "search": "none"}], search={"configurations": 4}, seeds=[7, 8, 9])
    first = study.next()
    assert study.ledger.promised() == 3
    study.finish(first)
    seeds = [study.next(), study.next()]
    assert [first, *seeds, study.next()] == [f"vsepp.lmh-c000-s{seed}" for seed in (7, 8, 9)] + ["wait"]
    for trial in seeds:
        study.finish(trial)
    assert study.next() == "done"
    assert study.ended() == [(0, "COMPLETE")], "confirmations are not the search's business"


def test_ctrl_c_ends_running_attempts_and_no_others() -> None:
    study = Study()
    first, second, third = study.next(), study.next(), study.next()
    study.finish(first)
    study.open(second)
    study.ledger.record_point(second, point(1, 11.0), summary={"device_seconds": 3.0})
    assert study.ledger.interrupt() == [second]
    finished, killed = study.writer.attempts()
    assert (finished.status, killed.status, killed.error) == ("finished", "killed", "the study was interrupted")
    assert killed.summary["device_seconds"] == 3.0
    assert study.ledger.trials[third].status == "waiting"


MISSING = "storage: FileNotFoundError at my_loss/loss.py:31 in step {step}: [Errno 2] No such file or directory: 'x'"


def interrupted_in_step(study: Study, trial: str, step: int) -> float | None:
    study.open(trial, study.ledger.trials[trial].attempts.number + 1)
    return study.ledger.interrupted(trial, MISSING.format(step=step))


def test_what_the_code_raises_at_the_same_place_twice_fails_the_trial() -> None:
    study = Study(search={"configurations": 1})
    trial = study.next()
    assert interrupted_in_step(study, trial, 40) == 2.0
    study.now = 2.0
    assert study.next() == trial
    assert interrupted_in_step(study, trial, 40) is None
    failed = study.ledger.trials[trial]
    assert (failed.status, failed.is_left_open) == ("failed", False)
    assert failed.error == f"{MISSING.format(step=40)} (twice at this place, so it is no outage)"
    assert study.ended() == [(0, "PRUNED")]
    assert study.next() == "done"


@pytest.mark.parametrize("opens", [True, False])
def test_the_first_time_is_known_to_a_later_driver(opens: bool) -> None:
    study = Study(search={"configurations": 1})
    trial = study.next()
    for _ in range(2):
        if opens:
            study.open(trial, study.ledger.trials[trial].attempts.number + 1)
        study.ledger.interrupted(trial, MISSING.format(step=40))
        study.ledger = study.restarted()
        study.ledger.recover()
        assert study.next() == ("done" if study.ledger.trials[trial].is_closed else trial)
    assert [each.status for each in study.writer.attempts()] == ["killed", "failed"]


def test_the_same_error_at_another_step_is_an_interruption() -> None:
    study = Study(search={"configurations": 1})
    trial = study.next()
    interrupted_in_step(study, trial, 40)
    assert interrupted_in_step(study, trial, 41) == 4.0


def test_an_outage_leaves_a_trial_open_however_often_it_comes_at_one_place() -> None:
    study = Study(search={"configurations": 1})
    trial = study.next()
    for _ in range(study.ledger.study.resources.retries + 1):
        study.open(trial, study.ledger.trials[trial].attempts.number + 1)
        study.ledger.interrupted(trial, "storage: s3://bucket/shard-3.tar: does not answer")
    assert (study.ledger.trials[trial].is_left_open, study.ledger.trials[trial].is_closed) == (True, False)
