"""Pareto front of a cell, epochs against M-Recall: the highest M-Recall of any trial up to every epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from vsetune.report.axis_scale import Scale
from vsetune.report.charts import Tick, nice_ticks
from vsetune.study.explaining.drawn_trials import drawn_trials, recall_axis, words_of
from vsetune.study.explaining.explained import ExplainedCell, TriedTrial
from vsetune.study.explaining.history_plot import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, stairs
from vsetune.study.explaining.slice_plots import Mark

MOST_LEADERS = 12


@dataclass(frozen=True)
class Leader:
    """A trial that forms a stretch of the front of its cell. since, until: ends of the stretch, in epochs of its own
    training. low, high: its M-Recall in per cent there."""

    trial: TriedTrial
    since: float
    until: float
    low: float
    high: float


@dataclass(frozen=True)
class Front:
    """line: SVG path of the front. leaders: the last ones along it, by epoch; more: number of earlier ones that are not
    listed."""

    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    line: str
    marks: tuple[Mark, ...]
    leaders: tuple[Leader, ...]
    more: int
    summary: str


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


def leaders_of(points: Sequence[tuple[float, float, TriedTrial]]) -> list[Leader]:
    """The trials along a front. A trial with two stretches of the front is listed twice."""
    runs = [list(run) for _, run in groupby(points, key=lambda point: point[2].name)]
    return [Leader(run[0][2], run[0][0], run[-1][0], run[0][1], run[-1][1]) for run in runs]


def front(cell: ExplainedCell) -> Front | None:
    """None where no trial has a result."""
    recalls, points = recall_axis(cell.trials), front_points(cell.trials)
    if recalls is None or not points:
        return None
    longest = max(trial.curve[-1][0] for trial in cell.trials if trial.curve)
    x_values = nice_ticks(0.0, longest, 6)
    x, y = Scale(0.0, x_values[-1], LEFT, WIDTH - RIGHT), recalls.scale(HEIGHT - BOTTOM, TOP)
    shown = [(epoch, m_recall) for epoch, m_recall, _ in points if m_recall >= recalls.low] or [points[-1][:2]]
    marks = [
        Mark(
            x(trial.best_epoch), y(max(trial.best, recalls.low)),
            "edge" if trial.best < recalls.low else trial.outcome, trial is cell.winner, words_of(trial),
        )
        for trial in drawn_trials(cell) if trial.best is not None and trial.best_epoch is not None
    ]
    leaders = leaders_of(points)
    return Front(
        tuple(Tick(x(value), f"{value:g}") for value in x_values), recalls.ticks(HEIGHT - BOTTOM, TOP),
        stairs([(x(epoch), y(m_recall)) for epoch, m_recall in shown], x(longest)), tuple(marks),
        tuple(leaders[-MOST_LEADERS:]), max(0, len(leaders) - MOST_LEADERS),
        f"Soonest and highest of {cell.name}: from M-Recall {points[0][1]:.1f} per cent at epoch {points[0][0]:.2f} to "
        f"{points[-1][1]:.1f} at {points[-1][0]:.2f}.",
    )
