"""The nights that tonight is compared with, accepted changes, and the history for display."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from datetime import date as Day

from vsetune.errors import UsageError
from vsetune.nightly.history import Accepted, History, is_date
from vsetune.nightly.night import BY_NAME, FIRST_LOSSES, Night, NightReport, known_option
from vsetune.nightly.nightly_spec import WRONG_OPTION

_MOST_DATES = 5


def comparable(nights: Sequence[Night], tonight: Night) -> list[Night]:
    """Earlier nights that measured something under the conditions of tonight, oldest first."""
    return [
        night for night in nights
        if night.date < tonight.date and night.cells and dict(night.conditions) == dict(tonight.conditions)
    ]


def counts_from(accepted: Sequence[Accepted], cell: str, measure: str, date: str) -> str:
    """The ISO date from which nights count for a measure of a cell; empty where nothing was accepted up to `date`."""
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
    after, days = Day.fromisoformat(first), (Day.fromisoformat(last) - Day.fromisoformat(first)).days
    return [(after + timedelta(days=day)).isoformat() for day in range(1, days)]


_MOST_MISSED = 14
"""Most missed nights that are listed one by one; a longer gap is one line."""
_COUNTED = ("regression", "changed", "improvement", "missing", "baseline", "quiet")


@dataclass(frozen=True)
class PastNight:
    """state: of the night, or `missed`. seconds: from start to end. verdicts: number of rows of its report, by verdict.

    exit_code, text: of its report; None and empty where there is none.
    """

    date: str
    state: str
    revision: str = ""
    seconds: float | None = None
    exit_code: int | None = None
    verdicts: dict[str, int] | None = None
    text: str = ""


def past_nights(history: History) -> list[PastNight]:
    """Every night, oldest first, with the missed days between them."""
    found: list[PastNight] = []
    for night in history.nights():
        if found:
            found += _missed(found[-1].date, night.date)
        report = history.report(night.date)
        counts = Counter(str(row.verdict) for row in report.rows) if report else Counter[str]()
        text = ", ".join(f"{counts[verdict]} {verdict}" for verdict in _COUNTED if counts[verdict])
        text = text or (report.headline if report else "") or next(iter(night.problems), "no report")
        found.append(PastNight(
            night.date, night.state, night.revision, _seconds(night), report.exit_code if report else None,
            dict(counts), text,
        ))
    return found


def _missed(before: str, after: str) -> list[PastNight]:
    """The days strictly between two nights; a long gap is one line."""
    days = _dates_between(before, after)
    if len(days) > _MOST_MISSED:
        return [PastNight(days[0], "missed", text=f"and {len(days) - 1} more, until {days[-1]}")]
    return [PastNight(day, "missed") for day in days]


def _seconds(night: Night) -> float | None:
    try:
        return (datetime.fromisoformat(night.ended) - datetime.fromisoformat(night.started)).total_seconds()
    except (ValueError, TypeError):
        return None


_LONGEST_REASON = 1000
_CHANGES = {"regression", "improvement", "changed"}


@dataclass(frozen=True)
class Wish:
    """The change to accept. measure, cell, date: None is all measures, all cells, the newest night."""

    reason: str
    measure: str | None = None
    cell: str | None = None
    date: str | None = None


def accept_change(history: History, name: str, wish: Wish, revision: str) -> Accepted:
    """Nights before an intended change no longer count: write it to the history, under its lock; returns the entry.

    revision: of the running code. UsageError in one line: no reason, an unknown measure or cell, no night of that date,
    the same change accepted already, no change there, or no night at all.
    """
    reason = " ".join(wish.reason.split())
    if not 0 < len(reason) <= _LONGEST_REASON:
        got = f"{len(reason):,} characters" if reason else "nothing"
        need = f"a sentence of at most {_LONGEST_REASON:,} characters on why the change is meant; the history keeps it"
        raise UsageError(WRONG_OPTION(option="--reason", got=got, need=need))
    with history.held():
        nights = history.nights()
        if not nights:
            raise UsageError(
                "VSE-G020", "nightly {name}: has no night yet, so there is nothing to accept; run one first", name=name
            )
        night = _night_to_accept(nights, wish.date, name)
        measure = wish.measure and known_option("--measure", wish.measure, {*BY_NAME, FIRST_LOSSES})
        cells = dict.fromkeys(name for night in reversed(nights) for name in night.cells)
        cell = wish.cell and known_option("--cell", wish.cell, cells)
        at = datetime.now(UTC).isoformat(timespec="seconds")
        accepted = Accepted(night.date, measure, cell, reason, revision, at)
        _require_new(accepted, history.accepted())
        _require_change(accepted, history.report(night.date))
        history.accept(accepted)
    return accepted


def _night_to_accept(nights: Sequence[Night], date: str | None, name: str) -> Night:
    if date is None:
        return nights[-1]
    if not is_date(date):
        raise UsageError(WRONG_OPTION(option="--date", got=date[:40], need="a day as YYYY-MM-DD"))
    found = next((night for night in nights if night.date == date), None)
    if found is None:
        raise UsageError(
            "VSE-G021", "--date: nightly {name} has no night of {date}; need one of its nights, the newest is {newest}",
            name=name, date=date, newest=nights[-1].date,
        )
    return found


def _require_new(accepted: Accepted, before: Sequence[Accepted]) -> None:
    """UsageError when an entry of the same date already covers it."""
    for other in before:
        if other.date == accepted.date and other.measure in (None, accepted.measure) and \
                other.cell in (None, accepted.cell):
            measure, cell = other.measure or "all measures", other.cell or "all cells"
            raise UsageError(
                "VSE-G022", "{date}: is accepted already ({measure}, {cell}: {reason}); there is nothing to accept",
                date=accepted.date, measure=measure, cell=cell, reason=other.reason,
            )


def _require_change(accepted: Accepted, report: NightReport | None) -> None:
    """UsageError when the night's report shows no change there, since accepting needs a new baseline. Without a report
    the change is accepted unchecked."""
    if report is None:
        return
    found = [row for row in report.rows if row.verdict in _CHANGES]
    if not any(accepted.covers(row.cell, row.measure_name) for row in found):
        changed = ", ".join(f"{row.measure_name} of {row.cell}" for row in found[:5]) or "nothing"
        measure, cell = accepted.measure or "any measure", accepted.cell or "any cell"
        raise UsageError(
            "VSE-G023", "{date}: its report shows no change in {measure} of {cell}, so there is nothing to accept "
            "(changed: {changed})", date=accepted.date, measure=measure, cell=cell, changed=changed,
        )
