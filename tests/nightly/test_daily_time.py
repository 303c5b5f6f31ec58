"""Times of day: as written, by other clocks, and what summer time does to them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from vsetune.errors import UsageError
from vsetune.nightly.installing.local_entries import cron_time
from vsetune.nightly.installing.nightly_entry import daily_time, in_winter_utc, seen_from, summer_time_notes

NOW = datetime(2026, 11, 22, tzinfo=UTC)


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The clock of this machine goes as in Berlin."""
    before = os.environ.get("TZ")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    if before is None:
        monkeypatch.delenv("TZ")
    else:
        monkeypatch.setenv("TZ", before)
    time.tzset()


@pytest.mark.parametrize("at", ["24:00", "2:60", "02.30", "", "half past two", "-1:00", "02:30:00"])
def test_what_is_no_time_of_day_is_told(at: str) -> None:
    with pytest.raises(UsageError, match="need a time of day as HH:MM"):
        daily_time(at, "UTC")


@pytest.mark.parametrize("zone", ["Berlin", "CET+1", "../etc/passwd", "", "Europe/", "/etc/localtime"])
def test_what_is_no_time_zone_is_told(zone: str) -> None:
    with pytest.raises(UsageError, match="need a name such as UTC, Europe/Berlin"):
        daily_time("02:30", zone)


def test_zones_without_summer_time_are_turned_into_one_another() -> None:
    assert seen_from(daily_time("2:30", "Asia/Tokyo"), "UTC", start=NOW) == daily_time("17:30", "UTC")


def test_a_zone_with_summer_time_has_no_constant_time_in_utc() -> None:
    assert seen_from(daily_time("02:30", "Europe/Berlin"), "UTC", start=NOW) is None
    assert in_winter_utc(daily_time("02:30", "Europe/Berlin"), start=NOW) == (daily_time("01:30", "UTC"), True)
    assert in_winter_utc(daily_time("02:30", "Asia/Kolkata"), start=NOW) == (daily_time("21:00", "UTC"), False)


def test_days_on_which_a_time_is_missing_or_comes_twice_are_told() -> None:
    missing, twice = summer_time_notes(daily_time("02:30", "Europe/Berlin"), start=NOW)
    assert "does not exist on 2027-03-28" in missing
    assert "comes twice on 2027-10-31" in twice
    assert summer_time_notes(daily_time("04:30", "Europe/Berlin"), start=NOW) == []
    assert summer_time_notes(daily_time("02:30", "UTC"), start=NOW) == []


def test_the_clock_of_this_machine_is_known_by_its_own_rules(berlin: None) -> None:
    assert len(summer_time_notes(daily_time("02:30", None), start=NOW)) == 2
    assert seen_from(daily_time("02:30", None), "Europe/Berlin", start=NOW) == daily_time("02:30", "Europe/Berlin")


def test_cron_takes_a_zone_that_goes_with_the_clock_of_the_machine_and_no_other(berlin: None) -> None:
    assert cron_time(daily_time("02:30", "Europe/Paris"), now=NOW).clock == "02:30"
    assert cron_time(daily_time("02:30", None), now=NOW).clock == "02:30"
    with pytest.raises(UsageError, match="cron goes by the clock of this machine"):
        cron_time(daily_time("02:30", "UTC"), now=NOW)
