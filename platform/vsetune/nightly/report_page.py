"""A night as one self-contained HTML page: it makes no requests and needs no script."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from statistics import median
from typing import Any

from vsetune.nightly import report_words as words
from vsetune.nightly.night import NightReport, ReportRow
from vsetune.nightly.report_words import RowWords, band_ends, band_words, banner, tonight_words
from vsetune.report.page_templates import render
from vsetune.report.wording import NOTHING

WIDTH, HEIGHT = 168, 34
_LEFT, _RIGHT, _TOP, _BOTTOM = 3, 6, 5, 5
_FURTHEST = 5.0
"""Multiple of the spread of the nights, up to which an end of the band is plotted."""
MOST_NIGHTS = 60
"""Most nights that are plotted, the newest ones."""


@dataclass(frozen=True)
class Scale:
    """Linear map of low to high onto start to end, in pixels. Values outside go to the edge; if low equals high, all
    values go to the middle."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return round(self.start + min(1.0, max(0.0, share)) * (self.end - self.start), 2)


@dataclass(frozen=True)
class Sparkline:
    """Positions in pixels of a WIDTH x HEIGHT picture.

    path: SVG path data, interrupted at missing nights. dots: single nights between missing ones. tonight: None without
    a value. band: (top, height) of the quiet nights, up to the edge of the picture where an end is not plotted; None
    without a band. centre: of the band. summary: the picture in words.
    """

    path: str
    dots: Sequence[tuple[float, float]]
    tonight: tuple[float, float] | None
    band: tuple[float, float] | None
    centre: float | None
    summary: str


def sparkline(row: ReportRow) -> Sparkline | None:
    """The picture of a row; None where no night has a value, and for the first losses, which have no scale."""
    nights = [(date.fromisoformat(day).toordinal(), _finite(value))
              for day, value in list(zip(row.dates, row.values, strict=True))[-MOST_NIGHTS:]]
    known = [value for _, value in nights if value is not None]
    if row.measure is None or not known:
        return None
    low, high = band_ends(row)
    first = nights[0][0] if len(nights) > 1 else nights[0][0] - 1  # tonight is at the right end, also alone
    x = Scale(first, nights[-1][0], _LEFT, WIDTH - _RIGHT)
    bottom, top = (_seen(bound, known) for bound in (low, high))
    bounds = [bound for bound in (bottom, top) if bound is not None]
    y = Scale(min([*known, *bounds]), max([*known, *bounds]), HEIGHT - _BOTTOM, _TOP)
    stretches = _stretches(nights)
    path = " ".join(
        "M" + " L".join(f"{x(day)} {y(value)}" for day, value in stretch) for stretch in stretches if len(stretch) > 1
    )
    last_day, last = nights[-1]
    band = None
    if row.low is not None and row.high is not None:
        above, below = 0.0 if top is None else y(top), float(HEIGHT) if bottom is None else y(bottom)
        band = (above, round(below - above, 1))
    centre = _finite(row.centre)
    return Sparkline(
        path, [(x(stretch[0][0]), y(stretch[0][1])) for stretch in stretches if len(stretch) == 1],
        None if last is None else (x(last_day), y(last)), band, None if centre is None else y(centre),
        f"{len(known)} nights, {row.dates[-len(nights)]} to {row.dates[-1]}; tonight {tonight_words(row)}, "
        f"quiet nights: {band_words(row)}",
    )


def _stretches(nights: Sequence[tuple[int, float | None]]) -> list[list[tuple[int, float]]]:
    """Runs of nights without a gap. A gap is 1.5 times the usual interval: a sweep every third day has none."""
    steps = [after[0] - before[0] for before, after in pairwise(nights)]
    usual = median(steps) if steps else 1
    found: list[list[tuple[int, float]]] = []
    before: int | None = None
    for day, value in nights:
        if value is None:
            before = None
            continue
        if before is None or day - before > 1.5 * usual:
            found.append([])
        found[-1].append((day, value))
        before = day
    return found


def _seen(bound: float | None, known: Sequence[float]) -> float | None:
    """An end of the band; None where it is so far away that plotting it would flatten the curve."""
    if bound is None or not math.isfinite(bound):
        return None
    spread = max(known) - min(known)
    is_near = not spread or min(known) - _FURTHEST * spread <= bound <= max(known) + _FURTHEST * spread
    return bound if is_near else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


_FEW_ROWS = 30
"""A report of at most this many rows shows them all unfolded."""


def to_html(report: NightReport) -> str:
    """The whole page as text."""
    cells = [_cell(report, name) for name in dict.fromkeys(row.cell for row in report.rows)]
    return render(
        "night.html.j2", "vsetune.nightly",
        report=report, banner=banner(report), counts=words.counts(report.rows), cells=cells,
        findings=[_with_picture(finding) for finding in words.findings(report)], width=WIDTH, height=HEIGHT,
        ran=words.ran_words(report), revision=words.revision_words(report), promise=words.promise_words(report),
        nothing=NOTHING,
    )


def _cell(report: NightReport, name: str) -> dict[str, Any]:
    """Values of the template for a cell's table. is_open: whether it is unfolded at first."""
    rows = [row for row in report.rows if row.cell == name]
    is_loud = any(row.verdict in ("regression", "changed", "improvement") for row in rows)
    return {
        "name": name, "rows": [_with_picture(words.row_words([row])) for row in rows], "counts": words.counts(rows),
        "is_open": is_loud or len(report.rows) <= _FEW_ROWS,
    }


def _with_picture(finding: RowWords) -> tuple[RowWords, Sparkline | None]:
    return finding, sparkline(finding.rows[0]) if len(finding.rows) == 1 else None
