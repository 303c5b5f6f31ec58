"""Geometry of the M-Recall curves on the page: one panel per data set and network. No drawing library, no markup."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vsetune.leaderboard import wording
from vsetune.leaderboard.axis_scale import Scale
from vsetune.leaderboard.rows import Leaderboard, Row
from vsetune.metrics.curves import Curve, mean_curve

WIDTH, HEIGHT = 460, 300
LEFT, RIGHT, TOP, BOTTOM = 34, 14, 26, 38
FEW = 12
"""Curves of at most this many validations show them as dots."""
PALETTE = 7
"""Colours of the style sheet (Okabe and Ito, without yellow); further losses repeat them with dashed lines."""

@dataclass(frozen=True)
class Tick:
    """position: in the panel's pixels."""

    position: float
    label: str


@dataclass(frozen=True)
class Series:
    """One loss in one panel. seeds: SVG path data of every seed; mean: of the mean over the seeds that count.

    points: (x, y, epoch, M-Recall) of the mean, as words.
    """

    loss: str
    colour: int
    dashed: bool
    seeds: tuple[str, ...]
    mean: str
    points: tuple[tuple[float, float, str, str], ...]


@dataclass(frozen=True)
class Panel:
    """One comparison. target: where the baseline's best lies, None without one. summary: the panel in words."""

    dataset: str
    network: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    series: tuple[Series, ...]
    target: Tick | None
    summary: str


def panels(leaderboard: Leaderboard) -> list[Panel]:
    """One panel per comparison that has a curve; a loss keeps its colour in all of them, the baseline is the first."""
    colours = loss_colours(leaderboard)
    drawn = [(dataset, network, [row for row in rows if row.seeds]) for dataset, network, rows in leaderboard.groups()]
    return [_panel(dataset, network, rows, colours) for dataset, network, rows in drawn if rows]


def loss_colours(leaderboard: Leaderboard) -> dict[str, int]:
    """Index of each loss, the baseline's is 0."""
    names = dict.fromkeys([leaderboard.baseline, *(row.loss for row in leaderboard.rows)])
    return {loss: index for index, loss in enumerate(names)}


def nice_ticks(low: float, high: float, count: int) -> list[float]:
    """About `count` round numbers that cover low to high."""
    rough = max(high - low, 1e-9) / count
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(index * step, 10) for index in range(first, max(last, first + 1) + 1)]


def _panel(dataset: str, network: str, rows: Sequence[Row], colours: dict[str, int]) -> Panel:
    points = [point for row in rows for seed in row.seeds for point in seed.curve]
    x_values = nice_ticks(0.0, max(epoch for epoch, _ in points), 6)
    recalls = [recall for _, recall in points]
    y_values = nice_ticks(min(recalls), max(recalls), 6)
    x = Scale(0.0, x_values[-1], LEFT, WIDTH - RIGHT)
    y = Scale(y_values[0], y_values[-1], HEIGHT - BOTTOM, TOP)
    baseline = next((row for row in rows if row.is_baseline), None)
    target = None
    if baseline is not None and baseline.best_m_recall is not None:
        label = f"best of {baseline.loss}: {wording.fixed(baseline.best_m_recall, 1)}"
        target = Tick(y(baseline.best_m_recall), label)
    return Panel(
        dataset, network, tuple(Tick(x(value), f"{value:g}") for value in x_values),
        tuple(Tick(y(value), f"{value:g}") for value in y_values),
        tuple(_series(row, colours[row.loss], x, y) for row in rows), target, _summary(dataset, network, rows),
    )


def _series(row: Row, index: int, x: Scale, y: Scale) -> Series:
    curves = [seed.curve for seed in row.seeds]
    mean = mean_curve([seed.curve for seed in row.headline])
    points = tuple((x(epoch), y(recall), wording.fixed(epoch, 2), wording.fixed(recall, 1)) for epoch, recall in mean)
    seeds = tuple(_path(curve, x, y) for curve in curves) if len(curves) > 1 else ()
    return Series(row.loss, index % PALETTE, index >= PALETTE, seeds, _path(mean, x, y), points)


def _path(curve: Curve, x: Scale, y: Scale) -> str:
    places = [f"{x(epoch)} {y(recall)}" for epoch, recall in curve]
    return "M" + " L".join(places) if places else ""


def _summary(dataset: str, network: str, rows: Sequence[Row]) -> str:
    bests = ", ".join(f"{row.loss} {wording.recall(row)}" for row in rows)
    return f"Validation M-Recall over epochs, {network} on {dataset}. Best: {bests}."
