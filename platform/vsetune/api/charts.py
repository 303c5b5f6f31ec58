"""Charts of a board as Vega-Lite, for notebooks and files."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vsetune.board.charts import curve_charts, loss_colours
from vsetune.board.rows import Leaderboard
from vsetune.board.table_text import rows_by_key
from vsetune.board.vega import LIGHT, looks_of, on_white, picture
from vsetune.board.wording import fixed
from vsetune.home.whole_files import write_text

_WIDTH, _HEIGHT = 420, 260
"""Pixels of one chart."""
MIME = "application/vnd.vegalite.v5+json"


class Figure:
    """A chart, displayed by Jupyter, and as SVG where no Vega-Lite is drawn. spec: Vega-Lite, data included; its
    `description` is the chart in words, for readers who do not see it."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.spec = on_white(spec)

    def save(self, path: str | Path) -> Path:
        """Writes the chart: .svg, .png (two pixels per unit), or the specification as .json. Returns the path.

        ValueError for another ending, StorageError if it cannot be written.
        """
        place = Path(path)
        if place.suffix == ".json":
            write_text(place, json.dumps(self.spec, indent=2, ensure_ascii=False))
        elif place.suffix == ".svg":
            write_text(place, picture(self.spec, "svg"))
        elif place.suffix == ".png":
            write_text(place, picture(self.spec, "png"))
        else:
            raise ValueError(f"{place}: got {place.suffix or 'no ending'}, need .svg, .png or .json")
        return place

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """What Jupyter chooses from."""
        label = html.escape(self.spec.get("description", "chart"))
        drawn = picture(self.spec, "svg").decode().replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
        return {MIME: self.spec, "image/svg+xml": drawn, "text/plain": repr(self)}

    def __repr__(self) -> str:
        return f"Figure({self.spec.get('description', '')})"


def curve_figure(board: Leaderboard) -> Figure:
    """Validation M-Recall (per cent) over epochs, a chart for each network and data set: the mean of the seeds of every
    loss, between the lowest and the highest seed; dashed: the best of the baseline."""
    colours = loss_colours(board)
    charts = [_chart(each, board, colours) for each in curve_charts(board)]
    return Figure({
        "description": _in_words(board), "vconcat": charts,
        "resolve": {"scale": {"color": "shared", "strokeDash": "shared"}},
    })


def _in_words(board: Leaderboard) -> str:
    """`M-Recall over epochs of first. vsepp on scenes, at best: lmh 60.4 %, lseh 61.7 %.`"""
    parts = [
        f"{network} on {dataset}, at best: "
        + ", ".join(f"{row.loss} {fixed(row.best_m_recall, 1)} %" for row in rows if row.seeds)
        for dataset, network, rows in board.groups()
    ]
    return f"M-Recall over epochs of {board.study}. {'. '.join(parts)}."


def _chart(chart: Mapping[str, Any], board: Leaderboard, colours: Mapping[str, int]) -> dict[str, Any]:
    losses = {key: row.loss for key, row in rows_by_key(board).items()}
    points = [
        {"loss": losses[series["key"]], **point} for series in chart["series"] for point in series["points"]
    ]
    x = {"field": "epoch", "type": "quantitative", "title": "epoch"}
    scale = {"zero": False}
    looks = looks_of({loss: at for loss, at in colours.items() if loss in losses.values()}, LIGHT)
    layers: list[dict[str, Any]] = [
        {
            "mark": {"type": "area", "opacity": 0.15},
            "encoding": {
                "x": x, "y": {"field": "low", "type": "quantitative", "scale": scale, "title": "M-Recall (%)"},
                "y2": {"field": "high"}, "color": looks["color"],
            },
        },
        {
            "mark": {"type": "line", "strokeWidth": 2, "point": {"size": 20}},
            "encoding": {
                "x": x, "y": {"field": "mean", "type": "quantitative", "scale": scale, "title": "M-Recall (%)"},
                **looks, "tooltip": {"field": "words", "type": "nominal"},
            },
        },
    ]
    if chart["target"] is not None:
        layers.append({
            "data": {"values": [chart["target"]]},
            "mark": {"type": "rule", "strokeDash": [4, 4], "color": LIGHT["soft"]},
            "encoding": {"y": {"field": "value", "type": "quantitative"}, "tooltip": {"field": "words"}},
        })
    return {
        "title": f"{chart['network']} on {chart['dataset']}", "width": _WIDTH, "height": _HEIGHT,
        "data": {"values": points}, "layer": layers,
    }
