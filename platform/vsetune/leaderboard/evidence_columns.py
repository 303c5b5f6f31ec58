"""Columns of CSV only: the intervals, tests and answers behind the displayed numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from vsetune.leaderboard.column import CSV, Column, Value
from vsetune.leaderboard.comparison import Bounds, Comparison


def _end(bounds: Bounds | None, index: Literal[0, 1]) -> float | None:
    return None if bounds is None else bounds[index]


def _of_comparison(
    key: str, meaning: str, value: Callable[[Comparison], Value], *, unit: str = "",
    kind: Literal["text", "number"] = "number",
) -> Column:
    return Column(
        key=key, meaning=meaning, unit=unit, kind=kind, views=CSV,
        value=lambda row: None if row.comparison is None else value(row.comparison),
    )


OF_HEIGHT: tuple[Column, ...] = (
    Column(
        key="best_m_recall_low", unit="per cent", views=CSV,
        meaning="Lower end of the 95 % interval of best_m_recall; empty for fewer than two seeds that chose nothing",
        value=lambda row: _end(row.m_recall_bounds, 0),
    ),
    Column(
        key="best_m_recall_high", unit="per cent", views=CSV, meaning="Upper end of that interval",
        value=lambda row: _end(row.m_recall_bounds, 1),
    ),
)
OF_GAIN: tuple[Column, ...] = (
    _of_comparison(
        "m_recall_gain_low", "Lower end of the 95 % interval of m_recall_gain; empty for one seed",
        lambda each: _end(each.m_recall_bounds, 0), unit="points",
    ),
    _of_comparison(
        "m_recall_gain_high", "Upper end of that interval", lambda each: _end(each.m_recall_bounds, 1), unit="points",
    ),
    _of_comparison(
        "m_recall_gain_p", "P-value of m_recall_gain being chance (paired t, Holm over the board)",
        lambda each: each.height_p,
    ),
    _of_comparison(
        "gets_higher", "What the data say to the claim that the loss gets higher than the baseline",
        lambda each: each.height, kind="text",
    ),
    _of_comparison(
        "improvement", "Share of the seeds, 0 to 1, in which the loss is higher than the baseline, ties by half",
        lambda each: each.improvement,
    ),
    _of_comparison(
        "improvement_low", "Lower end of the 95 % interval of the probability that a seed is higher",
        lambda each: _end(each.improvement_bounds, 0),
    ),
    _of_comparison(
        "improvement_high", "Upper end of that interval", lambda each: _end(each.improvement_bounds, 1),
    ),
)
OF_EPOCHS: tuple[Column, ...] = (
    Column(
        key="curve_noise", unit="points", views=CSV,
        meaning="Standard deviation of one validation around the smooth course of its curve; empty for short curves",
        value=lambda row: row.noise,
    ),
    Column(
        key="epochs_to_target_low", unit="epochs", views=CSV,
        meaning="Lower end of the 95 % interval of epochs_to_target; empty for fewer than five seeds",
        value=lambda row: _end(row.epochs_bounds, 0),
    ),
    Column(
        key="epochs_to_target_high", unit="epochs", views=CSV,
        meaning="Upper end of that interval; inf where seeds that never got there leave it open",
        value=lambda row: _end(row.epochs_bounds, 1),
    ),
)
OF_SIGNS: tuple[Column, ...] = (
    _of_comparison("seeds_sooner", "Seeds that reach the target sooner than the baseline", lambda each: each.sooner),
    _of_comparison("seeds_later", "Seeds that reach it later, or never", lambda each: each.later),
    _of_comparison(
        "epochs_p", "P-value of seeds_sooner against seeds_later being chance (signs, Holm over the board)",
        lambda each: each.epochs_p,
    ),
    _of_comparison(
        "is_sooner", "What the data say to the claim that the loss is sooner at the baseline's best",
        lambda each: each.epochs, kind="text",
    ),
)
