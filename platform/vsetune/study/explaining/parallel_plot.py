"""Geometry of the parallel coordinates of a cell: one line per trial through its settings, to its M-Recall."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vsetune.report.axis_scale import Scale
from vsetune.report.charts import Tick
from vsetune.study.explaining.drawn_trials import RecallAxis, drawn_trials, recall_axis, words_of
from vsetune.study.explaining.explained import ExplainedCell, TriedTrial
from vsetune.study.explaining.setting_axes import SettingAxis

HEIGHT = 320
TOP, BOTTOM, SIDE = 46, 34, 70
_CLOSEST, _WIDEST, _ALL_STEPS = 165, 320, 1000
"""Pixels between two axes, at least and at most, and the target for all gaps together."""
_TICKS = 5


@dataclass(frozen=True)
class Upright:
    """One axis. part, name: the parts of a setting's name, such as `loss` and `margin`; for M-Recall its unit and name.
    """

    x: float
    part: str
    name: str
    ticks: tuple[Tick, ...]


@dataclass(frozen=True)
class Line:
    """kind: `top` for the best tenth of the trials, at least one, else the outcome."""

    path: str
    kind: str
    is_winner: bool
    words: str


@dataclass(frozen=True)
class Parallel:
    """width: pixels. has_gaps: some trial lacks a setting; its line goes through the foot of that axis."""

    width: float
    axes: tuple[Upright, ...]
    lines: tuple[Line, ...]
    has_gaps: bool
    summary: str


def parallel(cell: ExplainedCell) -> Parallel | None:
    """None for fewer than two trials with a result, or if nothing was searched."""
    recalls = recall_axis(cell.trials)
    trials = [trial for trial in drawn_trials(cell) if trial.best is not None]
    if recalls is None or len(trials) < 2 or not cell.settings:
        return None
    steps = len(cell.settings)
    width = 2 * SIDE + steps * max(_CLOSEST, min(_WIDEST, _ALL_STEPS // steps))
    places = Scale(0.0, float(steps), SIDE, width - SIDE)
    axes = [SettingAxis(name, cell.space.domains[name]) for name in cell.settings]
    lines = _lines(cell, axes, recalls, trials, places)
    return Parallel(
        width, (*_uprights(axes, places), _recall_upright(recalls, places(len(axes)))), lines,
        any(_height(axis, trial) is None for axis in axes for trial in trials),
        f"{len(lines)} trials of {cell.name}: a line each through {', '.join(cell.settings)} to the best M-Recall.",
    )


def _uprights(axes: Sequence[SettingAxis], places: Scale) -> list[Upright]:
    height = Scale(0.0, 1.0, HEIGHT - BOTTOM, TOP)
    return [
        Upright(
            places(float(index)), *_named(axis),
            tuple(Tick(height(place), label) for place, label in axis.ticks(_TICKS)),
        )
        for index, axis in enumerate(axes)
    ]


def _named(axis: SettingAxis) -> tuple[str, str]:
    part, _, name = axis.name.rpartition(".")
    return part, f"{name} (log)" if getattr(axis.domain, "log", False) else name


def _recall_upright(recalls: RecallAxis, x: float) -> Upright:
    return Upright(x, "best, per cent", "M-Recall", recalls.ticks(HEIGHT - BOTTOM, TOP))


def _lines(
    cell: ExplainedCell, axes: Sequence[SettingAxis], recalls: RecallAxis, trials: Sequence[TriedTrial], places: Scale
) -> tuple[Line, ...]:
    """Lines in plotting order: better trials later and the winner last, so that they are on top."""
    ranked = sorted(trials, key=lambda trial: trial.best or 0.0, reverse=True)
    top = {trial.name for trial in ranked[: max(1, len(ranked) // 10)]}
    recall_height = recalls.scale(HEIGHT - BOTTOM, TOP)
    lines = []
    for trial in reversed(ranked):
        heights = [_height(axis, trial) for axis in axes]
        points = [HEIGHT - BOTTOM + 12 if height is None else height for height in heights]
        points.append(recall_height(trial.best or 0.0))
        path = "M" + " L".join(f"{places(float(index))} {height}" for index, height in enumerate(points))
        kind = "top" if trial.name in top else trial.outcome
        lines.append(Line(path, kind, trial is cell.winner, words_of(trial)))
    return tuple(sorted(lines, key=lambda line: line.is_winner))


def _height(axis: SettingAxis, trial: TriedTrial) -> float | None:
    """Pixel of a trial on an axis; None without this setting or without a place on the axis."""
    place = axis.place(trial.configuration[axis.name]) if axis.name in trial.configuration else None
    return None if place is None else Scale(0.0, 1.0, HEIGHT - BOTTOM, TOP)(place)
