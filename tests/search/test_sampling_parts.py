"""What samplers are made of: coordinates of choices, survivors, ends of trials, grids."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.study import StudyDirection
from optuna.trial import TrialState, create_trial

from vsetune.search.configurations import _ended
from vsetune.search.sampling.evolution import _child, _crossed, _first, _moved, _Rates, survivors
from vsetune.search.sampling.grid import axes_of
from vsetune.search.sampling.optuna_samplers import _LentHistory
from vsetune.search.sampling.sampler import UnitCube
from vsetune.search.stopping.rules import _middle_of_others
from vsetune.search.trial_history import DRAWN_BY, NOTES, REFUSED, TAUGHT

SPACE: dict[str, BaseDistribution] = {
    "decay": CategoricalDistribution(["hyperbolic", "linear", "none"]), "f": IntDistribution(1, 4),
    "margin": FloatDistribution(0.0, 0.4),
}


def test_every_choice_has_a_coordinate_of_its_own() -> None:
    cube = UnitCube(SPACE)
    assert cube.width == 5
    for choice in ("hyperbolic", "linear", "none"):
        configuration = {"decay": choice, "f": 3, "margin": 0.1}
        vector = cube.vector_of(configuration)
        assert vector[:3].sum() == 1.0
        assert vector[3:].tolist() == pytest.approx([0.625, 0.25])
        assert cube.configuration_at(vector) == pytest.approx(configuration)


def test_a_sampler_reads_earlier_trials_in_place_and_gets_copies_where_it_asks_for_them() -> None:
    """Copying hundreds of trials at every draw would take most of its time."""
    history = [create_trial(value=1.0, state=TrialState.COMPLETE), create_trial(state=TrialState.RUNNING)]
    storage = _LentHistory(history)
    study = storage.create_new_study([StudyDirection.MAXIMIZE])
    assert all(read is kept for read, kept in zip(storage.get_all_trials(study, False), history, strict=True))
    copies = storage.get_all_trials(study, True)
    assert copies == history
    assert not any(read is kept for read, kept in zip(copies, history, strict=True))
    assert storage.get_all_trials(study, False, (TrialState.COMPLETE,)) == history[:1]


def test_the_best_survive_and_of_equals_the_first() -> None:
    values = [1.0, 9.0, 5.0, 9.0, 5.0]
    trials = [create_trial(value=value, state=TrialState.COMPLETE, user_attrs={"at": at})
              for at, value in enumerate(values)]
    assert [trial.user_attrs["at"] for trial in survivors(trials, 3)] == [1, 3, 2]


def test_a_stopped_trial_has_its_last_point_for_a_value_and_a_finished_one_what_it_is_told() -> None:
    trial = create_trial(state=TrialState.RUNNING)
    points = {2: 41.0, 1: 40.0}
    assert _ended(trial, TrialState.PRUNED, None, points).values == [41.0]
    assert _ended(trial, TrialState.PRUNED, None, {1: math.nan}).values is None
    assert _ended(trial, TrialState.FAIL, None, points).values is None
    assert _ended(trial, TrialState.COMPLETE, 45.0, points).values == [45.0]
    assert trial.values is None


def test_a_generation_of_cma_es_moves_to_its_best_and_one_without_any_only_narrows() -> None:
    cube = UnitCube({"margin": FloatDistribution(0.0, 1.0), "rate": FloatDistribution(0.0, 1.0)})
    rates = _Rates.of(cube.width)
    start = _first([np.array([0.5, 0.5])], cube)
    better = [np.array([0.7, 0.4])] * rates.size
    moved = _moved(start, better, rates)
    assert moved.mean.tolist() == pytest.approx([0.7, 0.4])
    assert moved.generation == 1
    assert moved.shape[0, 0] > moved.shape[1, 1]  # it has learnt along which coordinate it went further
    empty = _moved(moved, [], rates)
    assert empty.spread == pytest.approx(0.8 * moved.spread)
    assert empty.mean.tolist() == moved.mean.tolist()


def test_children_take_choices_of_both_parents_and_ranges_on_both_sides_of_their_middle() -> None:
    cube, random = UnitCube(SPACE), np.random.default_rng(0)
    parents = [
        cube.vector_of({"decay": decay, "f": 2, "margin": margin}) for decay, margin in (("linear", 0.1), ("none", 0.3))
    ]
    children = [cube.configuration_at(_child(parents, cube, random)) for _ in range(400)]
    shares = [sum(child["decay"] == decay for child in children) / 400 for decay in ("linear", "none", "hyperbolic")]
    assert shares[0] > shares[1] > 0.2 > shares[2]  # the better parent is both parents of half of them
    above = sum(_crossed(0.2, 0.8, random) > 0.5 for _ in range(1000))
    assert 450 < above < 550


def test_a_grid_as_fine_as_whole_numbers_has_each_of_them_on_a_log_scale_too() -> None:
    axes = axes_of({"f": IntDistribution(1, 6, log=True)}, 6)
    assert axes == {"f": [1, 2, 3, 4, 5, 6]}


def test_the_median_of_the_others_is_that_of_a_plain_one() -> None:
    random = np.random.default_rng(1)
    for count in range(2, 9):
        values = sorted(random.integers(0, 6, size=count).tolist())
        for place, own in enumerate(values):
            others = values[:place] + values[place + 1 :]
            assert _middle_of_others([float(value) for value in values], float(own)) == statistics.median(others)
    assert _middle_of_others([1.0], 1.0) == -math.inf


def test_databases_of_earlier_studies_hold_these_names() -> None:
    assert (REFUSED, TAUGHT, DRAWN_BY, NOTES) == ("refused", "taught by", "drawn by", "drawing")
