"""The search of a study as one self-contained HTML page: it has no scripts, makes no requests and escapes names.

Slices are Vega-Lite, rendered to SVG here. Their colours are those of the page's style sheet, so that they follow a
dark screen. The words of a trial are the `title` of its mark.
"""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from vsetune.board.page_templates import render
from vsetune.board.vega import svg
from vsetune.board.wording import fixed
from vsetune.config.spec.base import Choices
from vsetune.records.state import Attempt
from vsetune.study.explaining.explained import (
    ExplainedCell,
    ExplainedStudy,
    best_of,
    in_words,
    outcome_of,
    place_of,
    recall_range,
    text_of,
)

MOST_PLOTTED = 400
"""Most trials in a slice, the latest ones and the winner; a page with more marks opens slowly."""
_LOOKS = {
    "finished": ("circle", "var(--c1)", "var(--c1)", [1, 0], 40),
    "pruned": ("circle", "var(--c5)", "none", [1, 0], 40),
    "open": ("circle", "var(--soft)", "none", [2, 2], 40),
    "failed": ("M-1,-1L1,1M1,-1L-1,1", "var(--c4)", "none", [1, 0], 40),
    "below": ("triangle-down", "var(--soft)", "var(--soft)", [1, 0], 40),
    "winner": ("circle", "var(--ink)", "var(--c1)", [1, 0], 90),
}
"""Shape, stroke, fill, dashes and size of the marks of trials. below: under the lower edge."""
_CHANNELS = ("shape", "stroke", "fill", "strokeDash", "size")


def to_html(explained: ExplainedStudy) -> str:
    """The whole page as text. It needs no network and no JavaScript."""
    return render(
        "explained.html.j2", "vsetune.study.explaining", explained=explained, fixed=fixed, most=MOST_PLOTTED,
        slices={cell.name: slices_of(cell) for cell in explained.cells},
    )


def slices_of(cell: ExplainedCell) -> dict[str, Markup]:
    """A chart for each setting, the most important first; none while no trial has a result or has failed."""
    plotted = [
        trial for trial in cell.trials[-MOST_PLOTTED:] if best_of(trial) is not None or trial.status == "failed"
    ]
    if cell.winner is not None and cell.winner not in plotted:
        plotted.append(cell.winner)
    return {name: _slice(cell, name, plotted) for name in cell.settings} if plotted else {}


def _slice(cell: ExplainedCell, name: str, plotted: list[Attempt]) -> Markup:
    """A setting's value in every trial that has one, against the best M-Recall."""
    domain, recalls = cell.domains[name], recall_range(cell.trials)
    x: dict[str, Any]
    if isinstance(domain, Choices):
        places = [text_of(choice) for choice in domain.choices]
        x = {"type": "ordinal", "sort": None, "axis": {"labelAngle": 0}, "scale": {"domain": places, "type": "point"}}
    else:
        x = {
            "type": "quantitative", "axis": {"tickCount": 5, "grid": False, "tickMinStep": int(domain.integer)},
            "scale": {
                "type": "log" if domain.log else "linear", "domain": [domain.low, domain.high], "nice": False,
                "zero": False, "clamp": True, "padding": 6,
            },
        }
    y = {
        "field": "y", "type": "quantitative", "title": "M-Recall (%)", "axis": {"tickCount": 5},
        "scale": {"domain": recalls, "zero": False, "nice": False, "clamp": True},
    }
    values = [(trial, trial.start.configuration[name]) for trial in plotted if name in trial.start.configuration]
    marks = [
        {"x": text_of(value) if isinstance(domain, Choices) else value, "words": in_words(trial)}
        | _height(cell, trial, recalls[0])
        for trial, value in values if place_of(domain, value) is not None
    ]
    marks.sort(key=lambda mark: {"finished": 1, "winner": 2}.get(mark["kind"], 0))  # the last one is drawn on top
    looks = {
        channel: {
            "field": "kind", "type": "nominal", "legend": None,
            "scale": {"type": "ordinal", "domain": [*_LOOKS], "range": [*looks]},
        }
        for channel, looks in zip(_CHANNELS, zip(*_LOOKS.values(), strict=True), strict=True)
    }
    spec = {
        "width": 280, "height": 150, "data": {"values": marks},
        "mark": {"type": "point", "strokeWidth": 1.6, "opacity": 1},
        "encoding": {"x": {"field": "x", "title": None, **x}, "y": y, "description": {"field": "words"}, **looks},
    }
    return svg(spec, f"Best M-Recall of {len(marks)} trials of {cell.name} over {name}.")


def _height(cell: ExplainedCell, trial: Attempt, lowest: float) -> dict[str, Any]:
    """Failed trials are at the lower edge, so that a range where all fail is visible."""
    best = best_of(trial)
    height = lowest if best is None else best.m_recall
    kind = "winner" if trial is cell.winner else "below" if height < lowest else outcome_of(trial)
    return {"y": height, "kind": kind}
