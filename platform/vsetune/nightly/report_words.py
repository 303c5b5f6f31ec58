"""Numbers and verdicts of a night in words; the page, Markdown, chat and mail use the same ones."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from vsetune.errors import one_line
from vsetune.nightly.night import Measure, NightReport, ReportRow, Verdict
from vsetune.report.wording import NOTHING, fixed
from vsetune.storage.addresses import masked

FIRST_LOSSES_TEXT = "first losses"
_BYTES = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"))
_DIGITS = {"points": 1, "epochs": 2}
_LONGEST_TEXT = 2000
_COMMIT = re.compile(r"^([0-9a-f]{12})[0-9a-f]{28}(?![0-9a-f])")
_FURTHEST = 10.0
_LARGEST = 1e15
"""Larger numbers are written with an exponent."""


@dataclass(frozen=True)
class Sign:
    """Display of a verdict. mark: one character, so that colour is never the only sign. tone: class of the style sheet.
    """

    word: str
    mark: str
    tone: str

    def counted(self, number: int) -> str:
        """`2 regressions`, `9 missing`."""
        is_noun = self.word in ("regression", "improvement")
        return f"{number} {self.word}{'s' if is_noun and number != 1 else ''}"


SIGNS: dict[Verdict, Sign] = {
    "regression": Sign("regression", "✗", "bad"),
    "changed": Sign("changed", "≠", "bad"),
    "missing": Sign("missing", "?", "odd"),
    "improvement": Sign("improvement", "↑", "good"),
    "baseline": Sign("baseline", "○", "calm"),
    "quiet": Sign("quiet", "✓", "calm"),
}
"""Signs by verdict, in the order of display: most serious first."""

_EXIT_WORDS = {
    0: Sign("Exit code 0: no measure is worse than its own nights.", "✓", "good"),
    1: Sign("Exit code 1: something is worse than its own nights, or the first losses differ.", "✗", "bad"),
    2: Sign("Exit code 2: the night could not run or not be judged.", "!", "odd"),
}
_NOT_WHOLE = Sign("Exit code 2: the night is not complete; what was measured is judged.", "!", "odd")


_NOTHING_JUDGED = Sign("Exit code 0: nothing was judged yet, the line has too few nights.", "○", "calm")


@dataclass(frozen=True)
class Finding:
    """A verdict that is neither quiet nor baseline, in words. rows: several where measures of a cell are missing."""

    rows: Sequence[ReportRow]
    sign: Sign
    cell: str
    measure: str
    tonight: str
    band: str
    change: str
    text: str
    suspects: Sequence[str]


def banner(report: NightReport) -> Sign:
    """The meaning of the exit code. A night without a verdict on any measure is not called good."""
    is_judged = any(row.measure is not None and row.verdict not in ("baseline", "missing") for row in report.rows)
    if report.exit_code == 0 and not is_judged:
        return _NOTHING_JUDGED
    return _NOT_WHOLE if report.exit_code == 2 and report.rows else _EXIT_WORDS[report.exit_code]


def plain(text: str, most: int) -> str:
    """Foreign text as one line of at most `most` characters; blank text becomes empty."""
    return one_line(text, most=most) if text.strip() else ""


def presentable(report: NightReport) -> NightReport:
    """The report without secrets and without unprintable characters; the text of a commit may contain anything."""
    def clean(text: str) -> str:
        return masked(plain(text, _LONGEST_TEXT))

    rows = (replace(row, text=clean(row.text), suspects=tuple(map(clean, row.suspects))) for row in report.rows)
    return replace(report, headline=clean(report.headline), notes=tuple(map(clean, report.notes)), rows=tuple(rows))


def findings(report: NightReport) -> list[Finding]:
    """Everything that is neither quiet nor baseline, most serious first."""
    found = [_finding([row], measure_words(row)) for row in report.rows
             if row.verdict in ("regression", "changed", "improvement")]
    for cell in dict.fromkeys(row.cell for row in report.rows):
        rows = [row for row in report.rows if row.cell == cell]
        missing = [row for row in rows if row.verdict == "missing"]
        if missing:
            names = ", ".join(map(measure_words, missing))
            found.append(_finding(missing, "all its measures" if missing == rows and len(rows) > 1 else names))
    order = list(SIGNS)
    return sorted(found, key=lambda finding: order.index(finding.rows[0].verdict))


def counts(rows: Sequence[ReportRow]) -> list[tuple[Sign, int]]:
    """Number of rows by verdict, most serious first; verdicts without rows are left out."""
    counted = Counter(row.verdict for row in rows)
    return [(sign, counted[verdict]) for verdict, sign in SIGNS.items() if counted[verdict]]


def counts_in_words(rows: Sequence[ReportRow]) -> str:
    """`2 regressions, 106 quiet`."""
    return ", ".join(sign.counted(number) for sign, number in counts(rows)) or "nothing was measured"


def revision_words(report: NightReport) -> str:
    """The first 12 digits of a commit and its suffix: `3f2a9c1e77b0+changes`."""
    return _COMMIT.sub(r"\1", report.revision)


def promise_words(report: NightReport) -> str:
    """The promise as a sentence; empty without a promise."""
    promise = report.promise.strip().rstrip(".")
    return f"{promise[0].upper()}{promise[1:]}." if promise else ""


def ran_words(report: NightReport) -> str:
    """`2026-11-21 02:00 to 02:09 UTC (9.0 min)`; the texts of the report where they are not valid times."""
    try:
        started, ended = (datetime.fromisoformat(text) for text in (report.started, report.ended))
        minutes = (ended - started).total_seconds() / 60
    except (ValueError, TypeError):  # no time, or one with a zone and one without
        return f"{report.started} to {report.ended}"
    end = f"{ended:%H:%M}" if started.date() == ended.date() else f"{ended:%Y-%m-%d %H:%M}"
    zone = " UTC" if not started.utcoffset() else f" {started:%Z}"
    return f"{started:%Y-%m-%d %H:%M} to {end}{zone} ({fixed(minutes, 0 if minutes >= 10 else 1)} min)"


def measure_words(row: ReportRow) -> str:
    return row.measure.text if row.measure is not None else FIRST_LOSSES_TEXT


def value_words(measure: Measure | None, value: float | None) -> str:
    """`58.1 points`; a dash where there is none."""
    if measure is None or value is None:
        return NOTHING
    factor, unit, digits = _as_shown(measure, value)
    return _with_unit(_number(value / factor, digits), unit)


def tonight_words(row: ReportRow) -> str:
    """Tonight's value; for the first losses, whether they equal the line's."""
    if row.measure is not None:
        return value_words(row.measure, row.tonight)
    return {"quiet": "equal", "changed": "different", "baseline": "kept"}.get(row.verdict, NOTHING)


def band_words(row: ReportRow) -> str:
    """`60.2 to 62.1 points`, `at most 19.2 %`; a dash while there is no band."""
    if row.measure is None:
        return "equal bit for bit"
    if row.low is None or row.high is None:
        return NOTHING
    low, high = band_ends(row)
    if low is None and high is None:
        return "any value so far"
    factor, unit, digits = _as_shown(row.measure, row.high if high is not None else row.low)
    least, most = (None if bound is None else _number(bound / factor, digits) for bound in (low, high))
    if least is None or most is None:
        return _with_unit(f"at least {least}" if most is None else f"at most {most}", unit)
    return _with_unit(f"{least} to {most}", unit)


def band_ends(row: ReportRow) -> tuple[float | None, float | None]:
    """Lowest and highest quiet value; None where every value on that side is quiet, and before there is a band.

    After few nights bands are wide: an end at a tenth or ten times the usual time counts as no end.
    """
    if row.measure is None or row.low is None or row.high is None:
        return None, None
    least, most = 0.0, row.measure.most
    if row.measure.scale == "ratio" and row.centre is not None:
        least, most = row.centre / _FURTHEST, row.centre * _FURTHEST
    return None if row.low <= least < row.high else row.low, None if row.high >= most > row.low else row.high


def change_words(row: ReportRow) -> str:
    """`−1.8 points`, `+21.3 %`, for a share `+1.0 pp` (percentage points); a dash where the change is unknown."""
    if row.measure is None or row.change is None:
        return NOTHING
    if row.measure.scale == "ratio" or row.measure.unit == "share":
        unit = "%" if row.measure.scale == "ratio" else "pp"
        return _with_unit(_signed(100 * row.change, 1), unit)
    return _with_unit(_signed(row.change, _DIGITS.get(row.measure.unit, 2)), row.measure.unit)


def in_a_line(finding: Finding) -> str:
    """A finding in one line, for formats without tables."""
    parts = [f"{finding.sign.mark} {finding.cell}: {finding.measure}, {finding.sign.word}"]
    if finding.tonight != NOTHING:
        against = f" (quiet: {finding.band})" if finding.band != NOTHING else ""
        parts.append(f"tonight {finding.tonight}{against}")
    if finding.change != NOTHING:
        parts.append(finding.change)
    if finding.suspects:
        parts.append(f"first suspect: {finding.suspects[0]}")
    elif finding.text:
        parts.append(finding.text)
    return "; ".join(parts)


def _finding(rows: Sequence[ReportRow], measure: str) -> Finding:
    row = rows[0]
    return Finding(
        rows, SIGNS[row.verdict], row.cell, measure, tonight_words(row),
        band_words(row) if len(rows) == 1 else NOTHING, change_words(row),
        row.text.removeprefix(f"{measure_words(row)}: "), row.suspects,
    )


def _as_shown(measure: Measure, reference: float) -> tuple[float, str, int | None]:
    """Divisor, unit after division, number of decimal places; None: three significant digits."""
    if measure.unit == "bytes":
        factor, unit = next(((factor, unit) for factor, unit in _BYTES if abs(reference) >= factor), (1.0, "bytes"))
        return factor, unit, None
    if measure.unit == "share":
        return 0.01, "%", 1
    return 1.0, measure.unit, _DIGITS.get(measure.unit)


def _number(value: float, digits: int | None) -> str:
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else "∞"
    if digits is None:
        digits = 0 if value == 0 else max(0, 2 - math.floor(math.log10(abs(value))))
    if abs(value) >= _LARGEST or digits > 8:
        return f"{value:.3g}".replace("-", "−")
    return fixed(value, digits)


def _signed(value: float, digits: int) -> str:
    text = _number(value, digits)
    return f"+{text}" if value > 0 else text


def _with_unit(text: str, unit: str) -> str:
    return f"{text} {unit}"
