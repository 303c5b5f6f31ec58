"""The losses of the first steps: those of an attempt, exact, and a failing cell is its own problem."""

from __future__ import annotations

from pathlib import Path

import pytest
from night_files import tiny_spec
from rich.console import Console

from vsetune.config.study.cells import build_trial
from vsetune.config.study.training import TrialSpec
from vsetune.data.batches.batch import Batch
from vsetune.nightly.first_steps import first_steps, take_first_steps
from vsetune.nightly.night import STEP_TIME, STEP_WALL_TIME
from vsetune.study.preparation import PreparedStudy, prepare_spec
from vsetune.training.attempt import Attempt
from vsetune.training.calibration import Calibration
from vsetune.training.step import Learner, StepResult


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> PreparedStudy:
    folder = tmp_path_factory.mktemp("data")
    scenes = {"path": str(folder / "scenes"), "scenes": {"train": 12, "validation": 8, "test": 8}}
    spec = tiny_spec(data=scenes, losses=[{"name": "lmh"}, {"name": "info_nce"}])
    return prepare_spec(spec.study("nightly", [0]), Console(quiet=True), where="here")


def test_they_are_those_of_an_attempt_with_this_seed(prepared: PreparedStudy, tmp_path: Path) -> None:
    trial = build_trial(prepared.spec, prepared.cells[0], {}, trial="first-steps", seed=3)
    point = Attempt(trial, tmp_path, device="cpu", threads=1).advance()  # its first validation: the epoch of two steps
    losses = first_steps(trial, 2).losses
    assert point.metrics["train_loss"] == pytest.approx(sum(losses) / 2)
    assert first_steps(trial, 2, timed=4).losses == losses
    assert len(first_steps(trial, 100).losses) == 4
    assert first_steps(trial.model_copy(update={"seed": 4}), 2).losses != losses


def test_a_phase_that_begins_within_an_epoch_begins_as_in_an_attempt(
    prepared: PreparedStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its loss has other settings, and the warm-up epoch is over."""
    plain = build_trial(prepared.spec, prepared.cells[0], {}, trial="first-steps", seed=3).to_plain()
    plain["loss"]["warmup_epochs"] = 1
    plain["training"] |= {"epochs": 2, "phases": [{"epochs": 1.5}, {"loss": {"margin": 0.4}}]}
    trial, step = TrialSpec.model_validate(plain), Learner.step
    seen: list[float] = []

    def noted(learner: Learner, batch: Batch, drawn: Batch | None = None) -> StepResult:
        result = step(learner, batch, drawn)
        seen.append(result.loss.item())
        return result

    monkeypatch.setattr(Learner, "step", noted)
    attempt = Attempt(trial, tmp_path, device="cpu", threads=1)
    while not attempt.is_finished:
        attempt.advance()
    own = list(seen)
    assert first_steps(trial, 100).losses == own
    assert len(own) == 4


def test_steps_are_timed_after_the_first_ones_however_few_there_are(prepared: PreparedStudy) -> None:
    trial = build_trial(prepared.spec, prepared.cells[0], {}, trial="first-steps", seed=3)  # four steps long
    for name in (STEP_TIME, STEP_WALL_TIME):
        assert [len(first_steps(trial, 2, timed=timed).times[name]) for timed in (0, 2, 3, 100)] == [0, 1, 1, 1]
        assert all(time > 0 for time in first_steps(trial, 2, timed=100).times[name])


def test_a_step_is_timed_in_calibration_steps_beside_it(
    prepared: PreparedStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = build_trial(prepared.spec, prepared.cells[0], {}, trial="first-steps", seed=3)
    seconds, beside = iter(range(1000)), iter([Calibration(0.1, 0.1), Calibration(0.2, 0.2)])
    monkeypatch.setattr("vsetune.training.loop.working_clock", lambda device: lambda: next(seconds) * 0.3)
    monkeypatch.setattr("vsetune.nightly.first_steps.step_timer", lambda: lambda: next(beside))
    assert first_steps(trial, 2, timed=4).times[STEP_TIME] == pytest.approx([2.0])


def test_a_step_that_waits_is_slower_by_the_wall_clock_and_not_in_processor_time(
    prepared: PreparedStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = build_trial(prepared.spec, prepared.cells[0], {}, trial="first-steps", seed=3)
    working, beside = iter(range(1000)), iter([Calibration(1.0, 1.0), Calibration(1.0, 1.0)])
    passed = iter(range(1000))
    monkeypatch.setattr("vsetune.training.loop.working_clock", lambda device: lambda: next(working))
    monkeypatch.setattr("vsetune.training.loop.wall_clock", lambda: next(passed) * 0.65)  # twice a step
    monkeypatch.setattr("vsetune.nightly.first_steps.step_timer", lambda: lambda: next(beside))
    times = first_steps(trial, 2, timed=4).times
    assert (times[STEP_TIME], times[STEP_WALL_TIME]) == ([1.0], pytest.approx([1.3]))


def test_a_process_of_its_own_gives_them_exactly(prepared: PreparedStudy) -> None:
    taken = take_first_steps(prepared.spec, prepared.cells, steps=3, seed=3)
    trials = {cell.name: build_trial(prepared.spec, cell, {}, trial="x", seed=3) for cell in prepared.cells}
    assert {name: each["losses"] for name, each in taken.items()} == {
        name: first_steps(trial, 3).losses for name, trial in trials.items()
    }
    assert all(each.keys() == {"losses", "recalls", STEP_TIME, STEP_WALL_TIME} for each in taken.values())


def test_a_cell_that_fails_is_a_line_and_the_others_are_taken(prepared: PreparedStudy) -> None:
    cells = list(prepared.cells)
    broken = {**cells[1].training, "batch_size": 1000}
    cells[1] = type(cells[1])(**{**cells[1].__dict__, "training": broken})
    taken = take_first_steps(prepared.spec, cells, steps=2, seed=0)
    assert len(taken["vsepp.lmh"]["losses"]) == 2
    assert taken["vsepp.info_nce"].keys() == {"problem"}
    assert "batch_size: got 1000" in taken["vsepp.info_nce"]["problem"]
    assert "\n" not in taken["vsepp.info_nce"]["problem"]


def test_recalls_after_the_first_steps_repeat_to_the_last_bit_and_are_those_of_a_validation(
    prepared: PreparedStudy, tmp_path: Path
) -> None:
    trial = build_trial(prepared.spec, prepared.cells[0], {}, trial="first-steps", seed=3)
    point = Attempt(trial, tmp_path, device="cpu", threads=1).advance()  # of two steps, then a validation
    found = first_steps(trial, 2)
    assert found.recalls == first_steps(trial, 2).recalls
    assert found.recalls == {name: point.metrics[name] for name in found.recalls if name != "m_recall"} | {
        "m_recall": point.m_recall
    }
    assert first_steps(trial, 0, timed=4).recalls == {}
    taken = take_first_steps(prepared.spec, prepared.cells[:1], steps=2, seed=3)
    assert taken[prepared.cells[0].name]["recalls"].keys() == found.recalls.keys()
