"""A report in words: one sentence per row, one line for the whole night."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from vsetune.nightly.measures import ALL_CELLS
from vsetune.nightly.report import ReportRow
from vsetune.nightly.report_words import change_words, value_words

_MOST_NAMED = 3
_TOLD = ("regression", "changed")


def sentence(row: ReportRow, *, trouble: str | None) -> ReportRow:
    """The row with its verdict in one sentence. trouble: why its cell is incomplete tonight."""
    assert row.measure is not None
    name = row.measure.text
    if row.verdict == "missing":
        return replace(row, text=f"{name}: not measured tonight" + (f" ({trouble})" if trouble else ""))
    assert row.tonight is not None
    now = value_words(row.measure, row.tonight)
    if row.verdict == "baseline":
        known = sum(value is not None for value in row.values)
        if row.centre is None:
            return replace(row, text=f"{name}: {now}, night {known} of the baseline")
        return replace(row, text=f"{name}: {now}, not judged yet: {known - 1} nights do not tell how much it varies")
    assert row.centre is not None
    usual = value_words(row.measure, row.centre)
    if row.verdict == "quiet":
        return replace(row, text=f"{name}: {now}, as usual ({usual})")
    how = "better" if row.verdict == "improvement" else "worse"
    drift = ", a drift of several nights" if row.found_by == "drift" else ""
    since = f", since {row.since}" if row.since and row.since != row.dates[-1] else ""
    return replace(row, text=f"{name}: {change_text(row)} {how}, {now} where {usual} is usual{drift}{since}")


def change_text(row: ReportRow) -> str:
    """Distance from the usual value; for first losses, the relative difference."""
    if row.measure is None:
        return "" if row.change is None else f"by up to {row.change:.2g} of their size"
    return change_words(row)


def headline(rows: Sequence[ReportRow], *, needed: int) -> str:
    """The summary of the night in one line. needed: nights of a baseline."""
    counts = Counter(row.verdict for row in rows)
    worse = [row for row in rows if row.verdict in _TOLD]
    if worse:
        kinds = {
            _count(counts["regression"], "regression"): counts["regression"],
            f"{_count(counts['changed'], 'cell')} with changed first losses": counts["changed"],
        }
        found = " and ".join(kind for kind, number in kinds.items() if number)
        one = {row.suspects[0] if row.suspects else "" for row in worse}
        is_shared = len(one) == 1 and len(worse) > 1
        named = "; ".join(_named(row, with_suspect=not is_shared) for row in worse[:_MOST_NAMED])
        more = f"; and {len(worse) - _MOST_NAMED} more" if len(worse) > _MOST_NAMED else ""
        return f"{found}: {named}{more}{_suspect(worse[0]) if is_shared else ''}"
    cells = len({row.cell for row in rows} - {ALL_CELLS})
    measured = sum(row.measure is not None for row in rows)
    missing = f", {counts['missing']} not measured" if counts["missing"] else ""
    better = f", {_count(counts['improvement'], 'improvement')}" if counts["improvement"] else ""
    if counts["baseline"] and not counts["quiet"] - _quiet_bits(rows) and not better:
        nights = max((sum(v is not None for v in row.values) for row in rows if row.verdict == "baseline"), default=0)
        if nights > needed:
            unknown = f"{nights - 1} nights do not tell how much they vary"
            return f"nothing is judged yet: {_count(cells, 'cell')}, {_count(measured, 'measure')}{missing}; {unknown}"
        return f"baseline night {nights} of {needed}: {_count(cells, 'cell')}, {_count(measured, 'measure')}{missing}"
    quiet = counts["quiet"] - _quiet_bits(rows)
    building = f", {counts['baseline']} not judged yet" if counts["baseline"] else ""
    quiet_or_not = "nothing got worse" if better else "nothing changed"
    return f"{quiet_or_not}: {_count(cells, 'cell')}, {_count(quiet, 'measure')} quiet{better}{building}{missing}"


def _quiet_bits(rows: Sequence[ReportRow]) -> int:
    return sum(row.verdict == "quiet" and row.measure is None for row in rows)


def _named(row: ReportRow, *, with_suspect: bool) -> str:
    what = "first losses" if row.measure is None else row.measure.text
    return f"{row.cell} {what} {change_text(row)}{_suspect(row) if with_suspect else ''}"


def _suspect(row: ReportRow) -> str:
    return f" (suspect {row.suspects[0]})" if row.suspects else ""


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
