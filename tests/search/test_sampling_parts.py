"""What samplers are made of: coordinates of choices, ends of trials."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.study import StudyDirection
from optuna.trial import TrialState, create_trial

from vsetune.records.events import AttemptStatus, Drawn
from vsetune.records.state import Attempt
from vsetune.search.objectives import BEST_M_RECALL
from vsetune.search.sampling.optuna_samplers import _LentHistory
from vsetune.search.sampling.sampler import UnitCube
from vsetune.search.stopping.rules import _middle_of_others
from vsetune.search.trial_history import optuna_trial

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


def test_a_stopped_trial_has_its_last_point_for_a_value_and_a_finished_one_its_best() -> None:
    drawn = Drawn("vsepp.lmh", 0, "running", {}, {}, {}, at=1.0)

    def value_of(status: AttemptStatus, *curve: tuple[float, float]) -> float | None:
        no_start: Any = None
        return optuna_trial(drawn, Attempt("", no_start, status, curve, {}), BEST_M_RECALL).value

    assert value_of("pruned", (1, 43.0), (2, 41.0)) == 41.0
    assert value_of("pruned", (1, math.nan)) is None
    assert value_of("failed", (1, 43.0), (2, 41.0)) is None
    assert value_of("finished", (1, 43.0), (2, 41.0)) == 43.0
    assert optuna_trial(drawn, None, BEST_M_RECALL).value is None


def test_the_median_of_the_others_is_that_of_a_plain_one() -> None:
    random = np.random.default_rng(1)
    for count in range(2, 9):
        values = sorted(random.integers(0, 6, size=count).tolist())
        for place, own in enumerate(values):
            others = values[:place] + values[place + 1 :]
            assert _middle_of_others([float(value) for value in values], float(own)) == statistics.median(others)
    assert _middle_of_others([1.0], 1.0) == -math.inf
