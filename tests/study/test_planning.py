"""The arithmetic of a plan against cases worked by hand; nothing is trained here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from refusals import refused

from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.cells import resolve_cells
from vsetune.config.study.resources import Needs
from vsetune.config.study.study_spec import SearchSpec, StudySpec
from vsetune.config.study.training import TrainingSpec
from vsetune.study.node_types import NodeType, require_places, this_machine
from vsetune.study.planning.cell_measuring import measured
from vsetune.study.planning.cell_times import CellTimes
from vsetune.study.planning.planned_study import (
    REPORT_S,
    STUDY_START_S,
    WORKER_BYTES,
    StudyPlan,
    plan_of_times,
    usd_per_hour,
    validations_of,
    waves_of,
)

TIMES = CellTimes(
    steps_per_epoch=100, start=2.0, step=0.1, steps_timed=40, worked_share=0.9, validation=3.0, test=4.0,
    scored_share=1.0, peak_memory_bytes=2**30,
)
TRIAL = 2 + 200 * 0.1 + 4 * (3 + REPORT_S) + 4
"""Seconds of two epochs with four validations."""
TWO_CORES = NodeType("pair", {"CPU": 2.0, "memory": 2.0**34}, most=1, usd_per_hour=0.4)


def planned(times: CellTimes | str = TIMES, types: NodeType = TWO_CORES, **changes: Any) -> StudyPlan:
    plain: dict[str, Any] = {
        "study": "planned", "data": {"path": "somewhere"}, "networks": [{"name": "vsepp"}], "losses": [{"name": "lmh"}],
        "training": {"epochs": 2, "validate_every_steps": 50}, "search": {"configurations": 3}, "seeds": [0, 1],
    }
    study = parse_spec(plain | changes, StudySpec, where="here")
    cells = resolve_cells(study, where="here")
    return plan_of_times(study, cells, {cell.name: times for cell in cells}, [types])


def test_a_plan_counts_trials_epochs_hours_money_and_memory() -> None:
    plan = planned()
    (cell,) = plan.cells
    assert (plan.trials, plan.epochs, plan.workers, plan.remarks) == (4, 8.0, 2, [])
    assert (cell.searches, cell.confirmations, cell.validations) == (3, 1, 4)
    assert cell.trial_seconds == pytest.approx(TRIAL)
    assert plan.device_hours == pytest.approx(4 * TRIAL / 3600)
    assert plan.usd == pytest.approx(plan.device_hours * 0.2)
    # two at a time, the third alone, then the confirmation
    assert plan.hours == pytest.approx((STUDY_START_S + 3 * TRIAL) / 3600)
    assert cell.memory_bytes == 2**30 + WORKER_BYTES


def test_repeats_of_a_search_run_beside_each_other_on_places_that_are_never_empty() -> None:
    plan = planned(search={"configurations": 3, "repeats": 3}, losses=[{"name": "lmh"}, {"name": "lsh", "search": {}}])
    searched, fixed = plan.cells
    assert (searched.repeats, searched.searches, searched.confirmations) == (3, 9, 3)
    assert (fixed.repeats, fixed.searches, fixed.confirmations) == (1, 1, 5)
    assert plan.hours == pytest.approx((STUDY_START_S + 18 * TRIAL / 2) / 3600)


@pytest.mark.parametrize(("training", "count"), [
    ({"epochs": 1.5, "validate_every_steps": 50}, 3), ({"epochs": 2, "validate_every_steps": 70}, 4),
    ({"epochs": 1.5}, 2), ({"epochs": 0}, 1),
])
def test_validations_are_those_of_a_whole_trial(training: dict[str, Any], count: int) -> None:
    assert validations_of(TrainingSpec.model_validate(training), 100) == count


def test_a_search_that_learns_runs_a_few_trials_at_a_time() -> None:
    search = SearchSpec(configurations=24)
    start = search.start_trials
    assert waves_of(search, 24, 64, 1)[0] == start
    assert set(waves_of(search, 24, 64, 1)[1:-1]) == {6}  # a quarter of the budget
    assert set(waves_of(search, 24, 64, 16)[1:]) == {4, 24 - start - 4 * ((24 - start) // 4)} - {0}
    assert waves_of(search, 3, 1, 1) == [1, 1, 1]


@pytest.mark.parametrize(("budget", "trials", "remark"), [
    ({"epochs_per_cell": 6.0}, 3, None), ({"epochs_per_cell": 0.1}, 1, "since a begun trial is finished"),
    ({"epochs_per_cell": 5.0}, 3, "its search is given 5 epochs and trains 6, since a begun trial is finished"),
    ({"epochs_per_cell": 4.8}, 2, "trains 4, since the rest is less than half a training"),
    ({"device_seconds_per_cell": 40}, 2, "is given 6 epochs and trains 4, since its device-seconds are used up"),
])
def test_a_budget_that_whole_trainings_do_not_meet_is_told_with_what_is_trained(
    budget: dict[str, float], trials: int, remark: str | None
) -> None:
    plan = planned(budget=budget)
    assert plan.cells[0].searches == trials
    assert len(plan.remarks) == bool(remark)
    assert all(line.startswith("cell vsepp.lmh: its search") and str(remark) in line for line in plan.remarks)


def test_trials_that_do_not_fit_are_told_with_the_setting_that_mends_it() -> None:
    (told,) = planned(resources={"memory_gib": 0.5}).remarks
    assert "cell vsepp.lmh: a trial holds 1.2 GiB, and 2 at a time have room for 0.5 GiB each" in told
    assert "set resources.memory_gib: 1.3, or" in told
    assert planned(resources={"memory_gib": 1.3}).remarks == []
    large = replace(TIMES, peak_memory_bytes=2**50)
    assert "set resources.memory_gib: " in planned(large, this_machine()).remarks[0]
    assert planned(large).remarks == [], "the memory of other machines is unknown"
    assert planned(replace(TIMES, peak_memory_bytes=None), this_machine()).remarks == []


def test_what_was_measured_in_part_or_on_a_busy_machine_is_told() -> None:
    busy, part = planned(replace(TIMES, worked_share=0.5, scored_share=0.01)).remarks
    assert busy.startswith("steps computed in 50 % of their time and waited in the rest")
    assert "a validation was timed on 1 % of its pairs" in part


def test_a_place_costs_its_share_of_the_nodes_there_can_be() -> None:
    large = NodeType("large", {"CPU": 8.0}, most=3, usd_per_hour=0.8)
    assert usd_per_hour(Needs(), [TWO_CORES]) == pytest.approx(0.2)
    assert usd_per_hour(Needs(cpus=2), [TWO_CORES, large]) == pytest.approx((0.4 + 12 * 0.2) / 13)
    assert usd_per_hour(Needs(cpus=4), [replace(TWO_CORES, usd_per_hour=None), large]) == pytest.approx(0.4)
    assert usd_per_hour(Needs(), [replace(TWO_CORES, usd_per_hour=None), large]) is None
    with refused("VSE-S032", where="here", hint="do more"):
        require_places([Needs(), Needs(cpus=4)], [TWO_CORES], [], where="here", advice="do more")


def test_cells_that_could_not_be_measured_are_left_out_and_named() -> None:
    plan = planned("numeric: nan")
    assert (plan.trials, plan.cells, plan.usd, plan.unmeasured) == (0, [], None, {"vsepp.lmh": "numeric: nan"})


def test_a_cell_that_fails_is_a_problem_in_one_line(tmp_path: Path) -> None:
    trial = {
        "study": "s", "trial": "plan", "cell": "vsepp.lmh", "data": {"path": str(tmp_path / "nowhere")},
        "network": {"name": "vsepp"}, "loss": {"name": "lmh"}, "training": {}, "seed": 0,
    }
    wanted = {
        "trial": trial, "plugins": [], "seconds": 1.0, "threads": 1, "device": "cpu", "reading": {"source": "stream"},
    }
    found = measured(wanted, tmp_path)
    assert found["problem"].startswith("data: ")
    assert "nowhere" in found["problem"]
    assert "\n" not in found["problem"]
