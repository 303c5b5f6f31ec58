"""A time of day in a time zone, and the effect of summer time on it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from vsetune.errors import UsageError

_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
_DAYS_AHEAD = 366
_UTC_NAMES = {"UTC", "Etc/UTC", "Etc/UCT", "UCT", "Zulu", "Etc/Zulu"}


@dataclass(frozen=True)
class DailyTime:
    """Every day at hour:minute by the clock of `zone`, an IANA name; None is the clock of this machine."""

    hour: int
    minute: int
    zone: str | None

    @property
    def clock(self) -> str:
        return f"{self.hour:02}:{self.minute:02}"

    @property
    def is_utc(self) -> bool:
        return self.zone in _UTC_NAMES

    @property
    def text(self) -> str:
        """For display: `02:30 Europe/Berlin`."""
        return f"{self.clock} {self.zone or 'by the clock of this machine'}"

    def cron(self) -> str:
        """The five fields of cron."""
        return f"{self.minute} {self.hour} * * *"


def daily_time(at: str, zone: str | None) -> DailyTime:
    """A daily time from `HH:MM` and an IANA name. UsageError in one line."""
    found = _CLOCK.fullmatch(at.strip())
    if found is None:
        raise UsageError(f"--at: got {at[:40]!r}, need a time of day as HH:MM, such as 02:30")
    if zone is not None:
        _zone(zone)
    return DailyTime(int(found[1]), int(found[2]), zone)


def seen_from(time: DailyTime, zone: str | None, *, start: datetime) -> DailyTime | None:
    """The same moment by the clock of another zone; None where their offset changes within a year of `start`.

    zone: None is the clock of this machine.
    """
    clocks = {_clock(moment, zone) for moment in _moments(time, start)}
    if len(clocks) != 1:
        return None
    ((hour, minute),) = clocks
    return DailyTime(hour, minute, zone)


def in_winter_utc(time: DailyTime, *, start: datetime) -> tuple[DailyTime, bool]:
    """The time in UTC outside summer time, and whether summer time moves it. Without a zone it is the time at `start`:
    the clock of this machine does not report summer time."""
    clocks = [_clock(moment, "UTC") for moment in _moments(time, start) if not _zone(time.zone).dst(moment)]
    hour, minute = clocks[0]
    return DailyTime(hour, minute, "UTC"), seen_from(time, "UTC", start=start) is None


def summer_time_notes(time: DailyTime, *, start: datetime) -> list[str]:
    """One line for each day within a year of `start` on which this time does not exist, or comes twice."""
    zone, notes = _zone(time.zone), []
    for local in _days(time, start):
        moment = local.replace(tzinfo=zone)
        if _seen(moment, time.zone) != local:
            notes.append(f"{time.text}: does not exist on {local.date()} (summer time begins); that night starts at "
                         "another time or not at all")
        elif moment.utcoffset() != moment.replace(fold=1).utcoffset():
            notes.append(f"{time.text}: comes twice on {local.date()} (summer time ends); the night runs once, a "
                         "second start on one date is refused")
    return notes


def _moments(time: DailyTime, start: datetime) -> Iterator[datetime]:
    """The moments of a year; days on which the time does not exist are left out."""
    for local in _days(time, start):
        moment = local.replace(tzinfo=_zone(time.zone))
        if _seen(moment, time.zone) == local:
            yield moment


def _days(time: DailyTime, start: datetime) -> Iterator[datetime]:
    first = datetime(start.year, start.month, start.day, time.hour, time.minute)
    return (first + timedelta(days=day) for day in range(_DAYS_AHEAD))


def _clock(moment: datetime, zone: str | None) -> tuple[int, int]:
    seen = _seen(moment, zone)
    return seen.hour, seen.minute


def _seen(moment: datetime, zone: str | None) -> datetime:
    """The moment by the clock of a zone, as a naive datetime."""
    there = moment.astimezone(UTC).astimezone(None if zone is None else _zone(zone))
    return there.replace(tzinfo=None, fold=0)


def _zone(name: str | None) -> tzinfo:
    if name is None:
        return _LocalClock()
    if name in _UTC_NAMES:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UsageError(
            f"--timezone: got {name[:60]!r}, need a name such as UTC, Europe/Berlin or America/New_York"
        ) from error


class _LocalClock(tzinfo):
    """The clock of this machine according to the C library. The offset includes summer time; `dst` is always 0."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        return None if moment is None else moment.replace(tzinfo=None).astimezone().utcoffset()

    def dst(self, moment: datetime | None) -> timedelta | None:
        return timedelta(0)

    def tzname(self, moment: datetime | None) -> str | None:
        return None if moment is None else moment.replace(tzinfo=None).astimezone().tzname()
