"""Data for the charts of the page: curves with bands, M-Recall over epochs, hard negatives, seconds. No plotting here.

The charts plot the values of a board; the words of tooltips are rounded here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from vsetune.metrics.curves import Curve, mean_curve
from vsetune.report import wording
from vsetune.report.export import in_order, row_key
from vsetune.report.rows import Leaderboard, Row
from vsetune.report.time_profiles import pareto_front

PALETTE = 7
"""Colours of the style sheet (Okabe and Ito, without yellow)."""
DASHES = ((1, 0), (6, 4), (2, 3), (9, 3, 2, 3))
"""Dash patterns of lines: after PALETTE losses the colours repeat with the next pattern and the next point shape."""
SHAPES = ("circle", "square", "triangle-up", "diamond")


@dataclass(frozen=True)
class Tick:
    """position: pixels in the panel."""

    position: float
    label: str


@dataclass(frozen=True)
class BandPoint:
    """Seeds of one loss at one epoch. mean: M-Recall in per cent; low, high: of the lowest and the highest seed."""

    epoch: float
    mean: float
    low: float
    high: float
    words: str


def loss_colours(*boards: Leaderboard) -> dict[str, int]:
    """Index of each loss of a page; the (first) baseline has index 0."""
    names = dict.fromkeys([
        *(board.baseline for board in boards), *(row.loss for board in boards for row in board.rows),
    ])
    return {loss: index for index, loss in enumerate(names)}


def turn_of(index: int) -> int:
    """Number of times that the colours repeat before a loss: the index of its dashes and shape."""
    return index // PALETTE % len(DASHES)


def nice_ticks(low: float, high: float, count: int) -> list[float]:
    """About `count` round numbers that cover low to high."""
    rough = max(high - low, 1e-9) / count
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(index * step, 10) for index in range(first, max(last, first + 1) + 1)]


def curve_charts(leaderboard: Leaderboard) -> list[dict[str, Any]]:
    """One chart per comparison with a curve: means with bands, over the headline seeds of the comparable rows."""
    return [
        {
            "dataset": dataset, "network": network, "summary": _summary(dataset, network, shown),
            "target": _target(shown), "series": [_series(row, leaderboard.number) for row in shown],
        }
        for dataset, network, rows in leaderboard.groups()
        if (shown := [row for row in rows if row.seeds and row.not_comparable is None])
    ]


def band(loss: str, curves: Sequence[Curve]) -> list[BandPoint]:
    """Mean of the seeds and the range between them, at the epochs that all of them have."""
    by_epoch = [dict(curve) for curve in curves]
    found = []
    for epoch, mean in mean_curve(curves):
        recalls = [curve[epoch] for curve in by_epoch]
        low, high = min(recalls), max(recalls)
        told = f"{loss}: M-Recall {wording.fixed(mean, 1)} % at epoch {wording.fixed(epoch, 2)}"
        if len(recalls) > 1:
            told += f", {len(recalls)} seeds from {wording.fixed(low, 1)} to {wording.fixed(high, 1)}"
        found.append(BandPoint(epoch, mean, low, high, told))
    return found


def height_chart(leaderboard: Leaderboard) -> dict[str, Any]:
    """Best M-Recall against epochs and costs, with the intervals of the board; front: keys of the rows on the Pareto
    front of their comparison, in M-Recall and epochs to the baseline's best."""
    rows = [
        (key, row) for key, row in in_order(leaderboard) if row.best_m_recall is not None and row.not_comparable is None
    ]
    number = leaderboard.number
    fronts = [row_key(row, number) for *_, group in leaderboard.groups() for row in pareto_front(group)]
    points: list[dict[str, Any]] = [
        {
            "key": key, "y": row.best_m_recall, "y_low": _end(row.m_recall_bounds, 0),
            "y_high": _end(row.m_recall_bounds, 1), "words": f"{row.loss}: M-Recall {wording.recall(row)} %",
            "x": {axis: asdict(place) for axis, place in _places(row).items()},
        }
        for key, row in rows
    ]
    axes = {axis: title for axis, title in _AXES.items() if any(axis in point["x"] for point in points)}
    return {"axes": axes, "points": points, "front": fronts}


@dataclass(frozen=True)
class _Place:
    """A row on an axis. low, high: ends of its interval, None without one; high is also None where it is infinite."""

    value: float
    words: str
    low: float | None = None
    high: float | None = None
    is_bound: bool = False


_AXES = {
    "target": "epochs to the baseline's best", "level": "epochs to level", "best": "epochs to best",
    "seconds": "device-seconds of everything that ran", "usd": "US$ of everything that ran",
}
"""Titles of the x axes of `height_chart`, by their names in links."""


def _places(row: Row) -> dict[str, _Place]:
    found = {}
    if row.epochs_to_target is not None:
        told = row.epochs_to_target
        high = _end(row.epochs_bounds, 1)
        found["target"] = _Place(
            told.value, f"{wording.epochs_to_target(row)} epochs to the baseline's best", _end(row.epochs_bounds, 0),
            None if high is None or math.isinf(high) else high, told.censored,
        )
    if row.epochs_to_level is not None:
        found["level"] = _Place(row.epochs_to_level, f"{wording.fixed(row.epochs_to_level, 2)} epochs to level")
    if row.epochs_to_best is not None:
        found["best"] = _Place(row.epochs_to_best, f"{wording.fixed(row.epochs_to_best, 2)} epochs to best")
    found["seconds"] = _Place(row.cost.device_seconds, f"{wording.fixed(row.cost.device_seconds, 0)} device-seconds")
    if row.cost.whole_usd is not None:
        found["usd"] = _Place(row.cost.whole_usd, f"US$ {wording.fixed(row.cost.whole_usd, 2)}")
    return found


def seconds_chart(leaderboard: Leaderboard) -> list[dict[str, Any]]:
    """Training time of an epoch for every row and its seeds (LSEH, Fig. 6)."""
    return [
        {
            "key": row_key(row, leaderboard.number), "value": row.seconds_per_epoch,
            "words": f"{row.loss}: {wording.fixed(row.seconds_per_epoch, 1)} s per epoch, median of "
                     f"{len(row.headline)} seed{'s' if len(row.headline) > 1 else ''}",
            "seeds": [seed.seconds_per_epoch for seed in row.headline if seed.seconds_per_epoch is not None],
        }
        for row in leaderboard.rows if row.seconds_per_epoch is not None and row.not_comparable is None
    ]


def negatives_charts(
    leaderboard: Leaderboard, recorded: Mapping[tuple[str, str], Mapping[str, Curve]]
) -> list[dict[str, Any]]:
    """Unique hard negatives of a batch over epochs (LSEH, Fig. 8), mean over the headline seeds.

    recorded: by (study, trial), curves of its metrics by name. A loss without a single hardest negative has a proxy.
    """
    found = []
    for name, title in _NEGATIVES.items():
        series = []
        for key, row in in_order(leaderboard):
            if row.not_comparable is not None:
                continue
            for prefix in ("", "proxy_"):
                measured = [recorded.get((row.study, seed.trial), {}) for seed in row.headline]
                curves = [curve for of_seed in measured if (curve := of_seed.get(f"{prefix}{name}"))]
                if curves:
                    points = [
                        {"epoch": epoch, "mean": mean, "words": f"{row.loss}: {wording.fixed(mean, 1)} at epoch "
                         f"{wording.fixed(epoch, 2)}{', proxy' if prefix else ''}"}
                        for epoch, mean in mean_curve(curves)
                    ]
                    series.append({"key": key, "is_proxy": bool(prefix), "points": points})
        if series:
            found.append({"title": title, "series": series})
    return found


_NEGATIVES = {
    "unique_negatives_captions": "different captions among the hardest negatives of a batch (#DesEmbs)",
    "unique_negatives_images": "different images among the hardest negatives of a batch (#ImEmbs)",
}
NEGATIVE_METRICS = tuple(f"{prefix}{name}" for name in _NEGATIVES for prefix in ("", "proxy_"))
"""Metrics of a validation that `negatives_charts` plots."""


def _series(row: Row, number: int) -> dict[str, Any]:
    points = band(row.loss, [seed.curve for seed in row.headline])
    return {"key": row_key(row, number), "points": [asdict(point) for point in points]}


def _target(rows: Sequence[Row]) -> dict[str, Any] | None:
    baseline = next((row for row in rows if row.is_baseline), None)
    if baseline is None or baseline.best_m_recall is None:
        return None
    words = f"best of {baseline.loss}: {wording.fixed(baseline.best_m_recall, 1)}"
    return {"value": baseline.best_m_recall, "words": words}


def _summary(dataset: str, network: str, rows: Sequence[Row]) -> str:
    bests = ", ".join(f"{row.loss} {wording.recall(row)}" for row in rows)
    return f"Validation M-Recall over epochs, {network} on {dataset}. Best: {bests}."


def _end(bounds: tuple[float, float] | None, index: int) -> float | None:
    return None if bounds is None else bounds[index]
