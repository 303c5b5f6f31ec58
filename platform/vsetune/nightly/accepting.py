"""`vsetune nightly accept`: an intended change begins a new line, with a reason that stays in the history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from vsetune.config.spec.base import known_name
from vsetune.errors import UsageError
from vsetune.nightly.history import Accepted, History, is_date
from vsetune.nightly.night import BY_NAME, FIRST_LOSSES, Night

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
    """Write the accepted change to the history, under its lock; returns the entry.

    revision: of the running code. UsageError in one line: no reason, an unknown measure or cell, no night of that date,
    the same change accepted already, no change there, or no night at all.
    """
    reason = " ".join(wish.reason.split())
    if not reason:
        raise UsageError("--reason: got nothing, need a sentence on why the change is meant; it stays in the history")
    if len(reason) > _LONGEST_REASON:
        raise UsageError(f"--reason: got {len(reason):,} characters, need at most {_LONGEST_REASON:,}; link the rest")
    with history.held():
        nights = history.nights()
        if not nights:
            raise UsageError(f"nightly {name}: has no night yet, so there is nothing to accept; run one first")
        night = _night(nights, wish.date, name)
        accepted = Accepted(
            night.date, _measure(wish.measure), _cell(wish.cell, nights), reason, revision,
            datetime.now(UTC).isoformat(timespec="seconds"),
        )
        _require_new(accepted, history.accepted())
        _require_change(accepted, history.report_plain(night.date))
        history.accept(accepted)
    return accepted


def _night(nights: Sequence[Night], date: str | None, name: str) -> Night:
    if date is None:
        return nights[-1]
    if not is_date(date):
        raise UsageError(f"--date: got {date[:40]!r}, need a day as YYYY-MM-DD")
    found = [night for night in nights if night.date == date]
    if not found:
        raise UsageError(
            f"--date: nightly {name} has no night of {date}; need one of its nights, the newest is {nights[-1].date}"
        )
    return found[0]


def _measure(measure: str | None) -> str | None:
    try:
        return measure and known_name(measure, {*BY_NAME, FIRST_LOSSES}, "measure")
    except ValueError as error:
        raise UsageError(f"--measure: {error}") from error


def _cell(cell: str | None, nights: Sequence[Night]) -> str | None:
    cells = dict.fromkeys(name for night in reversed(nights) for name in night.cells)
    try:
        return cell and known_name(cell, cells, "cell")
    except ValueError as error:
        raise UsageError(f"--cell: {error}") from error


def _require_new(accepted: Accepted, before: Sequence[Accepted]) -> None:
    """UsageError when an entry of the same date already covers it."""
    for other in before:
        if other.date == accepted.date and other.measure in (None, accepted.measure) and \
                other.cell in (None, accepted.cell):
            raise UsageError(
                f"{accepted.date}: is accepted already ({other.measure or 'all measures'}, "
                f"{other.cell or 'all cells'}: {other.reason}); there is nothing to accept"
            )


def _require_change(accepted: Accepted, report: Mapping[str, Any] | None) -> None:
    """UsageError when the night's report shows no change there, since a new line needs a new baseline. Without a report
    the change is accepted unchecked."""
    if report is None:
        return
    found = [
        (row["cell"], (row["measure"] or {}).get("name", FIRST_LOSSES))
        for row in report.get("rows", ()) if row["verdict"] in _CHANGES
    ]
    if not any(accepted.covers(cell, measure) for cell, measure in found):
        told = ", ".join(f"{measure} of {cell}" for cell, measure in found[:5]) or "nothing"
        where = f"{accepted.measure or 'any measure'} of {accepted.cell or 'any cell'}"
        raise UsageError(
            f"{accepted.date}: its report shows no change in {where}, so there is nothing to accept (changed: {told})"
        )
