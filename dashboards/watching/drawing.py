"""Geometry and words of a panel on the page: no markup, no drawing library."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from vsetune.report.axis_scale import Scale
from vsetune.report.charts import PALETTE, Tick, nice_ticks
from watching.answers import Answer, Span
from watching.panels import WHY_EMPTY, Unit
from watching.prometheus_api import Curve

WIDTH, HEIGHT = 460, 190
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 10, 24
MOST_LINES = 14
"""Curves drawn in a panel, those with the largest last values; the caption says how many there are."""
MOST_NAMES = 6
ENDED_AFTER_S = 45.0
_BYTES = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
_SCALED: dict[Unit, Sequence[tuple[float, str]]] = {
    "bytes": _BYTES, "bytes/s": [(factor, f"{name}/s") for factor, name in _BYTES],
    "seconds": ((3600.0, "h"), (60.0, "min"), (1.0, "s")),
}


@dataclass(frozen=True)
class Line:
    """path: SVG path data; dots: stretches of a single point. last: the newest value, in words."""

    name: str
    colour: int
    dashed: bool
    path: str
    dots: Sequence[tuple[float, float]]
    last: str


@dataclass(frozen=True)
class Drawing:
    """A panel with its axes. more: how many curves are not named below it."""

    title: str
    help: str
    unit: str
    kind: str
    empty: str
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    lines: Sequence[Line]
    named: Sequence[Line]
    more: int


def drawing_of(answer: Answer, span: Span) -> Drawing:
    """An empty panel has no lines and says why."""
    panel = answer.panel
    curves = sorted(answer.curves, key=lambda curve: (has_ended(curve, span), -curve.points[-1][1]))
    values = [value for curve in curves for _, value in curve.points]
    low, high = min([0.0, *values]), max([0.0, *values])
    if panel.unit == "bytes" and values and min(values) > 0.6 * high:
        low = min(values)  # curves far from zero and close together
    step = _round_unit(high, panel.unit)
    ticks = [step * tick for tick in nice_ticks(low / step, (high if high > low else low + 1.0) / step, 4)]
    x = Scale(span.start, span.end, LEFT, WIDTH - RIGHT)
    y = Scale(ticks[0], ticks[-1], HEIGHT - BOTTOM, TOP)
    names = sorted({name_of(curve, panel.legend) for curve in curves})
    colours = {name: index for index, name in enumerate(names)}
    lines = [_line(curve, answer, colours, x, y, span) for curve in curves[:MOST_LINES]]
    shown, empty = lines[:MOST_NAMES], WHY_EMPTY[panel.needs]
    return Drawing(
        panel.title, panel.help.replace("`", ""), panel.unit, panel.kind, empty,
        _times(span, x), [Tick(y(value), in_words(value, panel.unit)) for value in ticks], lines, shown,
        len(curves) - len(shown),
    )


def has_ended(curve: Curve, span: Span) -> bool:
    """Nobody has exported it for the last minutes of the page."""
    return curve.points[-1][0] < span.end - max(ENDED_AFTER_S, 2 * span.step_s)


def name_of(curve: Curve, legend: str) -> str:
    """The legend with the labels of a curve in its braces."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: curve.labels.get(found[1], ""), legend)


def in_words(value: float, unit: Unit) -> str:
    """A value as people read it, for an axis or beside a name."""
    if unit == "share":
        return f"{100 * value:.3g} %"
    if unit in _SCALED:
        factor, name = next(((factor, name) for factor, name in _SCALED[unit] if abs(value) >= factor), (1.0, ""))
        return f"{value / factor:.3g} {name or _SCALED[unit][-1][1]}"
    words = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{words} h" if unit == "hours" else f"${words}" if unit.startswith("USD") else words


def _round_unit(largest: float, unit: Unit) -> float:
    """In which steps of an axis are round: in MiB where the largest value has some."""
    return next((factor for factor, _ in _SCALED.get(unit, ()) if largest >= factor), 1.0)


def _line(curve: Curve, answer: Answer, colours: dict[str, int], x: Scale, y: Scale, span: Span) -> Line:
    stretches: list[list[tuple[float, float]]] = []
    before = float("-inf")
    for at, value in curve.points:
        if at - before > 1.5 * span.step_s:
            stretches.append([])
        stretches[-1].append((x(at), y(value)))
        before = at
    name = name_of(curve, answer.panel.legend)
    path = " ".join("M" + " L".join(f"{a} {b}" for a, b in stretch) for stretch in stretches if len(stretch) > 1)
    dots = [stretch[0] for stretch in stretches if len(stretch) == 1]
    index = colours[name]
    last = "ended" if has_ended(curve, span) else in_words(curve.points[-1][1], answer.panel.unit)
    return Line(name, index % PALETTE, index >= PALETTE, path, dots, last)


def _times(span: Span, x: Scale) -> list[Tick]:
    """Round times of day, about five."""
    rough = (span.end - span.start) / 5
    steps = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
    step = next((step for step in steps if step >= rough), 86400 * max(1, round(rough / 86400)))
    offset = time.localtime(span.end).tm_gmtoff
    first = (int(span.start + offset) // step + 1) * step - offset
    form = "%H:%M" if step < 86400 else "%d %b"
    return [
        Tick(x(at), time.strftime(form, time.localtime(at))) for at in range(first, int(span.end) + 1, step)
        if LEFT + 12 < x(at) < WIDTH - RIGHT - 10
    ]
