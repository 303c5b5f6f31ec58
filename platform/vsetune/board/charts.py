"""Data of the charts of a page: its scripts make specifications of them, as `profile_picture` does here.

The charts plot the values of a board; the words of tooltips are rounded here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from vsetune.board import wording
from vsetune.board.board_notes import FEWEST_TRIALS
from vsetune.board.board_sentences import is_claimed
from vsetune.board.columns import EXPECTED_BEST
from vsetune.board.pareto_front import pareto_front
from vsetune.board.rows import Leaderboard, Row
from vsetune.board.table_text import row_key, rows_by_key
from vsetune.board.wording import fixed
from vsetune.metrics.best_of_k import ExpectedBest
from vsetune.metrics.curves import Curve, mean_curve


def loss_colours(*boards: Leaderboard) -> dict[str, int]:
    """Index of each loss of a page; the (first) baseline has index 0."""
    names = dict.fromkeys([
        *(board.baseline for board in boards), *(row.loss for board in boards for row in board.rows),
    ])
    return {loss: index for index, loss in enumerate(names)}


def curve_charts(leaderboard: Leaderboard) -> list[dict[str, Any]]:
    """One chart per comparison with a curve: means with bands, over the headline seeds of the comparable rows."""
    charts = []
    for dataset, network, rows in leaderboard.groups():
        shown = [row for row in rows if row.seeds and row.not_comparable is None]
        bests = ", ".join(f"{row.loss} {wording.recall(row)}" for row in shown)
        series = [
            {"key": row_key(row, leaderboard.number), "points": band(row.loss, [each.curve for each in row.headline])}
            for row in shown
        ]
        if shown:
            charts.append({
                "dataset": dataset, "network": network, "target": _target(shown), "series": series,
                "summary": f"Validation M-Recall over epochs, {network} on {dataset}. Best: {bests}.",
            })
    return charts


def band(loss: str, curves: Sequence[Curve]) -> list[dict[str, Any]]:
    """Mean of the seeds, and the lowest and the highest seed, at the epochs that all of them have; M-Recall in per
    cent."""
    by_epoch = [dict(curve) for curve in curves]
    found = []
    for epoch, mean in mean_curve(curves):
        recalls = [curve[epoch] for curve in by_epoch]
        low, high = min(recalls), max(recalls)
        words = f"{loss}: M-Recall {fixed(mean, 1)} % at epoch {fixed(epoch, 2)}"
        if len(recalls) > 1:
            words += f", {len(recalls)} seeds from {fixed(low, 1)} to {fixed(high, 1)}"
        found.append({"epoch": epoch, "mean": mean, "low": low, "high": high, "words": words})
    return found


def height_chart(leaderboard: Leaderboard) -> dict[str, Any]:
    """Best M-Recall against epochs and costs, with the intervals of the board; front: keys of the rows on the Pareto
    front of their comparison, in M-Recall and epochs to the baseline's best, where a claim is supported."""
    rows = [
        (key, row) for key, row in rows_by_key(leaderboard).items()
        if row.best_m_recall is not None and row.not_comparable is None
    ]
    number = leaderboard.number
    fronts = [
        row_key(row, number) for *_, group in leaderboard.groups() if is_claimed(group) for row in pareto_front(group)
    ]
    points: list[dict[str, Any]] = [
        {
            "key": key, "y": row.best_m_recall, "y_low": _end(row.m_recall_bounds, 0),
            "y_high": _end(row.m_recall_bounds, 1), "words": f"{row.loss}: M-Recall {wording.recall(row)} %",
            "x": _positions(row),
        }
        for key, row in rows
    ]
    axes = {axis: title for axis, title in _AXES.items() if any(axis in point["x"] for point in points)}
    return {"axes": axes, "points": points, "front": fronts}


_AXES = {
    "target": "epochs to the baseline's best", "level": "epochs to level", "best": "epochs to best",
    "seconds": "device-seconds of everything that ran", "usd": "US$ of everything that ran",
}
"""Titles of the x axes of `height_chart`, by their names in links."""


def _positions(row: Row) -> dict[str, dict[str, Any]]:
    """The row on every axis that it has a value for. low, high: ends of its interval, None without one; high is also
    None where it is infinite. is_bound: the value is a lower bound."""

    def at(value: float, words: str, **more: Any) -> dict[str, Any]:
        return {"value": value, "words": words, "low": None, "high": None, "is_bound": False, **more}

    found, target = {}, row.epochs_to_target
    if target is not None:
        low, high = _end(row.epochs_bounds, 0), _end(row.epochs_bounds, 1)
        found["target"] = at(
            target.value, f"{wording.epochs_to_target(row)} epochs to the baseline's best", low=low,
            high=None if high is None or math.isinf(high) else high, is_bound=target.censored,
        )
    if row.epochs_to_level is not None:
        found["level"] = at(row.epochs_to_level, f"{fixed(row.epochs_to_level, 2)} epochs to level")
    if row.epochs_to_best is not None:
        found["best"] = at(row.epochs_to_best, f"{fixed(row.epochs_to_best, 2)} epochs to best")
    found["seconds"] = at(row.cost.device_seconds, f"{fixed(row.cost.device_seconds, 0)} device-seconds")
    if row.cost.whole_usd is not None:
        found["usd"] = at(row.cost.whole_usd, f"US$ {fixed(row.cost.whole_usd, 2)}")
    return found


def seconds_chart(leaderboard: Leaderboard) -> list[dict[str, Any]]:
    """Training time of an epoch for every row and its seeds (LSEH, Fig. 6)."""
    return [
        {
            "key": row_key(row, leaderboard.number), "value": row.seconds_per_epoch,
            "words": f"{row.loss}: {fixed(row.seconds_per_epoch, 1)} s per epoch, median of "
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
        series = [
            {"key": key, "is_proxy": bool(prefix), "points": [
                {"epoch": epoch, "mean": mean, "words": f"{row.loss}: {fixed(mean, 1)} at epoch {fixed(epoch, 2)}"
                 f"{', proxy' if prefix else ''}"} for epoch, mean in mean_curve(curves)
            ]}
            for key, row in rows_by_key(leaderboard).items() if row.not_comparable is None for prefix in ("", "proxy_")
            if (curves := _recorded(row, recorded, f"{prefix}{name}"))
        ]
        found += [{"title": title, "series": series}] if series else []
    return found


def _recorded(
    row: Row, recorded: Mapping[tuple[str, str], Mapping[str, Curve]], name: str
) -> list[Curve]:
    """The curves of a metric, of the headline seeds that recorded it."""
    found = (recorded.get((row.study, seed.trial), {}).get(name) for seed in row.headline)
    return [curve for curve in found if curve]


_NEGATIVES = {
    "unique_negatives_captions": "different captions among the hardest negatives of a batch (#DesEmbs)",
    "unique_negatives_images": "different images among the hardest negatives of a batch (#ImEmbs)",
}
NEGATIVE_METRICS = tuple(f"{prefix}{name}" for name in _NEGATIVES for prefix in ("", "proxy_"))
"""Metrics of a validation that `negatives_charts` plots."""


def _target(rows: Sequence[Row]) -> dict[str, Any] | None:
    baseline = next((row for row in rows if row.is_baseline), None)
    if baseline is None or baseline.best_m_recall is None:
        return None
    words = f"best of {baseline.loss}: {fixed(baseline.best_m_recall, 1)}"
    return {"value": baseline.best_m_recall, "words": words}


def _end(bounds: tuple[float, float] | None, index: int) -> float | None:
    return None if bounds is None else bounds[index]


def tuning_charts(leaderboard: Leaderboard) -> dict[str, Any]:
    """Expected best M-Recall of every search after fewer trials and fewer epochs."""
    searched = [
        {
            "key": row_key(row, leaderboard.number), "search": pick.repeat,
            "trials": _points(wording.search_name(row, pick), pick.tuning.after_trials, "trials", 0),
            "epochs": _points(wording.search_name(row, pick), pick.tuning.after_epochs, "epochs", 1),
        }
        for row in leaderboard.rows if row.not_comparable is None
        for pick in row.repeats if pick.tuning is not None and pick.tuning.trials > 1
    ]
    if not any(pick.tuning and pick.tuning.trials >= FEWEST_TRIALS for row in leaderboard.rows for pick in row.repeats):
        return {"notes": [], "series": []}
    rest = ", ".join(
        f"{row.network} {row.loss}" for row in leaderboard.rows if all(pick.tuning is None for pick in row.repeats)
    )
    left_out = [f"Not in it, no search of several configurations for M-Recall: {rest}."] if rest else []
    return {"notes": [EXPECTED_BEST, *left_out], "series": searched}


def _points(name: str, curve: Sequence[ExpectedBest], unit: str, digits: int) -> list[dict[str, Any]]:
    return [
        {
            "epoch": each.at, "mean": each.mean, "low": each.low, "high": each.high,
            "words": f"{name}: {wording.expected_best(each)} after {fixed(each.at, digits)} {unit}",
        }
        for each in curve
    ]
