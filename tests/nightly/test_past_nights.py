"""The nights that tonight is compared with, and the notes on missing ones."""

from __future__ import annotations

from collections.abc import Mapping

from vsetune.nightly.history import Accepted
from vsetune.nightly.night import CellNight, Night, NightState
from vsetune.nightly.past_nights import changed_conditions, comparable, counts_from, interruptions

HERE: Mapping[str, str] = {"threads": "1", "data": "a"}
THERE: Mapping[str, str] = {"threads": "2", "data": "a"}


def night(day: int, conditions: Mapping[str, str] = HERE, state: NightState = "complete", ended: str = "x") -> Night:
    cells = {} if state == "failed" or not ended else {"vsepp.lmh": CellNight({})}
    return Night(f"2026-01-{day:02}", "begin", ended, state, "abc", conditions, cells)


def test_a_line_is_all_nights_under_the_conditions_of_tonight() -> None:
    nights = [night(1), night(2, THERE), night(3), night(4, {}, "failed"), night(5, {}, "partial", "")]
    assert [each.date for each in comparable(nights, night(6))] == ["2026-01-01", "2026-01-03"]
    assert [each.date for each in comparable(nights, night(6, THERE))] == ["2026-01-02"]
    assert comparable(nights, night(1)) == []


def test_changed_conditions_are_named_against_the_newest_night_that_knows_them() -> None:
    nights = [night(1, THERE), night(2), night(3, {}, "failed")]
    assert changed_conditions(nights, night(4)) == changed_conditions([], night(4)) == []
    assert changed_conditions(nights, night(4, THERE)) == ["threads: 2, was 1"]
    assert changed_conditions(nights, night(4, {"threads": "1"})) == ["data: nothing, was a"]


def test_missed_partial_and_unfinished_nights_are_noted_since_the_last_complete_one() -> None:
    nights = [
        night(1, state="partial"), night(2), night(3, state="partial"), night(4, {}, "partial", ""),
        night(6, {}, "failed"),
    ]
    assert interruptions(nights, "2026-01-08") == [
        "not complete before tonight: 2026-01-03 partial, 2026-01-04 never finished, 2026-01-06 failed, "
        "2026-01-07 missed"
    ]
    (long,) = interruptions(nights[:2], "2026-02-28")
    assert long.endswith(": 2026-01-03 missed and 55 more, until 2026-02-27")
    assert interruptions([night(1)], "2026-01-02") == interruptions([], "2026-01-02") == []


def test_a_stream_counts_from_its_last_acceptance() -> None:
    accepted = [
        Accepted("2026-01-03", None, None, "all", "abc", ""),
        Accepted("2026-01-05", "epoch_time", "a.b", "one", "abc", ""),
        Accepted("2026-01-09", None, None, "later", "abc", ""),
    ]
    assert counts_from(accepted, "a.b", "epoch_time", "2026-01-08") == "2026-01-05"
    assert counts_from(accepted, "a.b", "pair_rate", "2026-01-08") == "2026-01-03"
    assert counts_from(accepted, "a.b", "pair_rate", "2026-01-02") == ""
