"""A trial that the study runs, as the state of its log and this process have it, attempt by attempt."""

from __future__ import annotations

import pytest

from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.cells import build_trial, resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.records.events import (
    AttemptStart,
    AttemptStatus,
    Begun,
    Ended,
    Opened,
    StudyRecord,
    Validated,
    ValidationPoint,
    attempt_id,
)
from vsetune.records.state import StudyState
from vsetune.study.trials import PlannedTrial

STUDY = parse_spec(
    {"study": "tiny", "data": {"path": "x"}, "networks": [{"name": "vsepp"}], "losses": [{"name": "lmh"}]},
    StudySpec, where="test",
)
CELL = resolve_cells(STUDY, where="test")[0]
TRIAL = build_trial(STUDY, CELL, CELL.defaults(), trial="vsepp.lmh-c000-s1", seed=1)
CURVE = ((1.0, 10.0), (2.0, 30.0))


class Planned(PlannedTrial):
    """With its events."""

    def begin(self, number: int) -> None:
        self.study.add(Begun(start(number), 1.0))
        self.begun()

    def validate(self, number: int, *curve: tuple[float, float]) -> None:
        points = tuple(ValidationPoint(int(2 * epoch), epoch, 1, m_recall, 7.0) for epoch, m_recall in curve)
        furthest = self.attempts.furthest
        self.study.add(Validated(attempt_id(start(number)), points, 2.0))
        self.validated(furthest)

    def end(self, number: int, status: AttemptStatus, error: str | None = None) -> None:
        self.study.add(Ended(attempt_id(start(number)), status, {"epochs": 2.0}, (), error, 3.0))


def start(number: int) -> AttemptStart:
    return AttemptStart(
        study="tiny", trial=TRIAL.trial, cell=CELL.name, network="vsepp", loss="lmh", number=number, seed=1,
        phase="search", configuration={}, resolved={},
    )


@pytest.fixture
def planned() -> Planned:
    state = StudyState()
    state.add(Opened(StudyRecord("tiny", "beef", {}), 0.0))
    return Planned(state, TRIAL, 0, "search", CELL.defaults())


def test_before_the_first_attempt_nothing_is_known(planned: Planned) -> None:
    assert (planned.status, planned.attempts.number, planned.epoch) == ("waiting", 0, 0.0)
    assert (planned.curve, planned.best_m_recall, planned.error) == ((), None, None)
    assert (planned.attempts, planned.attempts.furthest, planned.attempts.longest_curve) == ((), 0.0, ())
    assert not planned.is_closed


def test_the_last_attempt_is_what_counts(planned: Planned) -> None:
    planned.begin(1)
    planned.validate(1, *CURVE)
    planned.end(1, "killed", "its process died")
    assert (planned.status, planned.error, planned.curve) == ("waiting", "its process died", CURVE)
    planned.begin(2)
    assert (planned.status, planned.error, planned.curve, planned.epoch) == ("running", None, (), 0.0)
    planned.validate(2, (1.0, 20.0), (2.0, 15.0))
    planned.end(2, "finished")
    assert (planned.status, planned.attempts.number, planned.is_closed) == ("finished", 2, True)
    assert (planned.epoch, planned.best_m_recall) == (2.0, 20.0)
    assert [(each.start.number, each.status, each.curve) for each in planned.attempts] == [
        (1, "killed", CURVE), (2, "finished", ((1.0, 20.0), (2.0, 15.0))),
    ]


def test_an_attempt_that_begins_again_goes_on_with_its_curve(planned: Planned) -> None:
    planned.begin(1)
    planned.validate(1, *CURVE)
    planned.end(1, "killed")
    planned.begin(1)
    assert (planned.status, planned.curve, len(planned.attempts)) == ("running", CURVE, 1)


def test_a_failed_trial_that_is_to_run_again_waits_until_it_begins(planned: Planned) -> None:
    planned.begin(1)
    planned.end(1, "failed", "loss is not finite")
    planned.is_again = True
    assert (planned.status, planned.is_closed, planned.error) == ("waiting", False, "loss is not finite")
    planned.begin(2)
    assert (planned.status, planned.error) == ("running", None)


def test_an_interruption_without_an_attempt_is_the_reason_for_which_it_waits(planned: Planned) -> None:
    planned.reason = "its node left"
    assert (planned.status, planned.error) == ("waiting", "its node left")
    planned.begin(1)
    assert planned.error is None


def test_only_a_validation_beyond_all_earlier_ones_ends_a_row_of_interruptions(planned: Planned) -> None:
    planned.begin(1)
    planned.validate(1, *CURVE)
    planned.end(1, "killed")
    planned.interruptions = 3
    planned.begin(2)
    planned.validate(2, (1.0, 20.0))
    assert planned.interruptions == 3
    planned.validate(2, (2.0, 20.0))
    assert planned.interruptions == 3
    planned.validate(2, (2.5, 20.0))
    assert planned.interruptions == 0


def test_the_longest_curve_is_that_of_the_attempt_that_came_furthest_and_of_equals_the_latest(planned: Planned) -> None:
    curves = [((1.0, 10.0), (4.0, 40.0)), (), ((1.0, 12.0), (2.0, 20.0), (4.0, 39.0)), ((1.0, 50.0),)]
    longest = []
    for number, curve in enumerate(curves, start=1):
        planned.begin(number)
        planned.validate(number, *curve)
        planned.end(number, "killed")
        longest.append(planned.attempts.longest_curve)
    assert longest == [curves[0], curves[0], curves[2], curves[2]]
    assert planned.attempts.furthest == 4.0
