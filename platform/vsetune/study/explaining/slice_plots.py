"""Geometry of the slices of a cell: for each setting, its value in every trial against the best M-Recall."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vsetune.report.axis_scale import Scale
from vsetune.report.charts import Tick
from vsetune.study.explaining.drawn_trials import RecallAxis, drawn_trials, recall_axis, words_of
from vsetune.study.explaining.explained import ExplainedCell, TriedTrial
from vsetune.study.explaining.setting_axes import SettingAxis

WIDTH, HEIGHT = 330, 206
LEFT, RIGHT, TOP, BOTTOM = 34, 14, 24, 26
_TICKS = 5


@dataclass(frozen=True)
class Mark:
    """A trial in a plot. kind: its outcome, or `edge` for a trial below the plotted range. words: its tooltip."""

    x: float
    y: float
    kind: str
    is_winner: bool
    words: str


@dataclass(frozen=True)
class Slice:
    """One setting. importance: its share, None where it is not known. summary: the plot in words."""

    setting: str
    importance: float | None
    is_log: bool
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    marks: tuple[Mark, ...]
    summary: str


def slices(cell: ExplainedCell) -> list[Slice]:
    """One plot per setting, the most important first; none if no trial has a result. Failed trials are plotted at the
    lower edge, so that a range in which all trials fail is visible."""
    axis, trials = recall_axis(cell.trials), drawn_trials(cell)
    if axis is None:
        return []
    return [_slice(cell, name, axis, trials) for name in cell.settings]


def _slice(cell: ExplainedCell, name: str, axis: RecallAxis, trials: Sequence[TriedTrial]) -> Slice:
    domain = cell.space.domains[name]
    values = SettingAxis(name, domain)
    x, y = Scale(0.0, 1.0, LEFT + 6, WIDTH - RIGHT - 6), axis.scale(HEIGHT - BOTTOM, TOP)
    marks = []
    for trial in trials:
        place = values.place(trial.configuration[name]) if name in trial.configuration else None
        if place is None or (trial.best is None and trial.outcome != "failed"):
            continue
        height = axis.low if trial.best is None else trial.best
        kind = "edge" if height < axis.low else trial.outcome
        marks.append(Mark(x(place), y(height), kind, trial is cell.winner, words_of(trial)))
    marks.sort(key=lambda mark: (mark.kind == "finished", mark.is_winner))
    return Slice(
        name, cell.importances.shares.get(name), bool(getattr(domain, "log", False)),
        tuple(Tick(x(place), label) for place, label in values.ticks(_TICKS)), axis.ticks(HEIGHT - BOTTOM, TOP),
        tuple(marks), f"Best M-Recall of {len(marks)} trials of {cell.name} over {name}.",
    )
