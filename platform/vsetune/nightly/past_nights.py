"""The nights that tonight is compared with, the nights that there were, and accepted changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from datetime import date as Day

from vsetune.errors import UsageError
from vsetune.nightly.history import Accepted, History, is_date
from vsetune.nightly.night import BY_NAME, CHANGES, FIRST_LOSSES, Night, known_option, seconds_of
from vsetune.nightly.nightly_spec import WRONG_OPTION
from vsetune.nightly.report_words import counts
from vsetune.version import git_revision

_MOST_MISSED = 14
"""Most missed nights that are listed one by one; a longer gap is one line."""
_LONGEST_REASON = 1000


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
    known = [night.conditions for night in nights if night.date < tonight.date and night.conditions]
    if not known or not tonight.conditions:
        return []
    before, now = known[-1], tonight.conditions
    return [
        f"{name}: {now.get(name, 'nothing')}, was {before.get(name, 'nothing')}"
        for name in sorted({*before, *now}) if before.get(name) != now.get(name)
    ]


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


def interruptions(nights: Sequence[Night], tonight: str) -> list[str]:
    """The nights since the last complete one that are not complete or missed, in one line; none where there is none."""
    found: list[str] = []
    for night in nights:
        state = night.state if night.ended else "never finished"
        found = [] if night.state == "complete" else [*found, f"{night.date} {state}"]
    missed = _missed(nights[-1].date, tonight) if nights else []
    found += [" ".join(filter(None, (day.date, day.state, day.text))) for day in missed]
    return [f"not complete before tonight: {', '.join(found[-_MOST_MISSED:])}"] if found else []


def past_nights(history: History) -> list[PastNight]:
    """Every night, oldest first, with the missed days between them."""
    found: list[PastNight] = []
    for night in history.nights():
        found += _missed(found[-1].date, night.date) if found else []
        report = history.report(night.date)
        rows = report.rows if report else ()
        text = ", ".join(counts(rows).values()) or (report.headline if report else "")
        found.append(PastNight(
            night.date, night.state, night.revision, seconds_of(night.started, night.ended),
            report.exit_code if report else None, dict(Counter(row.verdict for row in rows)),
            text or next(iter(night.problems), "no report"),
        ))
    return found


def _missed(before: str, after: str) -> list[PastNight]:
    """The days strictly between two; a long gap is one entry."""
    first, count = Day.fromisoformat(before), (Day.fromisoformat(after) - Day.fromisoformat(before)).days
    days = [(first + timedelta(days=day)).isoformat() for day in range(1, count)]
    if len(days) > _MOST_MISSED:
        return [PastNight(days[0], "missed", text=f"and {len(days) - 1} more, until {days[-1]}")]
    return [PastNight(day, "missed") for day in days]


def accept_change(
    history: History, reason: str, measure: str | None, cell: str | None, date: str | None
) -> Accepted:
    """Nights before an intended change no longer count: write it to the history, under its lock; returns the entry.

    measure, cell, date: None is all measures, all cells, the newest night. UsageError in one line: no reason, an
    unknown measure or cell, no night of that date, the same change accepted already, no change there, or no night.
    """
    reason, name = " ".join(reason.split()), history.folder.name
    if not 0 < len(reason) <= _LONGEST_REASON:
        got = f"{len(reason):,} characters" if reason else "nothing"
        need = f"a sentence of at most {_LONGEST_REASON:,} characters on why the change is meant; the history keeps it"
        raise UsageError(WRONG_OPTION(option="--reason", got=got, need=need))
    if date is not None and not is_date(date):
        raise UsageError(WRONG_OPTION(option="--date", got=date[:40], need="a day as YYYY-MM-DD"))
    with history.held():
        nights = history.nights()
        if not nights:
            raise UsageError(
                "VSE-G020", "nightly {name}: has no night yet, so there is nothing to accept; run one first", name=name
            )
        date = date or nights[-1].date
        if date not in (night.date for night in nights):
            raise UsageError(
                "VSE-G021", "--date: nightly {name} has no night of {date}; need one of its nights, the newest is "
                "{newest}", name=name, date=date, newest=nights[-1].date,
            )
        if measure is not None:
            known_option("--measure", measure, {*BY_NAME, FIRST_LOSSES})
        if cell is not None:
            known_option("--cell", cell, dict.fromkeys(cell for night in reversed(nights) for cell in night.cells))
        at = datetime.now(UTC).isoformat(timespec="seconds")
        accepted = Accepted(date, measure, cell, reason, git_revision(), at)
        _require_change(accepted, history)
        history.accept(accepted)
    return accepted


def _require_change(accepted: Accepted, history: History) -> None:
    """UsageError when the change is accepted already, or the night's report shows none there, since accepting needs a
    new baseline. Without a report the change is accepted unchecked."""
    for other in history.accepted():
        if other.date == accepted.date and other.covers(accepted.cell, accepted.measure):
            raise UsageError(
                "VSE-G022", "{date}: is accepted already ({measure}, {cell}: {reason}); there is nothing to accept",
                date=accepted.date, measure=other.measure or "all measures", cell=other.cell or "all cells",
                reason=other.reason,
            )
    report = history.report(accepted.date)
    found = [row for row in report.rows if row.verdict in CHANGES] if report else []
    if report and not any(accepted.covers(row.cell, row.measure_name) for row in found):
        raise UsageError(
            "VSE-G023", "{date}: its report shows no change in {measure} of {cell}, so there is nothing to accept "
            "(changed: {changed})", date=accepted.date, measure=accepted.measure or "any measure",
            cell=accepted.cell or "any cell",
            changed=", ".join(f"{row.measure_name} of {row.cell}" for row in found[:5]) or "nothing",
        )
