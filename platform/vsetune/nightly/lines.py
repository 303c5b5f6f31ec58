"""The nights that tonight is compared with, and the gaps between them: other conditions, missed and unfinished nights.

The line of tonight is every earlier night under the same conditions. One night on another machine does not break the
line of the usual machine. A stream (a measure of a cell) counts from its last acceptance on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date as Day
from datetime import timedelta

from vsetune.nightly.history import Accepted
from vsetune.nightly.night import Night

_MOST_DATES = 5


def line_of(nights: Sequence[Night], tonight: Night) -> list[Night]:
    """Earlier nights that measured something under the conditions of tonight, oldest first."""
    return [
        night for night in nights
        if night.date < tonight.date and night.cells and dict(night.conditions) == dict(tonight.conditions)
    ]


def counts_from(accepted: Sequence[Accepted], cell: str, measure: str, date: str) -> str:
    """The ISO date from which the nights of a stream count; empty where nothing was accepted up to `date`."""
    return max((each.date for each in accepted if each.covers(cell, measure) and each.date <= date), default="")


def changed_conditions(nights: Sequence[Night], tonight: Night) -> list[str]:
    """Differences from the newest earlier night with known conditions, one line each."""
    before = next((night for night in reversed(nights) if night.date < tonight.date and night.conditions), None)
    if before is None or not tonight.conditions:
        return []
    return list(_differences(before.conditions, tonight.conditions))


def interruptions(nights: Sequence[Night], tonight: str) -> Iterator[str]:
    """A line for each incomplete night since the last complete one, and one line for the dates without a night."""
    earlier = [night for night in nights if night.date < tonight]
    complete = [night.date for night in earlier if night.state == "complete"]
    since = complete[-1] if complete else ""
    for night in earlier:
        if night.date > since:
            yield f"night {night.date} was {_ending(night)}; it counts for nothing that it did not measure"
    if earlier:
        missed = _dates_between(earlier[-1].date, tonight)
        if missed:
            more = f" and {len(missed) - _MOST_DATES} more" if len(missed) > _MOST_DATES else ""
            yield f"no night ran on {', '.join(missed[:_MOST_DATES])}{more}"


def newer_than(nights: Sequence[Night], date: str) -> str | None:
    """The newest date after `date` that has a night, which means that the clock went back or a past date was requested;
    None if there is none."""
    return max((night.date for night in nights if night.date > date), default=None)


def _ending(night: Night) -> str:
    if not night.ended:
        return f"begun at {night.started} and never finished"
    return night.state


def _differences(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for name in sorted({*before, *now}):
        was, is_ = before.get(name), now.get(name)
        if was != is_:
            yield f"{name}: {'nothing' if is_ is None else is_}, was {'nothing' if was is None else was}"


def _dates_between(first: str, last: str) -> list[str]:
    """ISO days strictly between two."""
    day, end = Day.fromisoformat(first) + timedelta(days=1), Day.fromisoformat(last)
    found = []
    while day < end:
        found.append(day.isoformat())
        day += timedelta(days=1)
    return found
