"""Searches on what a study has recorded: a configuration gets the curve of its nearest neighbour, and that is said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from logged_studies import Logs, logs
from refusals import refused

from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.cells import Cell, resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.errors import Message, UsageError
from vsetune.records.events import TARGET_REACHED, AttemptStart, ValidationPoint
from vsetune.records.studies import Studies
from vsetune.records.writer import StudyWriter
from vsetune.study import messages
from vsetune.study.simulation.recorded_curves import Nearest, RecordedLandscape, recorded_landscapes
from vsetune.study.simulation.simulated_search import SimulationSettings, simulate_search
from vsetune.study.simulation.simulated_studies import summaries, target_summaries

__all__ = ["logs"]
RATE = {"learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}}
RATES = [1e-4 * 100 ** (n / 8) for n in range(9)]
HALVES = [(0.5, 0.25), (1.0, 0.5), (2.0, 1.0)]
"""Of a recorded curve: epoch, share of its best."""


def make_study(name: str = "new", **changes: Any) -> StudySpec:
    plain = {
        "study": name, "data": {"path": "x"}, "networks": [{"name": "vsepp"}],
        "losses": [{"name": "lmh", "search": "none"}], "training": {"epochs": 2},
        "search": {"configurations": 6, "sampler": "sobol", "training": RATE}, "scheduler": {"kind": "none"},
        "seeds": [0, 1, 2],
    }
    return parse_spec(plain | changes, StudySpec, where="test")


def cell_of(study: StudySpec) -> Cell:
    (cell,) = resolve_cells(study, where="test")
    return cell


def written(logs: Logs, bests: dict[float, float]) -> StudyWriter:
    """`first`, with a trial at each learning rate that gets to this M-Recall."""
    writer = logs.opened(make_study("first"))
    for number, (rate, best) in enumerate(bests.items()):
        record(writer, number, rate, best)
    return writer


def record(
    writer: StudyWriter, number: int, rate: float, best: float, *, status: Any = "finished", phase: Any = "search",
    error: str | None = None,
) -> None:
    run = writer.start_attempt(AttemptStart(
        "first", f"c{number}", "vsepp.lmh", "vsepp", "lmh", 1, 0, phase,
        {"training.learning_rate": rate, "seed": 0}, {},
    ))
    points = [ValidationPoint(n, epoch, n, best * share, 1.0) for n, (epoch, share) in enumerate(HALVES)]
    writer.record_points(run, points)
    writer.finish_attempt(run, status, summary={}, error=error)


@pytest.fixture
def first(logs: Logs) -> StudyWriter:
    """The sixth of nine learning rates is the best."""
    return written(logs, {rate: 40.0 - 2 * abs(n - 5) for n, rate in enumerate(RATES)})


def landscape_of(study: StudySpec | None = None) -> RecordedLandscape:
    (found,) = recorded_landscapes(study or make_study(), Studies(), "first", where="new.yaml")
    return found


@pytest.mark.usefixtures("first")
def test_a_configuration_gets_the_curve_of_its_nearest_neighbour_between_its_validations() -> None:
    made = landscape_of()
    near = {"training.learning_rate": RATES[5] * 1.2}
    assert made.curve_of(near, np.array([0.125, 0.25, 0.375, 0.5, 0.75, 1.0])) == pytest.approx(
        [5.0, 10.0, 15.0, 20.0, 30.0, 40.0]
    )
    assert made.top == 40.0
    assert made.truth({"training.learning_rate": RATES[0]}, np.array([0.5, 1.0])) == 30.0
    assert made.epochs_to(near, 30.0, 2.0) == 1.5
    assert made.epochs_to({"training.learning_rate": RATES[0]}, 35.0, 2.0) == float("inf")
    assert made.fewest_epochs(30.0, 2.0) == 1.5


@pytest.mark.usefixtures("first")
def test_a_curve_that_ends_early_stays_level_and_that_is_said() -> None:
    made = landscape_of(make_study(training={"epochs": 4}))
    assert made.curve_of({"training.learning_rate": RATES[5]}, np.array([0.5, 0.75, 1.0])).tolist() == [40.0] * 3
    for words in ("9 whole trials of first", "9 of them held level", "0.03 away in the median and 0.06 at most"):
        assert words in made.says()
    assert "held level" not in landscape_of().says()


@pytest.mark.usefixtures("first")
def test_a_search_on_recorded_curves_finds_their_best_and_is_the_same_every_time() -> None:
    study, made = make_study(), landscape_of()
    settings = SimulationSettings(workers=2, target=30.0)
    found = [simulate_search(study, made, seed=seed, settings=settings) for seed in (0, 0, 1)]
    assert found[0] == found[1]
    assert [search.trials for search in found] == [6] * 3
    assert [search.epochs for search in found] == [12.0] * 3
    assert all(search.top == 40.0 and 30.0 <= search.pick <= 40.0 for search in found)
    (row,) = summaries(found, miss_epochs=24.0)
    assert row.name == "vsepp.lmh"
    assert row.shortfall == pytest.approx(40.0 - np.mean([search.pick for search in found]))
    (soon,) = target_summaries(found, target=30.0, epochs=2.0, landscapes={made.name: made})
    assert soon.soonest == 1.5


def test_trials_that_were_stopped_confirmed_or_cut_short_are_no_landscape(first: StudyWriter) -> None:
    record(first, 20, 5e-3, 90.0, status="pruned")
    record(first, 21, 5e-3, 90.0, phase="confirm")
    record(first, 22, 5e-3, 90.0, error=f"{TARGET_REACHED}: 90")
    assert landscape_of().top == 40.0


def test_the_nearest_is_that_of_a_plain_loop_with_choices_and_settings_left_out() -> None:
    cell = cell_of(make_study(
        losses=[{"name": "top_f", "search": {
            "margin": "default", "decay": {"choices": ["hyperbolic", "linear"]}, "sharpness": "default",
        }}], baseline="top_f",
    ))
    chance = np.random.default_rng(3)
    assert set(cell.domains) == {
        "loss.decay", "loss.margin", "loss.sharpness", "training.learning_rate",
    }
    domains, defaults = cell.domains, cell.all_defaults()

    def drawn() -> dict[str, Any]:
        made: dict[str, Any] = {"loss.decay": str(chance.choice(["hyperbolic", "linear"]))}
        for name in ("loss.margin", "loss.sharpness", "training.learning_rate"):
            made[name] = float(chance.uniform(domains[name].low, domains[name].high))  # type: ignore[union-attr]
        return cell.applying(made)

    def distance(first: dict[str, Any], second: dict[str, Any]) -> float:
        total = 2.0 * (first["loss.decay"] != second["loss.decay"])
        for name in ("loss.margin", "loss.sharpness", "training.learning_rate"):
            one, other, low, high = (
                np.log(value) if domains[name].log else value  # type: ignore[union-attr]
                for value in (
                    first.get(name, defaults[name]), second.get(name, defaults[name]),
                    domains[name].low, domains[name].high,  # type: ignore[union-attr]
                )
            )
            total += ((one - other) / (high - low)) ** 2
        return float(np.sqrt(total))

    recorded = [drawn() for _ in range(20)]
    nearest = Nearest(cell, recorded)
    for _ in range(30):
        asked = drawn()
        assert nearest.place_of(asked) == int(np.argmin([distance(asked, each) for each in recorded]))
    assert (np.diff(nearest.distances(16)) >= 0).all()


@pytest.mark.parametrize(("changes", "message", "fields"), [
    ({"search": {"training": {"learning_rate": {"low": 1e-4, "high": 2e-2, "log": True}}}}, messages.CURVES_OTHER_SPACE,
     {"setting": "training.learning_rate", "got": "low 0.0001, high 0.02, log True"}),
    ({"losses": [{"name": "lmh", "search": {"margin": "default"}}]}, messages.CURVES_OTHER_SPACE,
     {"setting": "loss.margin", "need": "not searched"}),
    ({"losses": [{"name": "lseh"}], "baseline": "lseh"}, messages.CURVES_OTHER_CELLS, {"cells": "vsepp.lmh"}),
])
@pytest.mark.usefixtures("first")
def test_another_space_is_refused(changes: dict[str, Any], message: Message, fields: dict[str, str]) -> None:
    with refused(message, **fields):
        recorded_landscapes(make_study(**changes), Studies(), "first", where="new.yaml")


def test_too_few_trials_and_a_study_that_is_not_there_are_refused(logs: Logs) -> None:
    written(logs, dict.fromkeys(RATES[:7], 30.0))
    with refused(messages.CURVES_TOO_FEW, got=7, need=8):
        recorded_landscapes(make_study(), Studies(), "first", where="new.yaml")
    with pytest.raises(UsageError, match="frist"):
        recorded_landscapes(make_study(), Studies(), "frist", where="new.yaml")
