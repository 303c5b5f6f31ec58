"""The very values at which halving and the search change their answer."""

from __future__ import annotations

import math

import pytest
from optuna.distributions import FloatDistribution
from searches_here import SearchHere
from tiny_studies import tiny_study

from vsetune.config.study.cells import resolve_cells
from vsetune.metrics.curves import SAME_EPOCH
from vsetune.search.configurations import Refusal, _shown
from vsetune.search.objectives import Objective
from vsetune.search.sampling.sampler import UnitCube
from vsetune.search.stopping.rules import Halving

STUDY = tiny_study()
CELL = "vsepp.lmh"


def opened(refuses: Refusal | None = None) -> SearchHere:
    return SearchHere(resolve_cells(STUDY, where="test"), STUDY.search, refuses=refuses)


def test_a_long_reason_of_a_refusal_is_kept_to_500_characters() -> None:
    reasons = iter(["x" * 600, None])
    search = opened(lambda cell, configuration: next(reasons))
    assert search.ask(CELL).number == 1
    refused, suggested = search.trials(CELL)
    assert (refused.user_attrs["refused"], refused.state.name) == ("x" * 500, "PRUNED")
    assert ("refused" in suggested.user_attrs, suggested.state.name) == (False, "RUNNING")


def test_a_trial_runs_until_it_ends_and_its_value_is_the_best_of_its_curve() -> None:
    search = opened()
    drawn = search.ask(CELL)
    assert (drawn.cell, drawn.number, search.trials(CELL)[0].state.name) == (CELL, 0, "RUNNING")
    search.end(CELL, 0, "finished", [(0.0004, 5.0), (0.0006, 7.0), (1.0, 6.0)])
    (trial,) = search.trials(CELL)
    assert (trial.value, trial.intermediate_values) == (7.0, {0: 5.0, 1: 7.0, 1000: 6.0})
    assert trial.state.name == "COMPLETE"


def test_of_two_validations_in_one_thousandth_of_an_epoch_the_first_is_kept() -> None:
    search = opened()
    search.end(CELL, search.ask(CELL).number, "pruned", [(1.0001, 5.0), (1.0002, 9.0)])
    assert search.trials(CELL)[0].intermediate_values == {1000: 5.0}


@pytest.mark.parametrize(("grace_epochs", "reduction_factor"), [(0, 3), (-1, 3), (1, 1), (1, 0.5), (math.nan, 3)])
def test_halving_without_a_grace_or_a_reduction_is_refused(grace_epochs: float, reduction_factor: float) -> None:
    with pytest.raises(ValueError, match="need > 0 and > 1"):
        Halving(grace_epochs=grace_epochs, reduction_factor=reduction_factor, epochs=9)


def test_rungs_stand_below_the_last_epoch_only() -> None:
    assert list(Halving(grace_epochs=1, reduction_factor=3, epochs=9).rungs()) == [1, 3]
    assert list(Halving(grace_epochs=1, reduction_factor=3, epochs=9.5).rungs()) == [1, 3, 9]
    assert list(Halving(grace_epochs=1, reduction_factor=1.5, epochs=2).rungs()) == [1, 1.5]
    assert list(Halving(grace_epochs=4, reduction_factor=3, epochs=4).rungs()) == []


@pytest.mark.parametrize("m_recall", [math.nan, math.inf, -math.inf])
def test_a_validation_that_is_not_finite_is_refused(m_recall: float) -> None:
    with pytest.raises(ValueError, match="trial a at epoch 2: got M-Recall"):
        Halving(grace_epochs=1, reduction_factor=3, epochs=9).note("a", 2.0, m_recall)


@pytest.mark.parametrize("difference", [0.0, SAME_EPOCH, -0.5])
def test_a_validation_at_or_before_the_last_one_changes_nothing(difference: float) -> None:
    halving = Halving(grace_epochs=1, reduction_factor=2, epochs=9)
    halving.note("a", 2.0, 20.0)
    assert not halving.note("a", 2.0 + difference, 90.0)
    halving.note("a", 4.0, 10.0)
    assert halving.rungs()[4.0] == {"a": 20.0}, "the best up to the rung, without what changed nothing"


def test_the_decision_at_an_epoch_is_repeated_and_at_any_other_it_is_to_go_on() -> None:
    halving = Halving(grace_epochs=1, reduction_factor=2, epochs=9)
    halving.note("good", 1.0, 50.0)
    assert halving.note("bad", 1.0, 10.0)
    assert halving.note("bad", 1.0, 99.0)
    assert halving.note("bad", 1.0 - SAME_EPOCH / 2, 99.0)
    assert not halving.note("bad", 0.5, 99.0)


def test_a_rung_is_reached_at_its_epoch_and_a_trial_equal_to_the_cutoff_goes_on() -> None:
    halving = Halving(grace_epochs=1, reduction_factor=2, epochs=9)
    halving.note("a", 1.0 - SAME_EPOCH / 2, 40.0)
    halving.note("b", 1.0, 20.0)
    assert halving.rungs()[1.0] == {"a": 40.0, "b": 20.0}
    assert not halving.note("middle", 1.0, 30.0), "the median of 40 and 20"
    assert halving.note("below", 1.0, 29.9)


def test_the_area_under_a_curve_below_one_per_cent_is_its_own() -> None:
    assert Objective("area_under_curve", 4.0).value([(0.0, 0.2), (2.0, 0.6)]) == pytest.approx((2 * 0.2 + 2 * 0.6) / 4)


def test_a_range_of_one_value_has_it_in_the_middle_of_its_unit() -> None:
    space = {"loss.margin": FloatDistribution(0.2, 0.2), "training.learning_rate": FloatDistribution(0.1, 0.5)}
    found = UnitCube(space).vector_of({"loss.margin": 0.2, "training.learning_rate": 0.4})
    assert found.tolist() == pytest.approx([0.5, 0.75])


def test_a_refused_choice_is_named_as_it_is_written() -> None:
    assert (_shown("hardest"), _shown(3), _shown(0.12345678)) == ("hardest", "3", "0.123457")
