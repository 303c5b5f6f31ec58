"""A night as one self-contained HTML page: it makes no requests, needs no script, and escapes all foreign text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from vsetune.leaderboard.wording import NOTHING
from vsetune.nightly import report_words as words
from vsetune.nightly import sparkline as drawn
from vsetune.nightly.report import NightReport, ReportRow
from vsetune.nightly.report_words import SIGNS, Finding, Sign, banner

_FEW_ROWS = 30
"""A report of at most this many rows shows them all unfolded."""


@dataclass(frozen=True)
class _Shown:
    """A row of a cell's table, in words, with its sparkline."""

    row: ReportRow
    sign: Sign
    measure: str
    tonight: str
    band: str
    change: str
    picture: drawn.Sparkline | None


@dataclass(frozen=True)
class _CellShown:
    """A cell's table. is_open: whether it is unfolded at first."""

    name: str
    rows: Sequence[_Shown]
    counts: Sequence[tuple[Sign, int]]
    is_open: bool


def to_html(report: NightReport) -> str:
    """The whole page as text."""
    cells = [_cell(report, name) for name in dict.fromkeys(row.cell for row in report.rows)]
    return _environment().get_template("night.html.j2").render(
        report=report, banner=banner(report), counts=words.counts(report.rows), cells=cells,
        findings=[(finding, _pictures(finding)) for finding in words.findings(report)], drawn=drawn,
        ran=words.ran_words(report), revision=words.revision_words(report), promise=words.promise_words(report),
        nothing=NOTHING,
    )


def to_mail_html(report: NightReport) -> str:
    """The short form for a mail, with styles in the elements, since mail readers drop style sheets."""
    return _environment().get_template("mail.html.j2").render(
        report=report, banner=banner(report), counts=words.counts_in_words(report.rows),
        revision=words.revision_words(report),
        findings=words.findings(report),
    )


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("vsetune.nightly", "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )


def _cell(report: NightReport, name: str) -> _CellShown:
    rows = [row for row in report.rows if row.cell == name]
    shown = [
        _Shown(row, SIGNS[row.verdict], words.measure_words(row), words.tonight_words(row), words.band_words(row),
               words.change_words(row), drawn.sparkline(row))
        for row in rows
    ]
    is_loud = any(row.verdict in ("regression", "changed", "improvement") for row in rows)
    return _CellShown(name, shown, words.counts(rows), is_open=is_loud or len(report.rows) <= _FEW_ROWS)


def _pictures(finding: Finding) -> drawn.Sparkline | None:
    return drawn.sparkline(finding.rows[0]) if len(finding.rows) == 1 else None
