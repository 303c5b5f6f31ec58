"""A panel on the page: its chart, and the names and last values below it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from vsetune.board import vega
from watching.answers import Answer, Span
from watching.panels import WHY_EMPTY, Unit
from watching.prometheus_api import Curve

FURTHER_COLOURS = (
    ("#8a1c1c", "#ff6b6b"), ("#5b3fa8", "#a88df0"), ("#6b7a00", "#b5c441"), ("#e0218a", "#ff4fc3"),
    ("#009999", "#35d6d6"), ("#7a4a21", "#b98a5e"), ("#808c99", "#8f9aa6"),
)
"""Colours of lines after the first ones of the style sheet, on a light and on a dark page; their lines are dashed."""
SHARED_COLOURS = 6
"""The seventh colour of the style sheet is near its second."""
MOST_LINES = SHARED_COLOURS + len(FURTHER_COLOURS)
"""Curves drawn in a panel, each in its own colour: those with the largest last values. The caption says how many there
are."""
MOST_NAMES = 6
ENDED_AFTER_S = 45.0
_BYTES = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
_SCALED: dict[Unit, Sequence[tuple[float, str]]] = {
    "bytes": _BYTES, "bytes/s": [(factor, f"{name}/s") for factor, name in _BYTES],
    "seconds": ((3600.0, "h"), (60.0, "min"), (1.0, "s")),
}


@dataclass(frozen=True)
class Line:
    """last: the newest value, in words."""

    name: str
    colour: int
    dashed: bool
    last: str


@dataclass(frozen=True)
class Drawing:
    """chart: empty where there are no curves, with the reason in `empty`. named: the lines listed below it. more: how
    many curves are not listed."""

    title: str
    help: str
    unit: str
    kind: str
    empty: str
    chart: Markup
    named: Sequence[Line]
    more: int


def drawing_of(answer: Answer, span: Span) -> Drawing:
    panel = answer.panel
    curves = sorted(answer.curves, key=lambda curve: (has_ended(curve, span), -curve.points[-1][1]))
    drawn = curves[:MOST_LINES]
    in_order = sorted(drawn, key=lambda curve: (name_of(curve, panel.legend), sorted(curve.labels.items())))
    lines = [_line(curve, answer, in_order.index(curve), span) for curve in drawn]
    named = lines[:MOST_NAMES]
    plotted = list(zip(lines, curves, strict=False)) if panel.kind == "line" else []
    explanation = panel.help.replace("`", "")
    chart = vega.svg(spec_of(plotted, panel.unit, span), f"{panel.title}: {explanation}") if plotted else Markup()
    return Drawing(
        panel.title, explanation, panel.unit, panel.kind, WHY_EMPTY[panel.needs], chart, named,
        len(curves) - len(named),
    )


def spec_of(lines: Sequence[tuple[Line, Curve]], unit: Unit, span: Span) -> dict[str, Any]:
    """A gap in a curve breaks its line; a point between two gaps is a dot."""
    values = [value for _, curve in lines for _, value in curve.points]
    factor, name = _round_unit(max(map(abs, values)), unit)
    is_far_from_zero = unit == "bytes" and min(values) > 0.6 * max(values)
    data = [
        {
            "time": 1000 * at, "value": value / factor, "colour": f"var(--c{line.colour})", "dashed": line.dashed,
            "stretch": f"{number} {stretch}", "words": f"{line.name}: {line.last}", "is_alone": len(points) == 1,
        }
        for number, (line, curve) in enumerate(lines)
        for stretch, points in enumerate(_stretches(curve, 1.5 * span.step_s)) for at, value in points
    ]
    encoding = {
        "x": {
            "field": "time", "type": "temporal", "title": None,
            "axis": {"tickCount": 5, "format": "%H:%M" if span.end - span.start <= 2 * 86400 else "%d %b"},
            "scale": {"domain": [1000 * span.start, 1000 * span.end], "nice": False},
        },
        "y": {
            "field": "value", "type": "quantitative", "title": name or None, "scale": {"zero": not is_far_from_zero},
            "axis": {"tickCount": 4, **({"format": "%"} if unit == "share" else {})},
        },
        "color": {"field": "colour", "type": "nominal", "scale": None}, "detail": {"field": "stretch"},
        "description": {"field": "words", "type": "nominal"},
    }
    dash = {"condition": {"test": "datum.dashed", "value": [6, 4]}, "value": [1, 0]}
    return {
        "width": 460, "height": 170, "data": {"values": data}, "encoding": encoding, "layer": [
            {"mark": {"type": "line", "strokeWidth": 1.8}, "encoding": {"strokeDash": dash}},
            {"mark": {"type": "point", "filled": True, "size": 12, "opacity": 1},
             "transform": [{"filter": "datum.is_alone"}]},
        ],
    }


def _stretches(curve: Curve, gap_s: float) -> Iterator[list[tuple[float, float]]]:
    stretch: list[tuple[float, float]] = []
    for point in curve.points:
        if stretch and point[0] - stretch[-1][0] > gap_s:
            yield stretch
            stretch = []
        stretch.append(point)
    yield stretch


def has_ended(curve: Curve, span: Span) -> bool:
    """Whether it was not exported in the last minutes of the page."""
    return curve.points[-1][0] < span.end - max(ENDED_AFTER_S, 2 * span.step_s)


def name_of(curve: Curve, legend: str) -> str:
    """The legend with the labels of a curve in its braces."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: curve.labels.get(found[1], ""), legend)


def in_words(value: float, unit: Unit) -> str:
    """A value with its unit, for the text beside a name."""
    if unit == "share":
        return f"{100 * value:.3g} %"
    if unit in _SCALED:
        factor, name = next(((factor, name) for factor, name in _SCALED[unit] if abs(value) >= factor), (1.0, ""))
        return f"{value / factor:.3g} {name or _SCALED[unit][-1][1]}"
    words = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{words} h" if unit == "hours" else f"${words}" if unit.startswith("USD") else words


def _round_unit(largest: float, unit: Unit) -> tuple[float, str]:
    """The factor and name of the unit in which an axis is labelled: MiB where the largest value has some."""
    return next(((factor, name) for factor, name in _SCALED.get(unit, ()) if largest >= factor), (1.0, ""))


def _line(curve: Curve, answer: Answer, colour: int, span: Span) -> Line:
    """colour: by the order of names, so that a cell has the same one in every panel."""
    last = "ended" if has_ended(curve, span) else in_words(curve.points[-1][1], answer.panel.unit)
    return Line(name_of(curve, answer.panel.legend), colour, colour >= SHARED_COLOURS, last)
