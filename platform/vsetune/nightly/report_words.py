"""A night in words: one sentence for each row, one headline, and the Markdown of a report."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vsetune.board.wording import NOTHING, counted, fixed
from vsetune.errors import one_line
from vsetune.home.addresses import masked
from vsetune.nightly.night import ALARMS, CHANGES, Measure, NightReport, ReportRow, Verdict, seconds_of

_SHOWN = {
    "bytes": (2.0**20, "MiB", 0), "share": (0.01, "%", 1), "points": (1.0, "points", 1), "epochs": (1.0, "epochs", 2),
}
"""(divisor, unit after division, decimal places) by unit; others have three significant digits."""
_LONGEST_TEXT = 2000
_SMALLEST, _LARGEST = 1e-8, 1e15
"""Other numbers are written with an exponent."""
_MOST_NAMED = 3


@dataclass(frozen=True)
class Sign:
    """Display of a verdict or an exit code. mark: one character, so that colour is never the only sign. tone: class of
    the style sheet. meaning: for the legend."""

    mark: str
    tone: str
    meaning: str


SIGNS: dict[Verdict, Sign] = {
    "regression": Sign("✗", "bad", "worse than its band: tonight, or the mean of the last two nights"),
    "changed": Sign("≠", "bad", "the first losses, or the recalls after them, are not those before"),
    "missing": Sign("?", "odd", "not measured tonight"),
    "improvement": Sign("↑", "good", "better than its band"),
    "baseline": Sign("○", "calm", "not judged: too few nights yet, or half as much again would be quiet"),
    "quiet": Sign("✓", "calm", "within its band; first losses equal bit for bit"),
}
"""Signs by verdict, in the order of display: most serious first."""
EXIT_CODES = {
    0: Sign("✓", "good", "Exit code 0: nothing that could be judged is worse than its own nights."),
    1: Sign("✗", "bad", "Exit code 1: something is worse than its own nights, or the first losses differ."),
    2: Sign("!", "odd", "Exit code 2: the night could not run, or is not complete; what was measured is judged."),
}


def plain(text: str, most: int) -> str:
    """Foreign text as one line of at most `most` characters; blank text becomes empty."""
    return one_line(text, most=most) if text.strip() else ""


def presentable(report: NightReport) -> NightReport:
    """The report without secrets and without unprintable characters; the text of a commit may contain anything."""
    def clean(text: str) -> str:
        return masked(plain(text, _LONGEST_TEXT))

    rows = (replace(row, text=clean(row.text), suspects=tuple(map(clean, row.suspects))) for row in report.rows)
    return replace(report, headline=clean(report.headline), notes=tuple(map(clean, report.notes)), rows=tuple(rows))


def findings(rows: Sequence[ReportRow]) -> list[ReportRow]:
    """The rows that changed, most serious first."""
    return sorted((row for row in rows if row.verdict in CHANGES), key=lambda row: list(SIGNS).index(row.verdict))


def counts(rows: Sequence[ReportRow]) -> dict[Verdict, str]:
    """`2 regressions`, `106 quiet`: rows by verdict, most serious first; verdicts without rows are left out."""
    numbers = Counter(row.verdict for row in rows)
    nouns = ("regression", "improvement")
    return {
        verdict: counted(numbers[verdict], verdict) if verdict in nouns else f"{numbers[verdict]} {verdict}"
        for verdict in SIGNS if numbers[verdict]
    }


def headline(rows: Sequence[ReportRow], *, needed: int) -> str:
    """The summary of the night in one line. needed: nights of a baseline."""
    worse = [row for row in findings(rows) if row.verdict in ALARMS]
    count = ", ".join(counts(worse or rows).values())
    if worse:
        named = "; ".join(
            f"{row.cell} {f'{row.measure.text} {change_words(row)}' if row.measure else row.text}"
            for row in worse[:_MOST_NAMED]
        )
        more = f"; and {len(worse) - _MOST_NAMED} more" if len(worse) > _MOST_NAMED else ""
        suspects = dict.fromkeys(row.suspects[0] for row in worse[:_MOST_NAMED] if row.suspects)
        return f"{count}: {named}{more}" + (f" (suspect: {'; '.join(suspects)})" if suspects else "")
    if any(row.measure is not None and row.verdict in ("quiet", "improvement") for row in rows):
        return f"nothing got worse: {count}"
    nights = max((_known(row) for row in rows if row.verdict == "baseline"), default=0)
    if nights > needed:
        return f"nothing can be judged: {count}"
    parts = counts(rows)
    if "baseline" in parts:
        parts["baseline"] = f"{counted(sum(row.verdict == 'baseline' for row in rows), 'measure')} not judged yet"
    return f"baseline night {nights} of {needed}: {', '.join(parts.values())}"


def sentence(row: ReportRow, measure: Measure, trouble: str | None) -> str:
    """The verdict on a measure. trouble: why its cell is incomplete tonight."""
    if row.verdict == "missing":
        return f"{measure.text}: not measured tonight" + (f" ({trouble})" if trouble else "")
    now = f"{measure.text}: {value_words(measure, row.tonight)}"
    if row.verdict == "baseline":
        why = f"night {_known(row)} of the baseline" if row.centre is None else "half as much again would be quiet"
        return f"{now}, not judged: {why}"
    since = f" since {row.since}" if row.since and row.since != row.dates[-1] else ""
    return f"{now}, {change_words(row)}{since} (quiet: {band_words(row)})"


def _known(row: ReportRow) -> int:
    return sum(value is not None for value in row.values)


def value_words(measure: Measure | None, value: float | None) -> str:
    """`58.1 points`; a dash where there is none."""
    if measure is None or value is None:
        return NOTHING
    factor, unit, digits = _SHOWN.get(measure.unit, (1.0, measure.unit, None))
    return f"{_number(value / factor, digits)} {unit}"


def tonight_words(row: ReportRow) -> str:
    """Tonight's value; for the first losses, what they show."""
    return value_words(row.measure, row.tonight) if row.measure else row.text.removeprefix(f"{row.measure_text}: ")


def band_words(row: ReportRow) -> str:
    """`60.2 to 62.1 points`; a dash while there is no band."""
    if row.low is None or row.high is None:
        return NOTHING
    return f"{value_words(row.measure, row.low).partition(' ')[0]} to {value_words(row.measure, row.high)}"


def change_words(row: ReportRow) -> str:
    """`−1.8 points`, `+21.3 %`, for a share `+1.0 pp` (percentage points); a dash where the change is unknown."""
    if row.measure is None or row.change is None:
        return NOTHING
    factor, unit, digits = _SHOWN.get(row.measure.unit, (1.0, row.measure.unit, 2))
    if row.measure.scale == "ratio":
        factor, unit, digits = 0.01, "%", 1
    text = _number(row.change / factor, digits)
    return f"{'+' if row.change > 0 else ''}{text} {'pp' if row.measure.unit == 'share' else unit}"


def _number(value: float, digits: int | None) -> str:
    if value and not _SMALLEST <= abs(value) < _LARGEST:
        return f"{value:.3g}".replace("-", "−")
    if digits is None:
        digits = 0 if value == 0 else max(0, 2 - math.floor(math.log10(abs(value))))
    return fixed(value, digits)


def in_a_line(row: ReportRow) -> str:
    """A finding in one line, for formats without tables."""
    suspect = f"; first suspect: {row.suspects[0]}" if row.suspects else ""
    return f"{SIGNS[row.verdict].mark} {row.cell}, {row.text}{suspect}"


def facts(report: NightReport) -> dict[str, str]:
    """What else a reader of the report needs, by name."""
    commit, plus, edited = report.revision.partition("+")
    seconds = seconds_of(report.started, report.ended)
    ran = f"{report.started[:16].replace('T', ' ')} UTC"
    found = {
        "code": f"{commit[:12]}{plus}{edited}", "ran": ran if seconds is None else f"{ran}, {seconds / 60:.1f} min",
        "nights compared": f"{report.baseline_nights}, verdicts from {report.needed} on",
        "study": report.study, "MLflow run": report.mlflow_run or "", "promise": report.promise,
    }
    return {name: text for name, text in found.items() if text}


MOST_FINDINGS = 50
"""Most rows of the table; the body of an issue has at most 65,536 characters."""
_LONGEST_CELL_TEXT = 300
_BLANK = "\u200b"
_SPECIAL = re.compile(r"([\\`*_\[\]<>|~&$!])")
_MENTION_OR_START = re.compile(r"([@#])(?=\w)|^(?=\d{1,9}[.)](?:\s|$)|[-+=#](?![\w.,]))")


def to_markdown(report: NightReport) -> str:
    """Headline, a table of the findings, notes, facts of the night."""
    sign, found = EXIT_CODES[report.exit_code], findings(report.rows)
    lines = [
        f"## {sign.mark} {escaped(report.nightly)}, night of {escaped(report.date)}", "",
        f"**{escaped(report.headline)}**", "", sign.meaning, "",
    ]
    if found:
        lines += ["| cell | measure | verdict | tonight | quiet nights | change | first suspect |",
                  "| --- | --- | --- | ---: | ---: | ---: | --- |", *map(_in_table, found[:MOST_FINDINGS]), ""]
    if len(found) > MOST_FINDINGS:
        lines += [f"And {len(found) - MOST_FINDINGS} more, on the page.", ""]
    lines += [*(f"- {escaped(note)}" for note in report.notes), ""] if report.notes else []
    lines += ["; ".join(f"{name}: {escaped(text)}" for name, text in facts(report).items())]
    return "\n".join(lines) + "\n"


def _in_table(row: ReportRow) -> str:
    texts = [
        row.cell, row.measure_text, f"{SIGNS[row.verdict].mark} {row.verdict}", tonight_words(row), band_words(row),
        change_words(row), row.suspects[0] if row.suspects else "",
    ]
    return f"| {' | '.join(map(escaped, texts))} |"


def escaped(text: str) -> str:
    """One line that Markdown, also GitHub's, shows verbatim: no markup, no links, no mentions of people or issues."""
    safe = _SPECIAL.sub(r"\\\1", plain(text, _LONGEST_CELL_TEXT)).replace("://", r"\://").replace("www.", r"www\.")
    return _MENTION_OR_START.sub(rf"\1{_BLANK}", safe)
