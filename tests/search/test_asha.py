"""Halving stops what Ray's ASHA stops, and an interruption changes none of it."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import hypothesis
from hypothesis import given
from hypothesis import strategies as st
from ray.tune.schedulers import ASHAScheduler, TrialScheduler

from vsetune.search.stopping.rules import Halving

Curve = list[tuple[float, float]]

recalls = st.floats(0, 100, allow_nan=False)
settings_of_halving = st.fixed_dictionaries({
    "grace_epochs": st.sampled_from([0.3, 0.5, 1.0, 2.0]), "reduction_factor": st.sampled_from([1.5, 2.0, 3.0, 4.0]),
    "epochs": st.sampled_from([4.0, 9.0, 10.0]),
})


@st.composite
def curves(draw: st.DrawFn, *, gap: float | None = None) -> list[Curve]:
    """What sequential trials of ten epochs would show if nothing stopped them; all validated at the same gap."""
    step = gap or draw(st.sampled_from([0.25, 0.5, 1.0, 2.5]))
    count = int(10 / step)
    return [
        [(step * (n + 1), recall) for n, recall in enumerate(values)]
        for values in draw(st.lists(st.lists(recalls, min_size=count, max_size=count), min_size=1, max_size=8))
    ]


def train(halving: Halving, name: str, curve: Sequence[tuple[float, float]], *, epochs: float) -> Curve:
    """The part of a curve that a worker gets to train, from where the trial stands: until stopped or at its end."""
    seen: Curve = []
    for epoch, m_recall in curve:
        seen.append((epoch, m_recall))
        if halving.note(name, epoch, m_recall) or epoch >= epochs:
            break
    return seen


@hypothesis.settings(deadline=None)
@given(settings_of_halving, curves(), st.data())
def test_rungs_and_curves_after_a_kill_and_a_replay_are_those_of_an_undisturbed_study(
    settings: dict[str, float], planned: list[Curve], data: st.DataObject
) -> None:
    undisturbed = Halving(**settings)
    trained = [train(undisturbed, f"t{n}", curve, epochs=settings["epochs"]) for n, curve in enumerate(planned)]

    killed = data.draw(st.integers(0, len(planned) - 1), label="trial that is open when the process dies")
    recorded = [*trained[:killed], trained[killed][:data.draw(st.integers(0, len(trained[killed])), label="points")]]
    resumed = Halving(**settings)
    for n, curve in enumerate(recorded):
        resumed.replay(f"t{n}", curve)
    again = recorded[:killed]
    is_stopped = bool(recorded[killed]) and resumed.note(f"t{killed}", *recorded[killed][-1])
    if is_stopped or (recorded[killed] and recorded[killed][-1][0] >= settings["epochs"]):
        again.append(recorded[killed])
    else:  # from a checkpoint somewhere before the last recorded point, or from the start
        kept = data.draw(st.integers(0, len(recorded[killed])), label="points in the checkpoint")
        rest = train(resumed, f"t{killed}", planned[killed][kept:], epochs=settings["epochs"])
        again.append(recorded[killed][:kept] + rest)
    for n, curve in list(enumerate(planned))[killed + 1:]:
        again.append(train(resumed, f"t{n}", curve, epochs=settings["epochs"]))

    assert again == trained
    assert resumed.rungs() == undisturbed.rungs()


@hypothesis.settings(deadline=None)
@given(settings_of_halving.filter(lambda found: found["grace_epochs"] >= 0.5), st.data())
def test_decisions_are_those_of_rays_asha_where_no_two_rungs_are_passed_at_once(
    settings: dict[str, float], data: st.DataObject
) -> None:
    """Trials in any order, four at a time. Gaps of 0.25 never pass two rungs: the nearest are 0.25 apart or more."""
    planned = dict(enumerate(data.draw(curves(gap=0.25))))
    ours = Halving(**settings)
    theirs = ASHAScheduler(
        time_attr="epoch", metric="best", mode="max", max_t=settings["epochs"],  # type: ignore[arg-type]
        grace_period=settings["grace_epochs"], reduction_factor=settings["reduction_factor"],  # type: ignore[arg-type]
    )
    trials = {n: SimpleNamespace(trial_id=str(n)) for n in planned}
    for trial in trials.values():
        theirs.on_trial_add(None, trial)  # type: ignore[arg-type]
    position = dict.fromkeys(planned, 0)
    while planned:
        n = data.draw(st.sampled_from(sorted(planned)[:4]))
        epoch, m_recall = planned[n][position[n]]
        position[n] += 1
        result = {"epoch": epoch, "best": max(recall for _, recall in planned[n][:position[n]])}
        stops = ours.note(str(n), epoch, m_recall)
        asha = theirs.on_trial_result(None, trials[n], result)  # type: ignore[arg-type]
        assert (bool(stops) or epoch >= settings["epochs"]) == (asha == TrialScheduler.STOP)
        if asha == TrialScheduler.STOP:
            theirs.on_trial_complete(None, trials[n], result)  # type: ignore[arg-type]
            del planned[n]


def test_an_unfinished_trial_keeps_its_place_in_the_low_rungs() -> None:
    """The example of the issue: left out, it filled the first rung with the 55.1 it had reached at epoch 5."""
    halving = Halving(grace_epochs=1, reduction_factor=3, epochs=9)
    halving.replay("open", [(1.0, 23.6), (2.0, 40.0), (3.0, 47.2), (4.0, 52.0)])
    assert not halving.note("open", 5.0, 55.1)
    assert halving.rungs() == {1.0: {"open": 23.6}, 3.0: {"open": 47.2}}
    assert not halving.note("better", 1.0, 30.0)


def test_a_validation_that_passes_several_rungs_fills_the_highest_only_and_the_others_never() -> None:
    halving = Halving(grace_epochs=0.1, reduction_factor=3, epochs=9)  # 0.1, 0.3, 0.9, 2.7, 8.1; validated every epoch
    for epoch in range(1, 9):
        assert not halving.note("first", float(epoch), 10.0 * epoch)
    found = list(halving.rungs().values())
    assert found == [{}, {}, {"first": 10.0}, {"first": 30.0}, {}]
    assert halving.note("second", 1.0, 9.0)
    assert not halving.note("third", 1.0, 10.0)
    assert not halving.note("third", 2.0, 0.0), "no rung between 1 and 2"


def test_an_open_trial_is_judged_again_by_those_before_it() -> None:
    """Killed after the validation was recorded, before the stop was: the same decision, later arrivals or not."""
    halving = Halving(grace_epochs=1, reduction_factor=2, epochs=8)
    halving.replay("c0", [(1.0, 50.0), (2.0, 60.0)])
    halving.replay("c1", [(1.0, 40.0)])
    halving.replay("c2", [(1.0, 90.0)])
    assert halving.note("c1", 1.0, 40.0)
    assert not halving.note("c2", 1.0, 90.0)


def test_a_trial_at_its_end_is_not_stopped_and_counts() -> None:
    halving = Halving(grace_epochs=3, reduction_factor=3, epochs=10)
    assert not halving.note("good", 10.0, 50.0)
    assert not halving.note("bad", 10.0, 5.0)
    assert halving.rungs() == {3.0: {}, 9.0: {"good": 50.0, "bad": 5.0}}
