"""The losses of the first steps: those of an attempt, exact, and a failing cell is its own problem."""

from __future__ import annotations

from pathlib import Path

import pytest
from night_files import tiny_spec
from rich.console import Console

from vsetune.config.study.cells import build_trial
from vsetune.config.study.training import TrialSpec
from vsetune.data.batches.batch import Batch
from vsetune.nightly.first_steps import first_steps, rounds, take_first_steps
from vsetune.nightly.night import STEP_TIME, STEP_WALL_TIME
from vsetune.study.preparation import PreparedStudy, prepare_spec
from vsetune.training.attempt import TrainingAttempt
from vsetune.training.calibration import Calibration
from vsetune.training.step import Learner, StepResult


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> PreparedStudy:
    folder = tmp_path_factory.mktemp("data")
    scenes = {"path": str(folder / "scenes"), "scenes": {"train": 12, "validation": 8, "test": 8}}
    spec = tiny_spec(data=scenes, losses=[{"name": "lmh"}, {"name": "info_nce"}])
    return prepare_spec(spec.study("nightly", [0]), Console(quiet=True), where="here")


def test_they_are_those_of_an_attempt_with_this_seed_also_through_a_phase_that_begins_within_an_epoch(
    prepared: PreparedStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second phase has other settings of the loss, and the warm-up epoch is over."""
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
    attempt = TrainingAttempt(trial, tmp_path, device="cpu", threads=1)
    while not attempt.is_finished:
        attempt.advance()
    own = list(seen)
    assert len(own) == 4
    assert first_steps(trial, 100)["losses"] == own
    assert first_steps(trial, 2, timed=4)["losses"] == own[:2]
    assert first_steps(trial.model_copy(update={"seed": 4}), 2)["losses"] != own[:2]


def test_steps_are_timed_in_calibration_steps_after_the_first_ones_however_few_there_are(
    prepared: PreparedStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that waits is slower by the wall clock and not in processor time."""
    trial = build_trial(prepared.spec, prepared.cells[0], {}, trial="first-steps", seed=3)  # four steps long
    assert first_steps(trial, 2).keys() == {"losses", "recalls"}
    for timed in (2, 3, 100):
        assert all(first_steps(trial, 2, timed=timed)[name] > 0 for name in (STEP_TIME, STEP_WALL_TIME))
    working, passed = iter(range(1000)), iter(range(1000))
    beside = iter([Calibration(0.5, 1.0), Calibration(1.5, 1.0)])
    monkeypatch.setattr("vsetune.training.loop.working_clock", lambda device: lambda: next(working))
    monkeypatch.setattr("vsetune.training.loop.wall_clock", lambda: next(passed) * 0.65)  # twice a step
    monkeypatch.setattr("vsetune.nightly.first_steps.step_timer", lambda: lambda: next(beside))
    found = first_steps(trial, 2, timed=4)
    assert (found[STEP_TIME], found[STEP_WALL_TIME]) == (1.0, pytest.approx(1.3))


def test_a_process_of_its_own_gives_them_exactly_and_a_cell_that_fails_is_a_line(prepared: PreparedStudy) -> None:
    cells = list(prepared.cells)
    broken = {**cells[1].training, "batch_size": 1000}
    cells[1] = type(cells[1])(**{**cells[1].__dict__, "training": broken})
    taken = take_first_steps(prepared.spec, cells, steps=3, seed=3)
    here = first_steps(build_trial(prepared.spec, cells[0], {}, trial="x", seed=3), 3)
    assert taken["vsepp.lmh"].keys() == {"losses", "recalls", STEP_TIME, STEP_WALL_TIME}
    assert taken["vsepp.lmh"]["losses"] == here["losses"]
    assert taken["vsepp.info_nce"].keys() == {"problem"}
    assert "batch_size: got 1000" in taken["vsepp.info_nce"]["problem"]
    assert "\n" not in taken["vsepp.info_nce"]["problem"]


def test_the_fastest_round_of_a_cell_counts(prepared: PreparedStudy, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([2.0, 1.0, 3.0])

    def taken(trial: TrialSpec, steps: int, *, timed: int) -> dict[str, object]:
        return {"losses": [0.5] * steps, "recalls": {}, **dict.fromkeys((STEP_TIME, STEP_WALL_TIME), next(times))}

    monkeypatch.setattr("vsetune.nightly.first_steps.first_steps", taken)
    plain = build_trial(prepared.spec, prepared.cells[0], {}, trial="x", seed=3).to_plain()
    assert rounds([plain], 2) == {
        "vsepp.lmh": {"losses": [0.5, 0.5], "recalls": {}, STEP_TIME: 1.0, STEP_WALL_TIME: 1.0}
    }


def test_recalls_after_the_first_steps_are_those_of_a_validation(prepared: PreparedStudy, tmp_path: Path) -> None:
    trial = build_trial(prepared.spec, prepared.cells[0], {}, trial="first-steps", seed=3)
    point = TrainingAttempt(trial, tmp_path, device="cpu", threads=1).advance()  # of two steps, then a validation
    found = first_steps(trial, 2)["recalls"]
    assert found == {name: point.metrics[name] for name in found if name != "m_recall"} | {"m_recall": point.m_recall}
    assert first_steps(trial, 0, timed=4)["recalls"] == {}
