"""A night as one self-contained HTML page: it makes no requests and needs no script."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from vsetune.board.page_templates import render
from vsetune.nightly import report_words as words
from vsetune.nightly.night import CHANGES, NightReport, ReportRow

WIDTH, HEIGHT = 168, 34
_LEFT, _RIGHT, _TOP, _BOTTOM = 3, 6, 5, 5
_FEW_ROWS = 30
"""A report of at most this many rows shows them all unfolded."""


def to_html(report: NightReport) -> str:
    """The whole page as text."""
    cells = {name: list(rows) for name, rows in groupby(report.rows, key=lambda row: row.cell)}
    is_open = {
        name: len(report.rows) <= _FEW_ROWS or any(row.verdict in CHANGES for row in rows)
        for name, rows in cells.items()
    }
    return render(
        "night.html.j2", "vsetune.nightly", report=report, words=words, cells=cells, is_open=is_open,
        sparkline=sparkline, width=WIDTH, height=HEIGHT,
    )


def sparkline(row: ReportRow) -> dict[str, Any] | None:
    """Positions in pixels of a WIDTH x HEIGHT picture; None where no night has a value, and for the first losses.

    path: SVG path data, interrupted at nights without a value. tonight: None without a value. band: (top, height).
    centre: of the band. summary: the picture in words.
    """
    known = [value for value in row.values if value is not None]
    if row.measure is None or not known:
        return None
    bounds = [bound for bound in (row.low, row.high, row.centre) if bound is not None]
    low, high = min(known + bounds), max(known + bounds)

    def x(night: int) -> float:
        last = len(row.values) - 1
        return round(_LEFT + (night / last if last else 1) * (WIDTH - _LEFT - _RIGHT), 2)

    def y(value: float) -> float:
        share = (value - low) / (high - low) if high > low else 0.5
        return round(HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM), 2)

    stretches = [
        " L".join(f"{x(night)} {y(value)}" for night, value in stretch if value is not None)
        for has_value, stretch in groupby(enumerate(row.values), key=lambda night: night[1] is not None) if has_value
    ]
    band = None if row.low is None or row.high is None else (y(row.high), round(y(row.low) - y(row.high), 2))
    return {
        "path": " ".join(f"M{stretch} h0" for stretch in stretches),  # h0: a night alone is a dot
        "tonight": None if row.tonight is None else (x(len(row.values) - 1), y(row.tonight)),
        "band": band, "centre": None if row.centre is None else y(row.centre),
        "summary": f"{len(known)} nights, {row.dates[0]} to {row.dates[-1]}; tonight {words.tonight_words(row)}, "
                   f"quiet nights: {words.band_words(row)}",
    }
