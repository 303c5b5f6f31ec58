"""The first losses of tonight against those of the night before: equal bit for bit, or changed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from vsetune.nightly.history import Accepted
from vsetune.nightly.lines import counts_from
from vsetune.nightly.measures import FIRST_LOSSES
from vsetune.nightly.night import Night
from vsetune.nightly.report import ReportRow, Verdict
from vsetune.nightly.suspects import CommitRange, Suspects, commits_in

_NOBODY = Suspects(())


def judged_first_losses(
    line: Sequence[Night], tonight: Night, cell: str, accepted: Sequence[Accepted]
) -> ReportRow:
    """A row without a measure. line: earlier nights under the conditions of tonight, oldest first.

    What tonight is compared with are the oldest losses that count: a change goes on being told until it is accepted,
    or until the old losses are back. change: the largest relative difference.
    """
    begin = counts_from(accepted, cell, FIRST_LOSSES, tonight.date)
    counted = [night for night in line if night.date >= begin and _losses(night, cell)]
    now = _losses(tonight, cell)
    dates, values = [night.date for night in (*counted, tonight)], [None] * (len(counted) + 1)
    if not now:
        return _row(cell, "missing", dates, values, "first losses: not taken tonight")
    if not counted:
        return _row(cell, "baseline", dates, values, f"first losses: {len(now)} steps, nothing to compare with yet")
    reference = _losses(counted[0], cell)
    if reference == now:
        return _row(cell, "quiet", dates, values, f"first losses: {len(now)} steps equal to the last bit")
    since = _since(counted, tonight, cell, reference)
    step, largest = _difference(reference, now)
    before = [night for night in counted if night.date < since][-1]
    first = next(night for night in (*counted, tonight) if night.date == since)
    suspects = commits_in(CommitRange(before.revision, first.revision))
    told = f"first losses: differ from step {step} on, by up to {largest:.2g} of their size"
    told += "" if since == tonight.date else f", since {since}"
    return _row(cell, "changed", dates, values, told, change=largest, since=since, suspects=suspects)


def _losses(night: Night, cell: str) -> tuple[float, ...]:
    measured = night.cells.get(cell)
    return () if measured is None else tuple(measured.first_losses)


def _since(counted: Sequence[Night], tonight: Night, cell: str, reference: tuple[float, ...]) -> str:
    """The first date of the unbroken run of nights that differ, tonight its last."""
    since = tonight.date
    for night in reversed(counted):
        if _losses(night, cell) == reference:
            break
        since = night.date
    return since


def _difference(reference: Sequence[float], now: Sequence[float]) -> tuple[int, float]:
    """(first step that differs, counted from 1; largest relative difference)."""
    steps = [n for n, (was, is_) in enumerate(zip(reference, now, strict=False), start=1) if was != is_]
    step = steps[0] if steps else min(len(reference), len(now)) + 1
    largest = max((_relative(was, is_) for was, is_ in zip(reference, now, strict=False)), default=0.0)
    return step, largest


def _relative(was: float, is_: float) -> float:
    if was == is_:
        return 0.0
    if not (math.isfinite(was) and math.isfinite(is_)):
        return math.inf
    return abs(is_ - was) / max(abs(was), abs(is_))


def _row(
    cell: str, verdict: Verdict, dates: list[str], values: list[None], text: str, *, change: float | None = None,
    since: str | None = None, suspects: Suspects = _NOBODY,
) -> ReportRow:
    return ReportRow(
        cell=cell, measure=None, verdict=verdict, dates=dates, values=values, tonight=None, change=change, since=since,
        found_by="bits" if verdict == "changed" else "", suspects=suspects.lines,
        suspects_note=suspects.note, text=text,
    )
