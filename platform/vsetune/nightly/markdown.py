"""A night as Markdown, for a step summary of GitHub, an issue or a terminal. Foreign text is escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence

from vsetune.nightly.report import NightReport
from vsetune.nightly.report_words import (
    Finding,
    banner,
    counts,
    findings,
    plain,
    promise_words,
    ran_words,
    revision_words,
)

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
