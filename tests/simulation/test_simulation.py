"""A simulated search is the real search in virtual time: same decisions, same charges, the same every time."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from logged_studies import Logs, begun, logs

from simulation.landscapes import LANDSCAPES, TOP, generator_of
from simulation.simulated_search import (
    Course,
    SimulatedSearch,
    SimulationSettings,
    VirtualClock,
    VirtualCluster,
    made_up_study,
    promised_epochs,
    simulate_search,
)
from simulation.simulated_studies import simulate, summaries, summary_of, target_summaries
from vsetune.board.selection import cost_of
from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.cells import resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.records.events import ValidationPoint, has_diverged
from vsetune.records.state import trials_of
from vsetune.records.writer import StudyWriter
from vsetune.search.stopping.rules import Halving
from vsetune.study.ledger import StudyLedger
from vsetune.study.trials import PlannedTrial
from vsetune.study.tune_adapter import CellScheduler

__all__ = ["logs"]
TWO_WORKERS = SimulationSettings(workers=2)


def make_study(**changes: Any) -> StudySpec:
    plain = {
        "study": "mine", "data": {"path": "x"}, "networks": [{"name": "vsepp"}], "losses": [{"name": "lmh"}],
        "training": {"epochs": 6}, "search": {"configurations": 8, "sampler": "tpe"},
        "scheduler": {"kind": "asha", "grace_epochs": 2},
    }
    return parse_spec(plain | changes, StudySpec, where="test")


class Simulated:
    """One made-up cell on a virtual cluster. closed: (configuration's number, status, second) in order."""

    def __init__(self, study: StudySpec, courses: Any, *, workers: int) -> None:
        made = made_up_study(study, LANDSCAPES["smooth"], seed=0)
        (cell,) = resolve_cells(made, where="test")
        self.writer, self.clock = begun(StudyWriter(), made), VirtualClock()
        self.ledger = StudyLedger(made, [cell], self.writer, clock=self.clock)
        self.closed: list[tuple[int, str, float]] = []
        self.cluster = VirtualCluster(
            self.ledger, CellScheduler(made.scheduler, epochs={cell.name: made.training.epochs}), courses,
            workers=workers, clock=self.clock, on_closed=self._note,
        )
        self.spec = made

    def _note(self, trial: PlannedTrial) -> None:
        self.closed.append((trial.number, trial.status, self.clock.now))

    def run(self) -> Simulated:
        self.cluster.run()
        return self

    @property
    def charged(self) -> float:
        return cost_of(trials_of(self.writer.attempts())).budget_epochs


def noisy_course(planned: PlannedTrial) -> Course:
    """A curve that depends on the configuration and its number; every fifth diverges in its second epoch."""
    chance = generator_of(f"test/{planned.number}")
    height = 30 + 5000 * float(planned.configuration["training.learning_rate"])
    points = [(float(epoch), height * epoch / 6 + chance.normal()) for epoch in range(1, 7)]
    if planned.number % 5 == 4:
        points = [*points[:1], (2.0, math.nan)]
    return Course(points, 10.0)


@pytest.mark.parametrize("name", LANDSCAPES)
def test_the_optimum_of_a_landscape_is_known_and_nothing_is_above_it(name: str) -> None:
    landscape, progress = LANDSCAPES[name], np.arange(1.0, 28.0) / 27
    surface = landscape.surface(3)
    drawn = generator_of(name).uniform(size=(300, len(surface.centre)))
    with np.errstate(all="raise"):
        heights = [landscape.curve(each, surface.centre, progress) for each in drawn]
        best = landscape.curve(surface.centre, surface.centre, progress)
    assert best.max() == pytest.approx(TOP, abs=1e-9)
    assert max(np.nanmax(height) for height in heights) < TOP
    assert 0.001 < np.mean([np.nanmax(height) >= TOP - 3 for height in heights]) < 0.5


def test_the_soonest_configuration_of_a_landscape_is_sooner_than_any_drawn() -> None:
    surface = LANDSCAPES["slow_starters"].surface(3)
    soonest = surface.fewest_epochs(54.0, 27.0)
    drawn = generator_of("soonest").uniform(size=(200, 3))
    space = surface.landscape.space
    names, rate = list(space), space["training.learning_rate"]
    configurations = [
        {
            names[0]: rate.low * (rate.high / rate.low) ** at[0], names[1]: 0.05 + 0.35 * at[1],
            names[2]: 0.005 * 20 ** at[2],
        } for at in drawn
    ]
    epochs = [surface.epochs_to(configuration, 54.0, 27.0) for configuration in configurations]
    assert 2.0 < soonest <= min(epochs) < soonest + 3.0
    best = surface.curve_of(configurations[int(np.argmin(epochs))], np.array([min(epochs) / 27]))
    assert best[0] >= 54.0


def test_a_search_for_epochs_to_a_target_trains_more_trials_and_picks_one_that_gets_there() -> None:
    study = make_study(search={"configurations": 8, "sampler": "sobol", "objective": "epochs_to_target"})
    plain = make_study(search={"configurations": 8, "sampler": "sobol"})
    soon, high = (
        simulate_search(each, LANDSCAPES["smooth"], seed=1, settings=replace(TWO_WORKERS, target=45.0))
        for each in (study, plain)
    )
    assert soon.trials > high.trials
    assert soon.epochs_to_target <= high.epochs_to_target < 6.0
    (row,) = target_summaries([soon], target=45.0, epochs=6.0)
    assert row.ratio == pytest.approx(row.pick / row.soonest)
    assert row.ratio >= 1.0


def test_the_same_seed_gives_the_same_search_and_another_one_another() -> None:
    study, landscape = make_study(), LANDSCAPES["diverging_region"]
    first, again, other = (simulate_search(study, landscape, seed=n, settings=TWO_WORKERS) for n in (1, 1, 2))
    assert first == again
    assert replace(other, seed=1) != first


def test_reports_come_in_the_order_of_their_times_and_a_free_worker_goes_on_at_once() -> None:
    seconds = {0: 10.0, 1: 4.0, 2: 4.0, 3: 4.0}
    study = make_study(scheduler={"kind": "none"}, search={"configurations": 4}, training={"epochs": 2})
    found = Simulated(
        study, lambda each: Course([(1.0, 10.0), (2.0, 20.0)], seconds[each.number]), workers=2
    ).run()
    assert found.closed == [(1, "finished", 8.0), (2, "finished", 16.0), (0, "finished", 20.0), (3, "finished", 24.0)]
    assert found.ledger.next() == "done"


def test_reports_at_the_same_time_come_in_the_order_in_which_their_epochs_began() -> None:
    study = make_study(scheduler={"kind": "none"}, search={"configurations": 4, "at_once": 3}, training={"epochs": 1})
    found = Simulated(study, lambda each: Course([(1.0, 10.0)], 5.0), workers=3).run()
    assert found.closed == [(0, "finished", 5.0), (1, "finished", 5.0), (2, "finished", 5.0), (3, "finished", 10.0)]


def test_what_is_asked_and_pruned_is_what_a_study_with_a_log_asks_and_prunes(logs: Logs) -> None:
    """One worker against the ledger, the log and the halving of real studies, driven by hand."""
    found = Simulated(make_study(), noisy_course, workers=1).run()
    (cell,) = resolve_cells(found.spec, where="test")
    writer, halving = logs.opened(found.spec), Halving(grace_epochs=2, reduction_factor=3, epochs=6)
    ledger = StudyLedger(found.spec, [cell], writer)
    while isinstance(planned := ledger.next(), PlannedTrial):
        name, status = planned.name, "finished"
        ledger.open_attempt(name, number=1, environment={}, protocol={}, inherited=[])
        for step, (epoch, m_recall) in enumerate(noisy_course(planned).points, start=1):
            if math.isnan(m_recall):
                status = "failed"
                break
            ledger.record_point(name, ValidationPoint(step, epoch, step, m_recall, 10.0 * epoch))
            if halving.note(name, epoch, m_recall):
                status = "pruned"
                break
        ledger.close(name, status, summary={})  # type: ignore[arg-type]
    decided = [(name, trial.status, trial.configuration) for name, trial in ledger.trials.items()]
    assert {"finished", "pruned", "failed"} <= {status for _, status, _ in decided}
    assert decided == [
        (name, trial.status, trial.configuration) for name, trial in found.ledger.trials.items()
    ]


@pytest.mark.parametrize(("budget", "least", "most"), [
    ({"epochs_per_cell": 20}, 14, 20 + 6 / 2), ({"device_seconds_per_cell": 200}, 20, 20 + 2 * 6),
])
def test_a_cell_is_charged_what_was_trained_and_ends_at_its_budget(
    budget: dict[str, float], least: float, most: float
) -> None:
    """Epochs are promised before a trial starts, seconds known when it has ended; one that diverges counts whole."""
    study = make_study(budget=budget, search={"configurations": 50, "sampler": "tpe"})
    found = Simulated(study, noisy_course, workers=2).run()
    assert found.charged == pytest.approx(found.cluster.epochs)
    assert least <= found.cluster.epochs <= most


def test_halving_before_slow_starters_rise_is_costly_and_no_pruning_is_not() -> None:
    landscape = LANDSCAPES["slow_starters"]
    settings: dict[str, Any] = {"training": {"epochs": 27}, "search": {"configurations": 20, "sampler": "tpe"}}
    early, never = (make_study(**settings, scheduler={"kind": kind}) for kind in ("asha", "none"))
    pruning = list(simulate(early, [landscape], seeds=4, settings=TWO_WORKERS))
    whole = list(simulate(never, [landscape], seeds=4, settings=TWO_WORKERS))
    assert sum(search.is_costly for search in pruning) >= 2
    assert [search.pruned for search in whole] == [0] * 4
    assert all(search.trials > other.trials for search, other in zip(pruning, whole, strict=True))


def search(landscape: str = "smooth", **changes: Any) -> SimulatedSearch:
    made = SimulatedSearch(
        landscape, 0, pick=59.8, best_pruned=-math.inf, epochs_to_hit=100.0, epochs=200.0, trials=4, pruned=0, failed=0,
        seconds=60.0,
    )
    return replace(made, **changes)


def test_a_summary_counts_misses_with_their_penalty_and_says_how_sure_it_is() -> None:
    miss = search(pick=58.0, best_finished=59.6, best_pruned=59.0, epochs_to_hit=None, pruned=2)
    summary = summary_of("smooth", [search(best_finished=59.8), miss], miss_epochs=400.0)
    assert (summary.hits, summary.found, summary.costly, summary.pruned) == (0.5, 1.0, 0.5, 1.0)
    assert summary.epochs_to_hit == pytest.approx(200.0)
    assert summary.epochs_to_hit_within == pytest.approx((100.0, 400.0))
    assert summary.shortfall == pytest.approx(1.1)
    ten = summary_of("smooth", [search()] * 5 + [replace(miss, pick=-math.inf)] * 5, miss_epochs=400.0)
    assert ten.hits_within == pytest.approx((0.2366, 0.7634), abs=1e-4)


def test_searches_without_a_pick_are_misses_and_have_no_shortfall() -> None:
    (row,) = summaries([search(pick=-math.inf, epochs_to_hit=None)], miss_epochs=400.0)
    assert (row.hits, row.shortfall, row.costly) == (0.0, None, 0.0)
    assert row.epochs_to_hit == pytest.approx(400.0)


def test_a_miss_is_measured_by_the_tightest_of_the_limits() -> None:
    settings = SimulationSettings(workers=2, epoch_seconds=10.0)
    assert promised_epochs(make_study(), settings) == 48
    assert promised_epochs(make_study(budget={"epochs_per_cell": 30}), settings) == 30
    assert promised_epochs(make_study(budget={"device_seconds_per_cell": 200}), settings) == 20


def test_a_training_that_diverges_is_recorded_as_a_real_one_is() -> None:
    simulated = Simulated(make_study(scheduler={"kind": "none"}), noisy_course, workers=2).run()
    failed = [each for each in simulated.writer.attempts() if each.status == "failed"]
    assert failed
    assert all(has_diverged(each.status, each.error) for each in failed)
