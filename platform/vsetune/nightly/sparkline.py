"""Geometry of one row's nights: a small curve with the band of quiet nights behind it. No markup."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from statistics import median

from vsetune.leaderboard.axis_scale import Scale
from vsetune.nightly.report import ReportRow
from vsetune.nightly.report_words import band_ends, band_words, tonight_words

WIDTH, HEIGHT = 168, 34
_LEFT, _RIGHT, _TOP, _BOTTOM = 3, 6, 5, 5
_FURTHEST = 5.0
"""Times the spread of the nights."""
MOST_NIGHTS = 60
"""The newest ones are drawn."""


@dataclass(frozen=True)
class Sparkline:
    """Positions in pixels of a WIDTH x HEIGHT picture.

    path: SVG path data, begun anew after a night that is missing. dots: nights between two missing ones. tonight: None
    where it has no value. band: (top, height) of the quiet nights, to the edge of the picture where it ends beyond;
    None without one. centre: of the line. summary: the picture in words.
    """

    path: str
    dots: Sequence[tuple[float, float]]
    tonight: tuple[float, float] | None
    band: tuple[float, float] | None
    centre: float | None
    summary: str


def sparkline(row: ReportRow) -> Sparkline | None:
    """None where fewer than one night has a value, and for the first losses, which are no numbers on a scale."""
    nights = [(date.fromisoformat(day).toordinal(), _finite(value))
              for day, value in list(zip(row.dates, row.values, strict=True))[-MOST_NIGHTS:]]
    known = [value for _, value in nights if value is not None]
    if row.measure is None or not known:
        return None
    low, high = band_ends(row)
    first = nights[0][0] if len(nights) > 1 else nights[0][0] - 1  # tonight is at the right end, alone too
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
    """Nights that follow one another. A sweep that runs every third day misses none in between."""
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
    """An end of the band, where it is near enough to be drawn without pressing the nights into a line."""
    if bound is None or not math.isfinite(bound):
        return None
    spread = max(known) - min(known)
    is_near = not spread or min(known) - _FURTHEST * spread <= bound <= max(known) + _FURTHEST * spread
    return bound if is_near else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
