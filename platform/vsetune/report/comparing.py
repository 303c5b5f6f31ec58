"""Comparison of a loss with the baseline, seed by seed, and tests over all losses of a board (docs/statistics.md)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vsetune.metrics.efficiency import chance_m_recall, is_collapsed
from vsetune.metrics.seed_statistics import (
    MEAN_SEEDS,
    ROUNDING,
    Epochs,
    Floats,
    holm,
    improvement_interval,
    mean_interval,
    paired_t,
    seeds_to_decide,
    sign_test,
)
from vsetune.report.rows import ALPHA, Answer, Bounds, Collapse, Comparison, Row, SeedResult


def compared_seeds(
    seeds: Sequence[SeedResult], baselines: Sequence[SeedResult], *, are_whole: bool
) -> Comparison:
    """A comparison without correction and answers. seeds: of the loss, with their epochs to the target; baselines: of
    the baseline.

    are_whole: no seed was stopped at a target.
    """
    fresh = {seed.seed: seed for seed in baselines if is_evidence(seed)}
    pairs = [(seed, fresh[seed.seed]) for seed in seeds if is_evidence(seed) and seed.seed in fresh]
    gains = [seed.best_m_recall - other.best_m_recall for seed, other in pairs]
    order = [_order(seed.epochs_to_target, other.epochs_to_best) for seed, other in pairs]
    sooner, later = order.count(-1), order.count(1)
    return Comparison(
        seeds=tuple(seed.seed for seed, _ in pairs),
        m_recall=statistics.fmean(gains) if gains else None, m_recall_bounds=bounds(mean_interval(gains)),
        improvement=statistics.fmean(map(_improves, gains)) if gains else None,
        improvement_bounds=bounds(improvement_interval(gains)),
        sooner=sooner, later=later, height_p=paired_t(gains) if are_whole else 1.0,
        epochs_p=sign_test(sooner, later), height="too few seeds" if are_whole else "cut short",
    )


def collapse_of(baseline: Row, rows: Sequence[Row]) -> Collapse | None:
    """Why nothing can be compared with the baseline; None where it can. rows: of its network and data set."""
    best, other = max((seed.best_m_recall, row.loss) for row in rows for seed in row.headline)
    chance, seeds = _chance(baseline.protocol), baseline.headline
    fallen = [seed for seed in seeds if is_collapsed(seed.curve, best_of_any_loss=best, chance=chance)]
    if not fallen:
        return None
    least = min(fallen, key=lambda seed: seed.best_m_recall)
    return Collapse(
        least.best_m_recall, least.curve[-1][1], other, best, chance, len(fallen), len(seeds),
        has_ended=all(seed.status == "finished" for seed in seeds),
    )


def _chance(protocol: Mapping[str, Any]) -> float | None:
    """M-Recall of random orders, per cent; None where the numbers of images and captions are not recorded."""
    images, captions = protocol.get("images"), protocol.get("captions")
    if not images or not captions:
        return None
    ranked = protocol.get("validation_images", images)
    return chance_m_recall(ranked, round(captions * ranked / images))


def is_evidence(seed: SeedResult) -> bool:
    """Whether a seed enters intervals and tests: it was trained to its end and did not choose the configuration."""
    return seed.status == "finished" and not seed.chose


def answered(rows: Sequence[Row]) -> list[Row]:
    """The rows of a board with Holm-corrected p-values of their comparisons, and the answers that follow."""
    comparisons = [row.comparison for row in rows if row.comparison is not None]
    heights = iter(holm([each.height_p for each in comparisons]))
    speeds = iter(holm([each.epochs_p for each in comparisons]))
    needed = seeds_to_decide(len(comparisons), alpha=ALPHA)
    return [
        row if row.comparison is None
        else replace(row, comparison=_answered(row.comparison, row.flags, next(heights), next(speeds), needed))
        for row in rows
    ]


def bounds(interval: tuple[Floats, Floats]) -> Bounds | None:
    """The interval as plain numbers; None without one (NaN)."""
    low, high = map(float, interval)
    return None if math.isnan(low) or math.isnan(high) else (low, high)


def _answered(
    comparison: Comparison, flags: Sequence[str], height_p: float, epochs_p: float, epochs_seeds: int
) -> Comparison:
    gain, seeds = comparison.m_recall or 0.0, len(comparison.seeds)
    height = comparison.height
    if height != "cut short":
        height = _answer(height_p, leads=gain > 0, enough=seeds >= MEAN_SEEDS)
    epochs = _answer(epochs_p, leads=comparison.sooner > comparison.later, enough=seeds >= epochs_seeds)
    return replace(
        comparison, height_p=height_p, epochs_p=epochs_p, height=height, height_seeds=MEAN_SEEDS,
        epochs="no yardstick" if "baseline_rising" in flags else epochs, epochs_seeds=epochs_seeds,
    )


def _answer(p_value: float, *, leads: bool, enough: bool) -> Answer:
    if p_value <= ALPHA:
        return "supported" if leads else "contradicted"
    return "undecided" if enough else "too few seeds"


def _improves(gain: float) -> float:
    """1 for a gain, 0 for a loss, one half for a tie."""
    return 0.5 if abs(gain) <= ROUNDING else float(gain > 0)


def _order(epochs: Epochs | None, baseline: float) -> int:
    """-1: fewer epochs than the baseline; 1: more; 0: equal, or unknown because the seed ended before that epoch."""
    if epochs is None or (epochs.censored and epochs.value < baseline):
        return 0
    return 1 if epochs.censored else int(np.sign(epochs.value - baseline))
