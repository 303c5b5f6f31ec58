"""What the ledger knows of one trial, attempt by attempt, as the store would have it."""

from __future__ import annotations

from typing import Any

import pytest

from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.cells import build_trial, resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.records.events import AttemptRecord, AttemptStart, ValidationPoint
from vsetune.study.trials import Assignment, TrialProgress

STUDY = parse_spec(
    {"study": "tiny", "data": {"path": "x"}, "networks": [{"name": "vsepp"}], "losses": [{"name": "lmh"}]},
    StudySpec, where="test",
)
CELL = resolve_cells(STUDY, where="test")[0]
TRIAL = build_trial(STUDY, CELL, CELL.defaults(), trial="vsepp.lmh-c000-s1", seed=1)
ASSIGNMENT = Assignment(TRIAL, 0, "search", CELL.defaults())


def start(number: int) -> AttemptStart:
    return AttemptStart(
        study="tiny", trial=TRIAL.trial, cell=CELL.name, network="vsepp", loss="lmh", number=number, seed=1,
        phase="search", configuration={}, resolved={},
    )


def record(number: int, **changes: Any) -> AttemptRecord:
    return AttemptRecord(**{
        "attempt_id": f"id-{number}", "start": start(number), "status": "killed",
        "curve": ((1.0, 10.0 * number), (2.0, 30.0)), "summary": {"epochs": 2.0}, "error": "its process died",
    } | changes)


def point(epoch: float, m_recall: float) -> ValidationPoint:
    return ValidationPoint(step=int(epoch), epoch=epoch, pairs_seen=1, m_recall=m_recall, train_seconds=1.0)


def test_before_the_first_attempt_nothing_is_known() -> None:
    progress = TrialProgress.recorded(ASSIGNMENT, [])
    assert (progress.status, progress.number, progress.epoch, progress.best_m_recall) == ("waiting", 0, 0.0, None)
    assert (progress.curve, progress.error, progress.attempts()) == ([], None, ())
    assert not progress.is_closed


def test_the_last_attempt_of_a_store_is_what_counts() -> None:
    records = [record(1), record(2, status="finished", error=None)]
    progress = TrialProgress.recorded(ASSIGNMENT, records)
    assert (progress.status, progress.number, progress.error) == ("finished", 2, None)
    assert (progress.epoch, progress.best_m_recall) == (2.0, 30.0)
    assert progress.curve == [(1.0, 20.0), (2.0, 30.0)]
    assert progress.attempts() == tuple(records)
    assert progress.is_closed


def test_an_attempt_that_the_store_knows_goes_on_with_its_curve() -> None:
    progress = TrialProgress.recorded(ASSIGNMENT, [record(1)])
    progress.begin("id-1", start(1))
    assert progress.curve == [(1.0, 10.0), (2.0, 30.0)]
    assert [(each.start.number, each.status) for each in progress.attempts()] == [(1, "running")]


def test_a_further_attempt_starts_an_empty_curve_and_the_earlier_ones_stay() -> None:
    progress = TrialProgress.recorded(ASSIGNMENT, [record(1)])
    progress.begin("id-2", start(2))
    assert (progress.status, progress.number, progress.attempt_id) == ("running", 2, "id-2")
    assert (progress.curve, progress.summary, progress.error) == ([], {}, None)
    progress.note([point(1.0, 12.0)])
    progress.summary = {"device_seconds": 5.0}
    first, second = progress.attempts()
    assert first == record(1)
    assert (second.status, second.curve, second.summary) == ("running", ((1.0, 12.0),), {"device_seconds": 5.0})


def test_the_longest_curve_is_that_of_the_attempt_that_came_furthest_and_of_equals_the_latest() -> None:
    curves = [((1.0, 10.0), (4.0, 40.0)), (), ((1.0, 12.0), (2.0, 20.0), (4.0, 39.0)), ((1.0, 50.0),)]
    records = [record(number, curve=curve) for number, curve in enumerate(curves, start=1)]
    assert TrialProgress.recorded(ASSIGNMENT, []).longest_curve == ()
    assert TrialProgress.recorded(ASSIGNMENT, records[:2]).longest_curve == curves[0]
    assert TrialProgress.recorded(ASSIGNMENT, records).longest_curve == curves[2]
    assert TrialProgress.recorded(ASSIGNMENT, records[::-1]).longest_curve == curves[0]


@pytest.mark.parametrize("epoch", [1.0, 2.0])
def test_an_epoch_that_the_curve_has_is_not_repeated(epoch: float) -> None:
    progress = TrialProgress(ASSIGNMENT)
    progress.begin("id-1", start(1))
    progress.note([point(1.0, 10.0), point(2.0, 20.0)])
    progress.note([point(epoch, 99.0), point(3.0, 30.0)])
    assert progress.curve == [(1.0, 10.0), (2.0, 20.0), (3.0, 30.0)]


def test_an_ended_attempt_keeps_what_it_had() -> None:
    progress = TrialProgress(ASSIGNMENT)
    progress.begin("id-1", start(1))
    progress.note([point(1.0, 10.0)])
    progress.end("failed", {"epochs": 1.0}, "loss is not finite")
    (ended,) = progress.attempts()
    assert (ended.attempt_id, ended.status, ended.error) == ("id-1", "failed", "loss is not finite")
    assert (ended.curve, ended.summary) == (((1.0, 10.0),), {"epochs": 1.0})
    assert (progress.status, progress.error, progress.number) == ("failed", "loss is not finite", 1)
    with pytest.raises(AssertionError, match=r"vsepp\.lmh-c000-s1: no attempt is running"):
        _ = progress.attempt_id
