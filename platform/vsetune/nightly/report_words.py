"""A night in words: its numbers, verdicts and sentences, which page, chat and mail share, and its Markdown."""

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

@dataclass(frozen=True)
class RowWords:
    """A row in words. rows: several where measures of a cell are missing."""

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
    if report.exit_code == 1:
        return Sign("Exit code 1: something is worse than its own nights, or the first losses differ.", "✗", "bad")
    if report.exit_code == 2 and report.rows:
        return Sign("Exit code 2: the night is not complete; what was measured is judged.", "!", "odd")
    if report.exit_code == 2:
        return Sign("Exit code 2: the night could not run or not be judged.", "!", "odd")
    if any(row.measure is not None and row.verdict not in ("baseline", "missing") for row in report.rows):
        return Sign("Exit code 0: no measure is worse than its own nights.", "✓", "good")
    return Sign("Exit code 0: nothing was judged yet, there are too few nights.", "○", "calm")


def plain(text: str, most: int) -> str:
    """Foreign text as one line of at most `most` characters; blank text becomes empty."""
    return one_line(text, most=most) if text.strip() else ""


def presentable(report: NightReport) -> NightReport:
    """The report without secrets and without unprintable characters; the text of a commit may contain anything."""
    def clean(text: str) -> str:
        return masked(plain(text, _LONGEST_TEXT))

    rows = (replace(row, text=clean(row.text), suspects=tuple(map(clean, row.suspects))) for row in report.rows)
    return replace(report, headline=clean(report.headline), notes=tuple(map(clean, report.notes)), rows=tuple(rows))


def findings(report: NightReport) -> list[RowWords]:
    """Everything that is neither quiet nor baseline, most serious first."""
    found = [row_words([row]) for row in report.rows if row.verdict in ("regression", "changed", "improvement")]
    for cell in dict.fromkeys(row.cell for row in report.rows):
        rows = [row for row in report.rows if row.cell == cell]
        missing = [row for row in rows if row.verdict == "missing"]
        if missing:
            is_whole = missing == rows and len(rows) > 1
            found.append(row_words(missing, "all its measures" if is_whole else ", ".join(map(measure_words, missing))))
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
    if row.measure is not None:
        return row.measure.text
    return f"recalls after the {FIRST_LOSSES_TEXT}" if row.recalls_alone else FIRST_LOSSES_TEXT


def value_words(measure: Measure | None, value: float | None) -> str:
    """`58.1 points`; a dash where there is none."""
    if measure is None or value is None:
        return NOTHING
    factor, unit, digits = _as_shown(measure, value)
    return f"{_number(value / factor, digits)} {unit}"


def tonight_words(row: ReportRow) -> str:
    """Tonight's value; for the first losses, whether they equal those before."""
    if row.measure is not None:
        return value_words(row.measure, row.tonight)
    if row.recalls_alone:
        return "losses equal, recalls different"
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
        return f"at least {least} {unit}" if most is None else f"at most {most} {unit}"
    return f"{least} to {most} {unit}"


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
        return f"{_signed(100 * row.change, 1)} {unit}"
    return f"{_signed(row.change, _DIGITS.get(row.measure.unit, 2))} {row.measure.unit}"


def in_a_line(finding: RowWords) -> str:
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


def row_words(rows: Sequence[ReportRow], measure: str | None = None) -> RowWords:
    """One row in words, or several of one cell and verdict under one name for their measures."""
    row = rows[0]
    return RowWords(
        rows, SIGNS[row.verdict], row.cell, measure or measure_words(row), tonight_words(row),
        band_words(row) if len(rows) == 1 else NOTHING, change_words(row),
        row.text.removeprefix(f"{row.measure.text if row.measure else FIRST_LOSSES_TEXT}: "), row.suspects,
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


_MOST_NAMED = 3
_TOLD = ("regression", "changed")


def sentence(row: ReportRow, *, trouble: str | None) -> ReportRow:
    """The row with its verdict in one sentence. trouble: why its cell is incomplete tonight."""
    assert row.measure is not None
    return replace(row, text=f"{row.measure.text}: {_verdict(row, row.measure, trouble)}")


def _verdict(row: ReportRow, measure: Measure, trouble: str | None) -> str:
    if row.verdict == "missing":
        return "not measured tonight" + (f" ({trouble})" if trouble else "")
    now, usual = value_words(measure, row.tonight), value_words(measure, row.centre)
    known = sum(value is not None for value in row.values)
    if row.verdict == "baseline" and row.centre is None:
        return f"{now}, night {known} of the baseline"
    if row.verdict == "baseline":
        more = _count(row.quiet_nights or 1, "more quiet night")
        return f"{now}, not judged: after {known - 1} nights a change by half would be quiet; it takes {more}"
    if row.verdict == "quiet":
        return f"{now}, as usual ({usual})"
    how = "better" if row.verdict == "improvement" else "worse"
    since = f", since {row.since}" if row.since and row.since != row.dates[-1] else ""
    return f"{change_text(row)} {how}, {now} where {usual} is usual{since}"


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
        recalls = sum(row.recalls_alone for row in worse)
        losses = counts["changed"] - recalls
        kinds = {
            _count(counts["regression"], "regression"): counts["regression"],
            f"{_count(losses, 'cell')} with changed first losses": losses,
            f"{_count(recalls, 'cell')} with changed recalls after equal first losses": recalls,
        }
        found = " and ".join(kind for kind, number in kinds.items() if number)
        one = {row.suspects[0] if row.suspects else "" for row in worse}
        is_shared = len(one) == 1 and len(worse) > 1
        named = "; ".join(_named(row, with_suspect=not is_shared) for row in worse[:_MOST_NAMED])
        more = f"; and {len(worse) - _MOST_NAMED} more" if len(worse) > _MOST_NAMED else ""
        return f"{found}: {named}{more}{_suspect(worse[0]) if is_shared else ''}"
    cells = len({row.cell for row in rows})
    measured = sum(row.measure is not None for row in rows)
    missing = f", {counts['missing']} not measured" if counts["missing"] else ""
    better = f", {_count(counts['improvement'], 'improvement')}" if counts["improvement"] else ""
    if counts["baseline"] and not counts["quiet"] - _quiet_bits(rows) and not better:
        nights = max((sum(v is not None for v in row.values) for row in rows if row.verdict == "baseline"), default=0)
        if nights > needed:
            more = _count(max(row.quiet_nights or 1 for row in rows), "more quiet night")
            return (
                f"nothing is judged yet: {_count(cells, 'cell')}, {_count(measured, 'measure')}{missing}; after "
                f"{nights - 1} nights a change by half would be quiet, it takes {more}"
            )
        return f"baseline night {nights} of {needed}: {_count(cells, 'cell')}, {_count(measured, 'measure')}{missing}"
    quiet = counts["quiet"] - _quiet_bits(rows)
    building = f", {counts['baseline']} not judged" if counts["baseline"] else ""
    quiet_or_not = "nothing got worse" if better else "nothing changed"
    return f"{quiet_or_not}: {_count(cells, 'cell')}, {_count(quiet, 'measure')} quiet{better}{building}{missing}"


def _quiet_bits(rows: Sequence[ReportRow]) -> int:
    return sum(row.verdict == "quiet" and row.measure is None for row in rows)


def _named(row: ReportRow, *, with_suspect: bool) -> str:
    return f"{row.cell} {measure_words(row)} {change_text(row)}{_suspect(row) if with_suspect else ''}"


def _suspect(row: ReportRow) -> str:
    return f" (suspect {row.suspects[0]})" if row.suspects else ""


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


MOST_FINDINGS = 50
"""Most rows of the table; the body of an issue has at most 65,536 characters."""
_LONGEST_CELL_TEXT = 300
_BLANK = "\u200b"
_SPECIAL = re.compile(r"([\\`*\[\]<>|~&$!])")
_OUTER_UNDERSCORE = re.compile(r"(?<![^\W_])_|_(?![^\W_])")
_AT_START = re.compile(r"^(?:(\d{1,9})([.)])(?=\s|$)|([-+#=])(?![\w.,]))")


def to_markdown(report: NightReport) -> str:
    """Headline, counts by verdict, a table of the findings, notes, facts of the night."""
    sign = banner(report)
    lines = [
        f"## {sign.mark} {escaped(report.nightly)}, night of {escaped(report.date)}", "",
        f"**{escaped(report.headline)}**", "",
        f"{sign.word} {', '.join(sign.counted(number) for sign, number in counts(report.rows)) or 'No rows'}.", "",
    ]
    found = findings(report)
    if found:
        lines += [*_table(found[:MOST_FINDINGS]), ""]
    if len(found) > MOST_FINDINGS:
        lines += [f"And {len(found) - MOST_FINDINGS} more, on the page.", ""]
    if report.notes:
        lines += [*(f"- {escaped(note)}" for note in report.notes), ""]
    facts = [f"code {escaped(revision_words(report))}", f"ran {escaped(ran_words(report))}",
             f"{report.baseline_nights} nights before tonight are compared"]
    facts += [f"study {escaped(report.study)}"] if report.study else []
    facts += [f"MLflow run {escaped(report.mlflow_run)}"] if report.mlflow_run else []
    lines += [f"{'; '.join(facts)}. {escaped(promise_words(report))}".strip()]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """One line that Markdown, also GitHub's, shows verbatim: no markup, no links, no mentions of people or issues."""
    safe = _SPECIAL.sub(r"\\\1", plain(text, _LONGEST_CELL_TEXT))
    safe = _OUTER_UNDERSCORE.sub(r"\\_", safe)
    safe = _AT_START.sub(lambda found: f"{found[1]}\\{found[2]}" if found[1] else f"\\{found[3]}", safe)
    safe = safe.replace("://", r"\://").replace("www.", r"www\.")
    return re.sub(r"([@#])(?=\w)", rf"\1{_BLANK}", safe)


def _table(found: Sequence[RowWords]) -> list[str]:
    rows = [
        [finding.cell, finding.measure, f"{finding.sign.mark} {finding.sign.word}", finding.tonight, finding.band,
         finding.change, finding.suspects[0] if finding.suspects else finding.text]
        for finding in found
    ]
    return [
        "| cell | measure | verdict | tonight | quiet nights | change | first suspect |",
        "| --- | --- | --- | ---: | ---: | ---: | --- |",
        *(f"| {' | '.join(map(escaped, row))} |" for row in rows),
    ]
