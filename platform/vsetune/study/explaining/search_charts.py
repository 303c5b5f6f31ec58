"""Charts of the search of a cell: Vega-Lite, rendered to SVG here.

Their colours are those of the style sheet of the page, so that they follow a dark screen. The words of a trial are the
`title` of its mark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median
from typing import Any

from markupsafe import Markup

from vsetune.config.spec.base import Choices, Domain
from vsetune.report.vega import svg
from vsetune.report.wording import fixed
from vsetune.study.explaining.explained import ExplainedCell, TriedTrial, settings_text, text_of

MOST_PLOTTED = 400
"""Most trials of a cell that are plotted; a page with more marks opens slowly."""
_BEST_PLOTTED = 100
_WORST_SHOWN = 2.0
"""Lowest plotted value: this multiple of the distance between best and median trial, below the best. Lower trials are
plotted at the edge."""
_ROOM, _LEAST_ROOM = 0.05, 0.5
"""Room above and below the trials: a share of their span, and at least so many points of M-Recall."""
_MOST_LEADERS = 12


@dataclass(frozen=True)
class SearchCharts:
    """The charts of a cell. slices: by setting. leaders: the last trials along the front; more: number of earlier ones
    that are not listed. parallel: None for fewer than two trials with a result. has_gaps: some trial lacks a setting.
    """

    history: Markup
    front: Markup | None
    leaders: list[Leader]
    more: int
    slices: dict[str, Markup]
    parallel: Markup | None
    has_gaps: bool


def _words(trial: TriedTrial) -> str:
    """A trial in one line, for its tooltip."""
    best = "no result" if trial.best is None or trial.best_epoch is None else (
        f"M-Recall {fixed(trial.best, 2)} % at epoch {fixed(trial.best_epoch, 2)}"
    )
    return f"{trial.name}: {best}, {trial.outcome} after {fixed(trial.epochs, 1)} epochs; {settings_text(trial)}"


def recall_range(trials: Iterable[TriedTrial]) -> tuple[float, float] | None:
    """Ends of the axis of M-Recall, from `_WORST_SHOWN` up to the best trial, so that a few collapsed trials do not
    compress the others. None without a result."""
    bests = [trial.best for trial in trials if trial.best is not None]
    if not bests:
        return None
    lowest = max(min(bests), max(bests) - _WORST_SHOWN * (max(bests) - median(bests)))
    room = max(_ROOM * (max(bests) - lowest), _LEAST_ROOM)
    return lowest - room, max(bests) + room


def plotted_trials(trials: Sequence[TriedTrial]) -> list[TriedTrial]:
    """The trials to plot, in their order: all, or above `MOST_PLOTTED` the best and an even selection of the others."""
    if len(trials) <= MOST_PLOTTED:
        return list(trials)
    ranked = sorted(trials, key=lambda trial: -1.0 if trial.best is None else trial.best, reverse=True)
    best = {trial.name for trial in ranked[:_BEST_PLOTTED]}
    rest = [trial for trial in trials if trial.name not in best]
    room = MOST_PLOTTED - len(best)
    others = {rest[index * len(rest) // room].name for index in range(room)}
    return [trial for trial in trials if trial.name in best or trial.name in others]


def best_so_far(trials: Sequence[TriedTrial]) -> list[tuple[float, float]]:
    """(epochs trained by all trials, best M-Recall until then) at every improvement.

    Trials count one after another in the order in which they started, as a single worker would have run them, because
    the store does not record how concurrent trials interleaved. Failed trials add epochs but no M-Recall.
    """
    steps: list[tuple[float, float]] = []
    before = 0.0
    for trial in trials:
        for epoch, m_recall in trial.curve if trial.outcome != "failed" else ():
            if not steps or m_recall > steps[-1][1]:
                steps.append((before + min(epoch, trial.epochs), m_recall))
        before += trial.epochs
    return steps


def front_points(trials: Sequence[TriedTrial]) -> list[tuple[float, float, TriedTrial]]:
    """(epoch, M-Recall, trial) of every validation with a higher M-Recall than all at the same or earlier epochs. Of
    equal validations the earlier trial counts.

    Failed trials and trials that break a constraint are left out. Every point has the noise of one validation, so the
    front is optimistic, like every maximum.
    """
    points = [
        (epoch, -m_recall, number, trial) for number, trial in enumerate(trials)
        if trial.best is not None and not trial.breaks for epoch, m_recall in trial.curve
    ]
    front: list[tuple[float, float, TriedTrial]] = []
    for epoch, below, _, trial in sorted(points, key=lambda point: point[:3]):
        if not front or -below > front[-1][1]:
            front.append((epoch, -below, trial))
    return front


@dataclass(frozen=True)
class Leader:
    """A trial that forms a stretch of the front of its cell. since, until: ends of the stretch, in epochs of its own
    training. low, high: its M-Recall in per cent there."""

    trial: TriedTrial
    since: float
    until: float
    low: float
    high: float


def leaders_of(points: Sequence[tuple[float, float, TriedTrial]]) -> list[Leader]:
    """The trials along a front. A trial with two stretches of the front is listed twice."""
    runs = [list(run) for _, run in groupby(points, key=lambda point: point[2].name)]
    return [Leader(run[0][2], run[0][0], run[-1][0], run[0][1], run[-1][1]) for run in runs]


_CROSS = "M-1,-1L1,1M1,-1L-1,1"
_LOOKS = {
    "finished": ("circle", "var(--c1)", "var(--c1)", [1, 0], 40),
    "stopped": ("circle", "var(--c5)", "none", [1, 0], 40),
    "open": ("circle", "var(--soft)", "none", [2, 2], 40), "failed": (_CROSS, "var(--c4)", "none", [1, 0], 40),
    "below the plot": ("triangle-down", "var(--soft)", "var(--soft)", [1, 0], 40),
    "best": ("circle", "var(--ink)", "var(--c1)", [1, 0], 90),
}
"""Shape, stroke, fill, dashes and size of the marks of trials."""
_LINES = {
    "finished": ("var(--soft)", 1.2, 0.5, [1, 0]), "stopped": ("var(--c5)", 1.2, 0.35, [4, 3]),
    "open": ("var(--soft)", 1.2, 0.3, [2, 3]), "top": ("var(--c1)", 2.0, 0.9, [1, 0]),
    "best": ("var(--ink)", 2.8, 1.0, [1, 0]),
}
"""Colour, width, opacity and dashes of the lines of trials. top: the best tenth of them, at least one."""
_CLOSEST, _WIDEST, _ALL_STEPS = 165, 320, 1000
"""Pixels between two axes of parallel coordinates, at least and at most, and the target for all gaps together."""
_FOOT = -0.06
"""Place under an axis, of trials without the setting."""


def charts_of(cell: ExplainedCell) -> SearchCharts | None:
    recalls, steps = recall_range(cell.trials), best_so_far(cell.trials)
    if recalls is None or not steps:
        return None
    points = front_points(cell.trials)
    leaders = leaders_of(points)
    trials = [trial for trial in plotted_trials(cell.trials) if trial.best is not None]
    is_parallel = len(trials) > 1 and bool(cell.settings)
    return SearchCharts(
        _history(cell, recalls, steps), _front(cell, recalls, points) if points else None, leaders[-_MOST_LEADERS:],
        max(0, len(leaders) - _MOST_LEADERS), {name: _slice(cell, name, recalls) for name in cell.settings},
        _parallel(cell, recalls, trials) if is_parallel else None,
        any(_place_in(cell, name, trial) is None for name in cell.settings for trial in trials),
    )


def _looks(looks: dict[str, Any], channels: Sequence[str], legend: dict[str, Any] | None) -> dict[str, Any]:
    """The encoding of a mark's kind."""
    return {
        channel: {
            "field": "kind", "type": "nominal", "legend": legend,
            "scale": {"type": "ordinal", "domain": [*looks], "range": [*values]},
        }
        for channel, values in zip(channels, zip(*looks.values(), strict=True), strict=True)
    }


def _plot(
    x: dict[str, Any], recalls: tuple[float, float], marks: list[dict[str, Any]], *,
    lines: Sequence[dict[str, Any]] = (), width: int, height: int, legend: bool = False,
) -> dict[str, Any]:
    """M-Recall over x, with a mark for every trial. lines: each with its points, drawn beneath them."""
    y = {
        "field": "y", "type": "quantitative", "title": "M-Recall (%)", "axis": {"tickCount": 5},
        "scale": {"domain": recalls, "zero": False, "nice": False, "clamp": True},
    }
    channels = ("shape", "stroke", "fill", "strokeDash", "size")
    looks = _looks(_LOOKS, channels, {"title": None, "orient": "top"} if legend else None)
    points = {
        "data": {"values": sorted(marks, key=lambda mark: {"finished": 1, "best": 2}.get(mark["kind"], 0))},
        "mark": {"type": "point", "strokeWidth": 1.6, "opacity": 1},
        "encoding": looks | {"description": {"field": "words"}},
    }
    drawn = [
        {
            "data": {"values": line["points"]},
            "mark": {"type": "line", "interpolate": "step-after", "color": "var(--c0)", "aria": False, **line["mark"]},
        }
        for line in lines
    ]
    return {"width": width, "height": height, "encoding": {"x": {"field": "x", **x}, "y": y}, "layer": [*drawn, points]}


def _mark(cell: ExplainedCell, trial: TriedTrial, recalls: tuple[float, float], x: Any) -> dict[str, Any]:
    """A trial at its best M-Recall; failed trials are at the lower edge, so that a range where all fail is visible."""
    best = recalls[0] if trial.best is None else trial.best
    kind = "best" if trial is cell.winner else "below the plot" if best < recalls[0] else trial.outcome
    return {"x": x, "y": best, "kind": kind, "words": _words(trial)}


def _shown(cell: ExplainedCell) -> list[TriedTrial]:
    return [each for each in plotted_trials(cell.trials) if each.best is not None or each.outcome == "failed"]


def _history(cell: ExplainedCell, recalls: tuple[float, float], steps: Sequence[tuple[float, float]]) -> Markup:
    given, spent, before, marks = cell.account.given, cell.account.spent, 0.0, []
    shown = {trial.name for trial in _shown(cell)}
    for trial in cell.trials:
        if trial.name in shown:
            reached = trial.epochs if trial.best_epoch is None else min(trial.best_epoch, trial.epochs)
            marks.append(_mark(cell, trial, recalls, before + reached))
        before += trial.epochs
    corners = [*steps, (max(spent, steps[-1][0]), steps[-1][1])]
    lines = [{"points": [{"x": x, "y": y} for x, y in corners], "mark": {"strokeWidth": 2}}]
    if given is not None:
        lines.append({"points": [{"x": given, "y": end} for end in recalls], "mark": {"strokeDash": [5, 4]}})
    x = {"type": "quantitative", "title": "epochs of all trials, in the order they started"}
    return svg(
        _plot(x, recalls, marks, lines=lines, width=500, height=190, legend=True),
        f"Best M-Recall of {cell.name}: {steps[-1][1]:.1f} per cent after {steps[-1][0]:.1f} of {spent:.1f} epochs.",
    )


def _front(
    cell: ExplainedCell, recalls: tuple[float, float], points: Sequence[tuple[float, float, TriedTrial]]
) -> Markup:
    longest = max(trial.curve[-1][0] for trial in cell.trials if trial.curve)
    corners = [(x, y) for x, y, _ in points if y >= recalls[0]] or [points[-1][:2]]
    corners.append((longest, corners[-1][1]))
    line = {"points": [{"x": x, "y": y} for x, y in corners], "mark": {"strokeWidth": 2}}
    marks = [_mark(cell, trial, recalls, trial.best_epoch) for trial in _shown(cell) if trial.best is not None]
    x = {"type": "quantitative", "title": "epochs of a trial", "scale": {"zero": True}}
    return svg(
        _plot(x, recalls, marks, lines=[line], width=500, height=200),
        f"Fewest epochs and highest M-Recall of {cell.name}: from {points[0][1]:.1f} per cent at epoch "
        f"{points[0][0]:.2f} to {points[-1][1]:.1f} at {points[-1][0]:.2f}.",
    )


def _slice(cell: ExplainedCell, name: str, recalls: tuple[float, float]) -> Markup:
    """A setting's value in every trial against the best M-Recall."""
    domain = cell.space.domains[name]
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
    x["title"] = None
    marks = [
        _mark(cell, trial, recalls, text_of(value) if isinstance(domain, Choices) else value)
        for trial in _shown(cell) if _place_in(cell, name, trial) is not None
        for value in [trial.configuration[name]]
    ]
    summary = f"Best M-Recall of {len(marks)} trials of {cell.name} over {name}."
    return svg(_plot(x, recalls, marks, width=280, height=150), summary)


def place_of(domain: Domain, value: Any) -> float | None:
    """Place of a value along its axis, from 0 to 1; values outside go to the ends. None for a value without a place: a
    text on an axis of numbers, a number up to 0 on a logarithmic axis, or an unknown choice."""
    if isinstance(domain, Choices):
        words = [text_of(choice) for choice in domain.choices]
        return (words.index(text_of(value)) + 0.5) / len(words) if text_of(value) in words else None
    if isinstance(value, str) or not isinstance(value, int | float) or (domain.log and value <= 0):
        return None
    low, high, at = (math.log(each) if domain.log else each for each in (domain.low, domain.high, value))
    return min(1.0, max(0.0, (at - low) / (high - low))) if high > low else 0.5


def _place_in(cell: ExplainedCell, name: str, trial: TriedTrial) -> float | None:
    return place_of(cell.space.domains[name], trial.configuration[name]) if name in trial.configuration else None


def _labels(domain: Domain) -> list[tuple[float, str]]:
    """(place, label) along an axis: every choice, or the ends and the middle of a range."""
    if isinstance(domain, Choices):
        return [(place_of(domain, choice) or 0.0, text_of(choice)) for choice in domain.choices]
    middle = math.sqrt(domain.low * domain.high) if domain.log else (domain.low + domain.high) / 2
    return [(place_of(domain, value) or 0.0, f"{value:.3g}") for value in {domain.low, middle, domain.high}]


def _parallel(cell: ExplainedCell, recalls: tuple[float, float], trials: Sequence[TriedTrial]) -> Markup:
    """One line per trial through its settings, to its M-Recall. Better trials are on top, the winner last."""
    low, high = recalls
    ranked = sorted(trials, key=lambda trial: (trial is cell.winner, trial.best or 0.0), reverse=True)
    kinds: dict[str, str] = {trial.name: trial.outcome for trial in trials}
    kinds |= dict.fromkeys((trial.name for trial in ranked[: max(1, len(ranked) // 10)]), "top")
    kinds |= {} if cell.winner is None else {cell.winner.name: "best"}
    lines, axes, labels = [], [], []
    for trial in reversed(ranked):
        places = [_FOOT if (at := _place_in(cell, name, trial)) is None else at for name in cell.settings]
        places.append(max(0.0, ((trial.best or low) - low) / (high - low)))
        look = {"trial": trial.name, "kind": kinds[trial.name], "words": _words(trial)}
        lines += [{"x": number, "y": place, **look} for number, place in enumerate(places)]
    for number, name in enumerate([*cell.settings, ""]):
        part, _, setting = name.rpartition(".")
        domain = cell.space.domains.get(name)
        scale = " (log)" if getattr(domain, "log", False) else ""
        heading = f"{part}\n{setting}{scale}" if name else "best\nM-Recall (%)"
        ticks = [(0.0, f"{low:.3g}"), (1.0, f"{high:.3g}")] if domain is None else _labels(domain)
        axes += [{"x": number, "y": y, "trial": number, "heading": text} for y, text in ((0, ""), (1, heading))]
        labels += [{"x": number, "y": place, "label": label} for place, label in ticks]
    step = max(_CLOSEST, min(_WIDEST, _ALL_STEPS // len(cell.settings)))
    plane = {
        "x": {"field": "x", "type": "quantitative", "axis": None},
        "y": {"field": "y", "type": "quantitative", "axis": None, "scale": {"domain": [_FOOT, 1], "nice": False}},
    }
    text = {"type": "text", "aria": False, "color": "var(--soft)", "fontSize": 11.5}
    channels = ("stroke", "strokeWidth", "opacity", "strokeDash")
    of_trial = {"detail": {"field": "trial"}, "order": {"field": "x"}}
    return svg(
        {
            "width": step * len(cell.settings), "height": 240, "encoding": plane, "layer": [
                {
                    "data": {"values": lines}, "mark": {"type": "line", "strokeJoin": "round"},
                    "encoding": of_trial | _looks(_LINES, channels, None) | {"description": {"field": "words"}},
                },
                {
                    "data": {"values": axes}, "mark": {"type": "line", "color": "var(--soft)", "aria": False},
                    "encoding": {"detail": {"field": "trial"}, "strokeWidth": {"value": 1}},
                },
                {"data": {"values": labels}, "mark": {**text, "align": "right", "dx": -6},
                 "encoding": {"text": {"field": "label"}}},
                {"data": {"values": axes}, "mark": {**text, "dy": -32, "lineBreak": "\n"},
                 "encoding": {"text": {"field": "heading"}}},
            ],
        },
        f"{len(trials)} trials of {cell.name}: a line each through {', '.join(cell.settings)} to the best M-Recall.",
    )
