"""A report in words: one sentence per row, one line for the whole night, and Markdown."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from vsetune.nightly.night import ALL_CELLS, NightReport, ReportRow
from vsetune.nightly.report_words import (
    Finding,
    banner,
    change_words,
    counts,
    findings,
    plain,
    promise_words,
    ran_words,
    revision_words,
    value_words,
)

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
        return replace(row, text=f"{name}: {now}, not judged yet: {known - 1} nights do not show how much it varies")
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
            unknown = f"{nights - 1} nights do not show how much they vary"
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


MOST_FINDINGS = 50
"""Most rows of the table; the body of an issue has at most 65,536 characters."""
_LONGEST_TEXT = 300
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
             f"{report.baseline_nights} nights in this line before tonight"]
    facts += [f"study {escaped(report.study)}"] if report.study else []
    facts += [f"MLflow run {escaped(report.mlflow_run)}"] if report.mlflow_run else []
    lines += [f"{'; '.join(facts)}. {escaped(promise_words(report))}".strip()]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """One line that Markdown, also GitHub's, shows verbatim: no markup, no links, no mentions of people or issues."""
    safe = _SPECIAL.sub(r"\\\1", plain(text, _LONGEST_TEXT))
    safe = _OUTER_UNDERSCORE.sub(r"\\_", safe)
    safe = _AT_START.sub(lambda found: f"{found[1]}\\{found[2]}" if found[1] else f"\\{found[3]}", safe)
    safe = safe.replace("://", r"\://").replace("www.", r"www\.")
    return re.sub(r"([@#])(?=\w)", rf"\1{_BLANK}", safe)


def _table(found: Sequence[Finding]) -> list[str]:
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
