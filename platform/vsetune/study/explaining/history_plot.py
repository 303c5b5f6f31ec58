"""Plots of a cell over epochs: the best M-Recall so far by trial, and the Pareto front."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from vsetune.report.axis_scale import Scale
from vsetune.report.charts import Tick, nice_ticks
from vsetune.study.explaining.drawn_trials import RecallAxis, drawn_trials, recall_axis, words_of
from vsetune.study.explaining.explained import ExplainedCell, TriedTrial
from vsetune.study.explaining.slice_plots import Mark

WIDTH, HEIGHT = 560, 260
LEFT, RIGHT, TOP, BOTTOM = 34, 22, 26, 38


@dataclass(frozen=True)
class History:
    """line: SVG path of the best so far. budget: pixel of the epoch budget, None where it is not known."""

    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    line: str
    marks: tuple[Mark, ...]
    budget: float | None
    summary: str


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


def history(cell: ExplainedCell) -> History | None:
    """None where no trial has a result."""
    recalls, steps = recall_axis(cell.trials), best_so_far(cell.trials)
    if recalls is None or not steps:
        return None
    given, spent = cell.account.given, cell.account.spent
    x_values = nice_ticks(0.0, max(spent, given or 0.0, steps[-1][0]), 6)
    x, y = Scale(0.0, x_values[-1], LEFT, WIDTH - RIGHT), recalls.scale(HEIGHT - BOTTOM, TOP)
    return History(
        tuple(Tick(x(value), f"{value:g}") for value in x_values), recalls.ticks(HEIGHT - BOTTOM, TOP),
        stairs([(x(epochs), y(best)) for epochs, best in steps], x(max(spent, steps[-1][0]))),
        tuple(_marks(cell, recalls, x, y)), None if given is None else x(given),
        f"Best M-Recall of {cell.name}: {steps[-1][1]:.1f} per cent after {steps[-1][0]:.1f} of {spent:.1f} epochs.",
    )


def stairs(points: Sequence[tuple[float, float]], end: float) -> str:
    """A path that stays level until the next point and on to `end`."""
    path = f"M{points[0][0]} {points[0][1]}"
    for across, up in points[1:]:
        path += f" H{across} V{up}"
    return f"{path} H{end}"


def _marks(cell: ExplainedCell, recalls: RecallAxis, x: Scale, y: Scale) -> list[Mark]:
    """A mark for every plotted trial at its best; failed trials are at the lower edge."""
    drawn = {trial.name for trial in drawn_trials(cell)}
    marks, before = [], 0.0
    for trial in cell.trials:
        if trial.name in drawn and (trial.best is not None or trial.outcome == "failed"):
            height = recalls.low if trial.best is None else trial.best
            reached = trial.epochs if trial.best_epoch is None else min(trial.best_epoch, trial.epochs)
            kind = "edge" if height < recalls.low else trial.outcome
            marks.append(Mark(x(before + reached), y(height), kind, trial is cell.winner, words_of(trial)))
        before += trial.epochs
    return marks


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
