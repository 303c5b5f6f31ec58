"""Rules of early stopping: slow starters go on while they rise, an interruption changes nothing, and why is said."""

from __future__ import annotations

from statistics import median

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vsetune.config.study.study_spec import SchedulerSpec
from vsetune.search.stopping.rule import StoppingRule
from vsetune.search.stopping.rules import Hyperband, PatienceOverMedian, stopping_rule

Curves = list[list[float]]
EPOCHS = 8.0


def rule(kind: str = "patience", **settings: object) -> StoppingRule:
    made = stopping_rule(SchedulerSpec.model_validate({"kind": kind, **settings}), epochs=EPOCHS)
    assert made is not None
    return made


def train(made: StoppingRule, name: str, recalls: list[float]) -> list[str]:
    """What is said at every validation, one an epoch, until it is stopped."""
    said: list[str] = []
    for n, recall in enumerate(recalls):
        said.append(made.note(name, n + 1.0, recall))
        if said[-1]:
            break
    return said


def others(made: StoppingRule, *levels: float) -> None:
    for n, level in enumerate(levels):
        made.replay(f"o{n}", [(epoch, level + epoch) for epoch in (1.0, 2.0, 3.0, 4.0, 5.0)])


def test_a_trial_that_no_longer_improves_stops_below_the_median_and_says_why() -> None:
    made = rule(patience_epochs=2, grace_epochs=1)
    others(made, 20, 30, 40, 50)
    assert train(made, "low", [10, 25, 24, 23]) == [
        "", "", "", "best 25.0 of epoch 2, below the median 39.0 of 4 others at epoch 4",
    ]


def test_few_others_and_the_grace_stop_nobody() -> None:
    few, graceful = rule(patience_epochs=1, grace_epochs=1), rule(patience_epochs=1, grace_epochs=4)
    others(few, 50, 50, 50)
    others(graceful, 50, 50, 50, 50)
    assert train(few, "low", [2, 1, 1]) == [""] * 3
    assert [bool(why) for why in train(graceful, "low", [2, 1, 1, 1])] == [False, False, False, True]


def test_without_patience_it_is_the_median_rule() -> None:
    made = rule("median", grace_epochs=1)
    others(made, 20, 30, 40, 50)
    assert train(made, "low", [10]) == ["best 10.0, below the median 36.0 of 4 others at epoch 1"]


@hypothesis.settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.floats(0, 100), min_size=8, max_size=8), min_size=5, max_size=9), st.integers(0, 3))
def test_it_is_a_plain_loop_over_all_curves(recalls: Curves, patience: int) -> None:
    made = PatienceOverMedian(grace_epochs=2, patience_epochs=patience, fewest_trials=4, epochs=EPOCHS)
    for n, curve in enumerate(recalls[:-1]):
        made.replay(f"o{n}", [(epoch + 1.0, recall) for epoch, recall in enumerate(curve)])
    for n, recall in enumerate(recalls[-1]):
        stops = bool(made.note("new", n + 1.0, recall))
        so_far = recalls[-1][:n + 1]
        waited = n - so_far.index(max(so_far))
        middle = median(max(curve[:n + 1]) for curve in recalls[:-1])
        assert stops == (2 <= n + 1 < EPOCHS and waited >= patience and max(so_far) < middle)


@pytest.mark.parametrize("kind", ["patience", "median", "asha", "hyperband"])
@hypothesis.settings(deadline=None, max_examples=20)
@given(st.lists(st.lists(st.floats(0, 100), min_size=8, max_size=8), min_size=1, max_size=8), st.data())
def test_a_replay_of_trials_one_after_the_other_leads_to_the_same_decisions(
    kind: str, recalls: Curves, data: st.DataObject
) -> None:
    settings = {"patience_epochs": 1, "fewest_trials": 2, "reduction_factor": 2}
    undisturbed, resumed = rule(kind, **settings), rule(kind, **settings)
    said = [train(undisturbed, f"t{n}", curve) for n, curve in enumerate(recalls)]
    killed = data.draw(st.integers(0, len(recalls) - 1), label="trials before the kill")
    for n in range(killed):
        resumed.replay(f"t{n}", [(epoch + 1.0, recalls[n][epoch]) for epoch in range(len(said[n]))])
    for n in range(killed, len(recalls)):
        assert train(resumed, f"t{n}", recalls[n]) == said[n]


@pytest.mark.parametrize("kind", ["patience", "median", "asha", "hyperband"])
@hypothesis.settings(deadline=None, max_examples=20)
@given(st.lists(st.lists(st.floats(0, 100), min_size=5, max_size=5), min_size=2, max_size=6), st.data())
def test_a_replayed_trial_that_repeats_validations_which_it_had_passed_passes_them_again(
    kind: str, recalls: Curves, data: st.DataObject
) -> None:
    """It goes on from an older checkpoint; side by side, trials had passed while they knew less of one another."""
    resumed = rule(kind, grace_epochs=1, patience_epochs=1, fewest_trials=2, reduction_factor=2)
    for n, curve in enumerate(recalls):
        resumed.replay(f"t{n}", [(epoch + 1.0, m_recall) for epoch, m_recall in enumerate(curve)])
    n = data.draw(st.integers(0, len(recalls) - 1), label="trial that goes on")
    assert train(resumed, f"t{n}", recalls[n])[:-1] == [""] * 4


def test_hyperband_lets_some_trials_start_late_by_their_name_alone() -> None:
    made = Hyperband(grace_epochs=1, reduction_factor=3, epochs=27)
    names = [f"c{n}" for n in range(400)]
    brackets = [made.bracket_of(name) for name in names]
    assert brackets == [Hyperband(grace_epochs=1, reduction_factor=3, epochs=27).bracket_of(name) for name in names]
    counts = [brackets.count(n) for n in range(4)]
    assert counts[0] > counts[1] > max(counts[2:]) >= min(counts[2:]) > 0


def test_no_rule_stops_nobody() -> None:
    assert stopping_rule(SchedulerSpec(kind="none"), epochs=9) is None
