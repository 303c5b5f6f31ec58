"""The arithmetic of a plan against cases worked by hand; nothing is trained here."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from refusals import refused

from vsetune.config.component_specs import PairCost
from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.cells import resolve_cells
from vsetune.config.study.resources import Needs
from vsetune.config.study.study_spec import SearchSpec, StudySpec
from vsetune.config.study.training import TrainingSpec
from vsetune.networks.encoded import Encoded
from vsetune.study.cell_budget import at_once
from vsetune.study.node_types import NodeType
from vsetune.study.planning.cell_measuring import measured, middles, score_some, spread
from vsetune.study.planning.cell_times import CellTimes, cheaper_cadence, checkpoints_of, trial_seconds, validations_of
from vsetune.study.planning.planned_study import (
    REPORT_S,
    STUDY_START_S,
    WORKER_BYTES,
    WORKER_START_S,
    CellWork,
    Schedule,
    plan_study,
    require_places,
    schedule,
    searched_trials,
    usd_per_hour,
)
from vsetune.training.checkpoint import CheckpointPace
from vsetune.training.schedule import next_validation, total_steps

TIMES = CellTimes(
    steps_per_epoch=100, first_start=5.0, start=2.0, opening=0.5, step=0.1, steps_timed=40, worked_share=0.9,
    validation=3.0, test=4.0, checkpoint=0.25, encoded_share=1.0, scored_share=1.0, peak_memory_bytes=2**30,
)
TWO_CORES = NodeType("pair", {"CPU": 2.0}, most=1, usd_per_hour=0.4)


def study(**changes: Any) -> StudySpec:
    plain: dict[str, Any] = {
        "study": "planned", "data": {"path": "somewhere"}, "networks": [{"name": "vsepp"}], "losses": [{"name": "lmh"}],
        "training": {"epochs": 2, "validate_every_steps": 50}, "search": {"configurations": 3}, "seeds": [0, 1],
    }
    return parse_spec(plain | changes, StudySpec, where="here")


def work(seconds: float, *, searches: int, confirmations: int = 0, cpus: int = 1) -> CellWork:
    return CellWork(Needs(cpus=cpus), 1.0, seconds, searches, confirmations)


@pytest.mark.parametrize("per_epoch", [1, 10, 12])
def test_validations_are_those_of_the_schedule(per_epoch: int) -> None:
    for epochs, every in itertools.product((0.13, 1, 1.5, 2.25, 7), (None, 1, 3, 4, 10, 12, 25, 1000)):
        training, step, count = TrainingSpec(epochs=epochs, validate_every_steps=every), 0, 0
        while step < total_steps(training, per_epoch):
            step, count = next_validation(training, step=step, steps_per_epoch=per_epoch), count + 1
        assert validations_of(training, per_epoch) == count, (epochs, every)
    assert validations_of(TrainingSpec(epochs=0), per_epoch) == 1


def test_a_trial_takes_its_start_steps_openings_validations_and_end() -> None:
    training = TrainingSpec(epochs=1.5, validate_every_steps=50)
    trial = trial_seconds(training, TIMES, report=0.75, checkpoint_share=1.0)
    assert (trial.start, trial.training) == (2.0, pytest.approx(150 * 0.1 + 2 * 0.5))
    assert (trial.validating, trial.recording, trial.ending) == (9.0, 3.0, 4.0)
    assert trial.total == pytest.approx(34.0)


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("apart", [0.25, 4.0, 100.0])
def test_checkpoints_are_those_of_the_pace(share: float, apart: float) -> None:
    for validations in (1, 2, 7, 40):
        passed, count = [0.0], 0
        pace = CheckpointPace(share, clock=partial(sum, passed))
        for number in range(1, validations + 1):
            passed.append(apart)
            if pace.is_due() or number == validations:
                count += 1
                with pace.writing():
                    passed.append(0.5)
        assert checkpoints_of(validations, apart, 0.5, share) == count


def test_the_smallest_share_that_a_study_may_name_comes_to_the_first_and_the_last_checkpoint() -> None:
    smallest = study(resources={"checkpoint_share": 1e-9}).resources.checkpoint_share
    assert checkpoints_of(40, 0.001, 1000.0, smallest) == 2


@pytest.mark.parametrize(("validation", "enough"), [(0.05, 1), (3.0, 30), (3.2, 35), (10.0, 100), (10.1, None)])
def test_a_cadence_at_which_validating_takes_no_longer_than_training(validation: float, enough: int | None) -> None:
    assert cheaper_cadence(replace(TIMES, validation=validation)) == enough


def test_steps_are_timed_in_the_middle_of_every_phase() -> None:
    assert middles(TrainingSpec(epochs=9)) == [(4.0, 1.0)]
    assert middles(TrainingSpec(epochs=0.5)) == [(0.0, 1.0)]
    phases = [{"epochs": 0.25}, {"epochs": 3.75}, {}]
    found = middles(TrainingSpec.model_validate({"epochs": 16, "phases": phases}))
    assert found == [(0.0, 1 / 64), (2.0, 15 / 64), (10.0, 0.75)]


def test_trials_end_when_places_are_free_for_them() -> None:
    cells = [work(10.0, searches=3, confirmations=1), work(4.0, searches=1)]
    # 0: A B, 4: A, 10: A, 14: nothing, 20: confirmation of A
    assert schedule(cells, [TWO_CORES], at_once=lambda *_: 2, limit=None, first=0.0) == Schedule(30.0, 2)
    assert schedule(cells, [TWO_CORES], at_once=lambda *_: 2, limit=1, first=1.0) == Schedule(45.0, 1)
    # 0: A, 10: A, 20: A, 30: confirmation, while B runs beside
    many = [replace(TWO_CORES, most=9)]
    assert schedule(cells, many, at_once=lambda *_: 1, limit=None, first=0.0) == Schedule(40.0, 2)
    # one trial of two cores keeps the other cell waiting
    wide = [work(10.0, searches=1, cpus=2), work(4.0, searches=2)]
    assert schedule(wide, [TWO_CORES], at_once=lambda *_: 9, limit=None, first=0.5) == Schedule(15.0, 2)


def test_nine_cells_keep_most_of_sixty_four_workers_busy() -> None:
    search = SearchSpec(configurations=24)
    cells = [work(10.0 + number / 10, searches=24) for number in range(9)]
    places = [replace(TWO_CORES, most=32)]

    def busy(most: Callable[[int, int], int]) -> float:
        return sum(each.seconds * each.searches for each in cells) / (
            64 * schedule(cells, places, at_once=most, limit=None, first=0.0).seconds
        )

    assert busy(lambda begun, searching: at_once(search, begun, 64 // searching)) > 0.7
    assert busy(lambda begun, _: at_once(search, begun)) < 0.4, "two at a time"


@pytest.mark.parametrize(("search", "budget", "trials"), [
    ({"configurations": 3}, {}, 3), ({}, {"epochs_per_cell": 5.0}, 3), ({}, {"epochs_per_cell": 0.1}, 1),
])
def test_a_search_asks_for_whole_trials_up_to_half_a_trial(
    search: dict[str, Any], budget: dict[str, Any], trials: int
) -> None:
    spec = study(search=search, budget=budget)
    (cell,) = resolve_cells(spec, where="here")
    assert searched_trials(spec, cell) == trials


def test_a_place_costs_its_share_of_the_nodes_there_can_be() -> None:
    large = NodeType("large", {"CPU": 8.0}, most=3, usd_per_hour=0.8)
    assert usd_per_hour(Needs(), [TWO_CORES]) == pytest.approx(0.2)
    assert usd_per_hour(Needs(cpus=2), [TWO_CORES, large]) == pytest.approx((0.4 + 12 * 0.2) / 13)
    assert usd_per_hour(Needs(cpus=4), [replace(TWO_CORES, usd_per_hour=None), large]) == pytest.approx(0.4)
    assert usd_per_hour(Needs(), [replace(TWO_CORES, usd_per_hour=None), large]) is None
    with refused("VSE-S032", where="here: resources", hint="do more"):
        require_places([Needs(), Needs(cpus=4)], [TWO_CORES], where="here", advice="do more")


def test_a_plan_counts_trials_epochs_hours_money_and_memory() -> None:
    spec = study(scheduler={"kind": "none"})
    cells = resolve_cells(spec, where="here")
    plan = plan_study(spec, cells, {"vsepp.lmh": TIMES}, [TWO_CORES], limit=None)
    # validations are 8.25 s apart, the second comes too soon after the first checkpoint for another of 0.25 s
    trial = 2.0 + (200 * 0.1 + 2 * 0.5) + 4 * 3.0 + 3 * 0.25 + 4 * REPORT_S + 4.0
    assert (plan.trials, plan.epochs, plan.workers, plan.remarks) == (4, 8.0, 2, [])
    assert plan.device_hours == pytest.approx(4 * trial / 3600)
    assert plan.usd == pytest.approx(plan.device_hours * 0.2)
    # two at a time, the third alone, then the confirmation
    assert plan.hours == pytest.approx((STUDY_START_S + WORKER_START_S + 3.0 + 3 * trial) / 3600)
    assert plan.cells[0].memory_bytes == 2**30 + WORKER_BYTES


@pytest.mark.parametrize(("epochs", "trials", "remark"), [
    (6.0, 3, None),
    (5.0, 3, "its search is given 5 epochs and trains 6, since a begun trial is finished"),
    (4.8, 2, "its search is given 4.8 epochs and trains 4, since the rest is less than half a training"),
])
def test_a_budget_that_whole_trainings_do_not_meet_is_told_with_what_is_trained(
    epochs: float, trials: int, remark: str | None
) -> None:
    spec = study(scheduler={"kind": "none"}, budget={"epochs_per_cell": epochs}, training={"epochs": 2})
    plan = plan_study(spec, resolve_cells(spec, where="here"), {"vsepp.lmh": TIMES}, [TWO_CORES], limit=None)
    assert plan.cells[0].searches == trials
    assert [line for line in plan.remarks if "given" in line] == ([f"cell vsepp.lmh: {remark}"] if remark else [])


def test_what_is_dear_or_does_not_fit_is_told_with_the_setting_that_mends_it() -> None:
    spec = study(scheduler={"kind": "none"}, resources={"memory_gib": 0.5}, budget={"device_seconds_per_cell": 100})
    cells = resolve_cells(spec, where="here")
    times = replace(TIMES, validation=8.0, scored_share=0.25)
    plan = plan_study(spec, cells, {"vsepp.lmh": times}, [replace(TWO_CORES, resources={"CPU": 2.0, "memory": 2e9})],
                      limit=None)
    dear, scaled, memory, cut = plan.remarks
    assert "validating takes 1.52 times as long as training (4 validations a trial, 8 s each" in dear
    assert "set training.validate_every_steps: 80 at network vsepp" in dear
    assert "100 % of the split's items and 25 % of its pairs" in scaled
    assert "a trial holds 1.2 GiB" in memory
    assert "memory_gib 0.5; set it to 1.3" in memory
    assert "ends its search after about 2 trials" in cut
    rare = study(training={"epochs": 2})
    seldom = plan_study(rare, resolve_cells(rare, where="here"), {"vsepp.lmh": replace(times, validation=50.0)},
                        [TWO_CORES], limit=None)
    assert "at the end of epochs only already: need a smaller data.validation_split" in seldom.remarks[0]


def test_a_plan_made_on_a_busy_machine_says_so() -> None:
    spec = study(scheduler={"kind": "none"})
    cells = resolve_cells(spec, where="here")
    plan = plan_study(spec, cells, {"vsepp.lmh": replace(TIMES, worked_share=0.5)}, [TWO_CORES], limit=None)
    (remark,) = plan.remarks
    assert remark.startswith("steps computed in 50 % of their time and waited in the rest")
    assert f"an idle one would take {30 * plan.hours:.3g} minutes or more" in remark


def test_cells_that_could_not_be_measured_are_left_out_and_named() -> None:
    spec = study()
    plan = plan_study(spec, resolve_cells(spec, where="here"), {"vsepp.lmh": "numeric: nan"}, [TWO_CORES], limit=None)
    assert (plan.trials, plan.cells, plan.usd, plan.unmeasured) == (0, [], None, {"vsepp.lmh": "numeric: nan"})


class _Dots:
    """As much of a network as scoring asks for."""

    def similarity(self, images: Encoded, captions: Encoded) -> torch.Tensor:
        return torch.einsum("npd,mqd->nm", images.vectors, captions.vectors)


def test_part_of_the_pairs_is_scored_and_its_share_of_the_arithmetic_told() -> None:
    images = Encoded(torch.ones(4, 2, 3))
    groups = [Encoded(torch.ones(5, words, 3)) for words in (1, 2, 3)]  # 20 pairs each, of work 1, 2 and 3

    def cost(*, regions: int, words: int) -> PairCost:
        return PairCost(flops=words, numbers=1)

    network: Any = _Dots()
    assert score_some(network, images, groups, cost=cost, seconds=60.0) == 1.0
    assert score_some(network, images, groups, cost=cost, seconds=0.0) == pytest.approx(2 / 6)  # the middle one


def test_any_first_few_of_many_are_from_everywhere() -> None:
    assert list(spread(7)) == [3, 1, 5, 0, 2, 4, 6]
    assert [sorted(spread(count)) for count in range(4)] == [[], [0], [0, 1], [0, 1, 2]]


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
