"""Times of day: as written, by other clocks, and at the begin and end of summer time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from refusals import refused

from vsetune.nightly import messages
from vsetune.nightly.installing.nightly_entry import daily_time, in_winter_utc, seen_from, summer_time_notes
from vsetune.nightly.installing.placing import cron_time

NOW = datetime(2026, 11, 22, tzinfo=UTC)


@pytest.fixture
def berlin() -> Iterator[None]:
    """The clock of this machine goes as in Berlin."""
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize("at", ["24:00", "2:60", "02.30", "", "half past two", "-1:00", "02:30:00"])
def test_another_text_is_no_time_of_day(at: str) -> None:
    with refused(messages.WRONG_OPTION, option="--at", got=repr(at)):
        daily_time(at, "UTC")


@pytest.mark.parametrize("zone", ["Berlin", "CET+1", "../etc/passwd", "", "Europe/", "/etc/localtime"])
def test_another_text_is_no_time_zone(zone: str) -> None:
    with refused(messages.WRONG_OPTION, option="--timezone", got=repr(zone)):
        daily_time("02:30", zone)


def test_a_time_by_the_clock_of_another_zone() -> None:
    assert seen_from(daily_time("2:30", "Asia/Tokyo"), "UTC", start=NOW) == daily_time("17:30", "UTC")
    assert seen_from(daily_time("02:30", "Europe/Berlin"), "UTC", start=NOW) is None
    assert in_winter_utc(daily_time("02:30", "Europe/Berlin"), start=NOW) == (daily_time("01:30", "UTC"), True)
    assert in_winter_utc(daily_time("02:30", "Asia/Kolkata"), start=NOW) == (daily_time("21:00", "UTC"), False)


def test_days_on_which_a_time_is_missing_or_comes_twice_are_noted() -> None:
    missing, twice = summer_time_notes(daily_time("02:30", "Europe/Berlin"), start=NOW)
    assert "does not exist on 2027-03-28" in missing
    assert "comes twice on 2027-10-31" in twice
    assert summer_time_notes(daily_time("04:30", "Europe/Berlin"), start=NOW) == []
    assert summer_time_notes(daily_time("02:30", "UTC"), start=NOW) == []


def test_the_clock_of_this_machine_and_cron_which_goes_by_it(berlin: None) -> None:
    assert len(summer_time_notes(daily_time("02:30", None), start=NOW)) == 2
    assert seen_from(daily_time("02:30", None), "Europe/Berlin", start=NOW) == daily_time("02:30", "Europe/Berlin")
    assert cron_time(daily_time("02:30", "Europe/Paris"), now=NOW).clock == "02:30"
    assert cron_time(daily_time("02:30", None), now=NOW).clock == "02:30"
    with refused(messages.OTHER_CLOCK, zone="UTC"):
        cron_time(daily_time("02:30", "UTC"), now=NOW)
