"""The picture of one attempt's curves that is kept beside it, drawn here: a plotting library takes 0.1 s and 60 MB."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from vsetune.tracking.records import ValidationPoint

_WIDE, _HIGH, _COLUMNS = 260, 150, 4
_LEFT, _RIGHT, _TOP, _BOTTOM = 10, 10, 34, 22
_MOST_POINTS = 200
_STYLE = (
    "text{font:11px sans-serif;fill:#333}.name{font-weight:bold}line{stroke:#ccc}"
    "polyline{fill:none;stroke:#0072b2;stroke-width:1.5}circle{fill:#d55e00}"
)


def curves_picture(points: Sequence[ValidationPoint]) -> str:
    """An SVG with a panel for every number of the validations over epochs, M-Recall and its best first. points: in
    order, at least one; of more than 200 a picture has as many."""
    series = {"m_recall": [(point.epoch, point.m_recall) for point in points]}
    for name in dict.fromkeys(name for point in points for name in point.metrics):
        series[name] = [(point.epoch, point.metrics[name]) for point in points if name in point.metrics]
    last = points[-1].epoch
    panels = [_panel(place, name, curve, last) for place, (name, curve) in enumerate(series.items())]
    wide, high = _WIDE * min(_COLUMNS, len(panels)), _HIGH * math.ceil(len(panels) / _COLUMNS)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}">'
        f'<style>{_STYLE}</style><rect width="100%" height="100%" fill="#fff"/>{"".join(panels)}</svg>\n'
    )


def _panel(place: int, name: str, curve: Sequence[tuple[float, float]], last: float) -> str:
    """last: the epoch at the right end, > 0."""
    row, column = divmod(place, _COLUMNS)
    return f'<g transform="translate({column * _WIDE} {row * _HIGH})">{"".join(_drawn(name, curve, last))}</g>'


def _drawn(name: str, curve: Sequence[tuple[float, float]], last: float) -> Iterator[str]:
    shown = [(epoch, value) for epoch, value in curve if math.isfinite(value)]
    yield f'<text class="name" x="{_LEFT}" y="14">{escape(name)}</text>'
    yield f'<line x1="{_LEFT}" x2="{_WIDE - _RIGHT}" y1="{_HIGH - _BOTTOM}" y2="{_HIGH - _BOTTOM}"/>'
    yield f'<text x="{_WIDE - _RIGHT}" y="{_HIGH - 8}" text-anchor="end">epoch {last:.4g}</text>'
    if not shown:
        yield f'<text x="{_LEFT}" y="28">no finite number</text>'
        return
    low, high = (pick(value for _, value in shown) for pick in (min, max))
    best = max(shown, key=lambda point: point[1])
    word = f"best {best[1]:.5g} at epoch {best[0]:.4g}" if name == "m_recall" else f"{low:.5g} to {high:.5g}"
    yield f'<text x="{_LEFT}" y="28">{word}</text>'
    across = (_WIDE - _LEFT - _RIGHT) / (last or 1.0)
    up = (_HIGH - _TOP - _BOTTOM) / ((high - low) or 1.0)

    def at(point: tuple[float, float]) -> tuple[float, float]:
        return _LEFT + across * point[0], _HIGH - _BOTTOM - up * (point[1] - low)

    stride = math.ceil(len(shown) / _MOST_POINTS)
    places = [at(point) for point in (*shown[:-1:stride], shown[-1])]
    yield f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}"/>'
    if name == "m_recall":
        x, y = at(best)
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"/>'
