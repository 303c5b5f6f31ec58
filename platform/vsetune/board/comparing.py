"""Comparison of a loss with the baseline, by searches or seeds, and tests over a whole board (docs/statistics.md)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vsetune.board.rows import ALPHA, Answer, Bounds, Collapse, Comparison, Row, TargetShare
from vsetune.board.seed_results import SeedResult, observations
from vsetune.metrics.efficiency import LEAST_BOUND, chance_m_recall, epochs_to_target, is_collapsed
from vsetune.metrics.repeated_searches import (
    FEWEST_REPEATS,
    NO_EFFECT,
    Effect,
    log_means,
    log_ratio,
    paired_log_ratio,
    welch,
)
from vsetune.metrics.seed_statistics import (
    LEVEL,
    MEAN_SEEDS,
    ROUNDING,
    Floats,
    holm,
    holm_factors,
    improvement_interval,
    mean_interval,
    paired_t,
)

PROFILE_SHARES = (0.8, 0.9, 0.95, 1.0)
"""Other targets of epochs that a board shows, as measured, as shares of the baseline's mean best M-Recall."""
FOR_LONG_TAILS = 2.5
"""Factor on p-values of pairs of seeds. Losses may have a few seeds far behind where the baseline has none. Boards then
call equal losses different in up to 12 % of cases, with the factor in at most 6 % (benchmarks/claim_sizes.py)."""
Unit = tuple[SeedResult, ...]
"""Seeds of one observation."""


def comparison_of(
    row: Row, baseline: Row, target_share: float, *, height_level: float = LEVEL, epochs_level: float = LEVEL
) -> Comparison:
    """A comparison without correction and answers. target_share: of the baseline's mean best M-Recall, 0 to 1. Levels:
    of its intervals."""
    by_search = row.is_tuned or baseline.is_tuned
    pairs = _pairs(row, baseline)
    gains = [seed.best_m_recall - other.best_m_recall for seed, other in pairs]
    fresh, (ours, theirs) = units_of(baseline), compared_units(row, baseline)
    best = statistics.fmean(means_of(fresh)) if fresh else baseline.best_m_recall or 0.0
    lacking = _lacking(row, baseline, len(ours), len(theirs), by_search=by_search)
    height = _height(ours, theirs, gains, by_search=by_search, level=height_level)
    epochs, pace = _pace(ours, theirs, target_share, best, by_search=by_search, level=epochs_level)
    profile = (_pace(ours, theirs, share, best, by_search=by_search)[0] for share in PROFILE_SHARES)
    factor = _factor(by_search=by_search)
    is_cut_short = "stopped_at_target" in {*row.flags, *baseline.flags}
    return Comparison(
        by_search=by_search, units=len(ours), baseline_units=len(theirs), seeds=tuple(seed.seed for seed, _ in pairs),
        m_recall=height.difference, m_recall_bounds=None if lacking or is_cut_short else _ends(height),
        improvement=statistics.fmean(map(_improves, gains)) if gains else None,
        improvement_bounds=(
            None if by_search or lacking or is_cut_short else bounds(improvement_interval(gains, height_level))
        ),
        epochs=epochs, epochs_bounds=None if lacking else _in_per_cent(pace, epochs), profile=tuple(profile),
        height_p=1.0 if lacking or is_cut_short else min(1.0, factor * height.p),
        epochs_p=1.0 if lacking else min(1.0, factor * pace.p),
        height=lacking or ("cut short" if is_cut_short else "undecided"), epochs_answer=lacking or "undecided",
        height_level=height_level, epochs_level=epochs_level,
    )


def _factor(*, by_search: bool) -> float:
    """Factor on a p-value before Holm's correction."""
    return 1.0 if by_search else FOR_LONG_TAILS


def compared_units(row: Row, baseline: Row) -> tuple[list[Unit], list[Unit]]:
    """Units of the loss and of the baseline: where either is tuned, each its own; else the seeds that both have, pair
    by pair."""
    if row.is_tuned or baseline.is_tuned:
        return units_of(row), units_of(baseline)
    pairs = _pairs(row, baseline)
    return [(seed,) for seed, _ in pairs], [(other,) for _, other in pairs]


def _pairs(row: Row, baseline: Row) -> list[tuple[SeedResult, SeedResult]]:
    """Seeds that both have and that are evidence of both."""
    fresh = {seed.seed: seed for seed in baseline.headline if seed.is_evidence}
    return [(seed, fresh[seed.seed]) for seed in row.headline if seed.is_evidence and seed.seed in fresh]


def _lacking(row: Row, baseline: Row, units: int, baseline_units: int, *, by_search: bool) -> Answer | None:
    """Why a comparison can make no claim; None if it can. units: of the row, and of the baseline."""
    if "search_failed" in {*row.flags, *baseline.flags}:
        return "search failed"
    sides = ((row, units), (baseline, baseline_units))
    if any(side.is_tuned and count < FEWEST_REPEATS for side, count in sides):
        return "one search"
    return "too few seeds" if min(units, baseline_units) < (FEWEST_REPEATS if by_search else MEAN_SEEDS) else None


def units_of(row: Row) -> list[Unit]:
    """Seeds that ended and chose nothing: of a tuned loss by search, else each by itself."""
    return observations([seed for seed in row.headline if seed.is_evidence], by_search=row.is_tuned)


def means_of(units: Sequence[Unit]) -> list[float]:
    return [statistics.fmean(seed.best_m_recall for seed in unit) for unit in units]


def _height(
    ours: Sequence[Unit], theirs: Sequence[Unit], gains: Sequence[float], *, by_search: bool, level: float
) -> Effect:
    """Difference of M-Recall, in points."""
    if by_search:
        one, other = means_of(ours), means_of(theirs)
        difference = statistics.fmean(one) - statistics.fmean(other) if one and other else None
        return replace(welch(one, other, level=level), difference=difference)
    found = bounds(mean_interval(gains, level))
    low, high = (None, None) if found is None else found
    return Effect(statistics.fmean(gains) if gains else None, low, high, paired_t(gains))


def _pace(
    ours: Sequence[Unit], theirs: Sequence[Unit], share: float, best: float, *, by_search: bool, level: float = LEVEL
) -> tuple[TargetShare, Effect]:
    """Epochs to a share of the baseline's mean best, and their logarithmic effect."""
    target = share * best
    one, other = ([[epochs_to_target(seed.curve, target) for seed in unit] for unit in side] for side in (ours, theirs))
    missed, seeds = zip(*((sum(seed.censored for unit in side for seed in unit), sum(map(len, side)))
                          for side in (one, other)), strict=True)
    if not one or not other:
        return TargetShare(share, target, None, *missed, *seeds), NO_EFFECT
    percent = 100 * math.expm1(statistics.fmean(log_means(one)) - statistics.fmean(log_means(other)))
    measured = TargetShare(share, target, percent, *missed, *seeds)
    measured = measured if _says_something(measured) else replace(measured, percent=None)
    if by_search:
        return measured, log_ratio(one, other, level=level)
    pairs = ([seed for unit in side for seed in unit] for side in (one, other))
    return measured, paired_log_ratio(*pairs, level=level)


def _says_something(to: TargetShare) -> bool:
    """Whether the percentage can be read: it is exact, or a bound on one side of 0, and some seed reached the target.
    `at least -3 %` and `at most +3 %` leave open who is faster."""
    assert to.percent is not None
    if to.missed and to.baseline_missed:
        return False
    if to.missed:
        return to.missed < to.seeds and to.percent >= LEAST_BOUND
    return not to.baseline_missed or to.percent <= -LEAST_BOUND


def _ends(effect: Effect) -> Bounds | None:
    return None if effect.low is None or effect.high is None else (effect.low, effect.high)


_LARGEST = 700.0
"""Logarithm of a ratio beyond which an end of an interval, of two seeds, is infinite: no float holds it."""


def _in_per_cent(effect: Effect, epochs: TargetShare) -> Bounds | None:
    """The interval of a logarithmic ratio as a change in per cent, open where seeds never reach the target: above for
    seeds of the loss, below (-100 %) for seeds of the baseline."""
    ends = _ends(effect)
    if ends is None or epochs.percent is None:
        return None
    low = -100.0 if epochs.baseline_missed else 100 * math.expm1(ends[0])
    high = math.inf if epochs.missed or ends[1] > _LARGEST else 100 * math.expm1(ends[1])
    return low, high


def collapsed_seeds(row: Row, best_of_any_loss: float) -> Row:
    """The row with the number of its seeds that collapsed or diverged, and its flag."""
    chance = _chance(row.protocol)
    fallen = sum(
        seed.diverged or is_collapsed(seed.curve, best_of_any_loss=best_of_any_loss, chance=chance)
        for seed in row.headline if seed.has_ended
    )
    return replace(row, collapsed_seeds=fallen, flags=(*row.flags, "seed_collapsed")) if fallen else row


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
        has_ended=all(seed.has_ended for seed in seeds),
    )


def _chance(protocol: Mapping[str, Any]) -> float | None:
    """M-Recall of random orders, per cent; None where the numbers of images and captions are not recorded."""
    images, captions = protocol.get("images"), protocol.get("captions")
    if not images or not captions:
        return None
    ranked = protocol.get("validation_images", images)
    return chance_m_recall(ranked, round(captions * ranked / images))


def answered(rows: Sequence[Row]) -> list[Row]:
    """The rows of a board with Holm-corrected p-values of their comparisons, the answers that follow, and intervals
    corrected alike."""
    comparisons = [row.comparison for row in rows if row.comparison is not None]
    baselines = {(row.dataset, row.network): row for row in rows if row.is_baseline}
    heights, paces = (
        iter(zip(holm(values), holm_factors(values), strict=True))
        for values in ([each.height_p for each in comparisons], [each.epochs_p for each in comparisons])
    )
    return [
        row if row.comparison is None
        else replace(row, comparison=_answered(
            row, row.comparison, baselines[row.dataset, row.network], next(heights), next(paces)
        ))
        for row in rows
    ]


def bounds(interval: tuple[Floats, Floats]) -> Bounds | None:
    """The interval as plain numbers; None without one (NaN)."""
    low, high = map(float, interval)
    return None if math.isnan(low) or math.isnan(high) else (low, high)


def _answered(
    row: Row, comparison: Comparison, baseline: Row, height: tuple[float, float], epochs: tuple[float, float]
) -> Comparison:
    """height, epochs: the corrected p-value of each claim, and the factor that corrects it."""
    (height_p, height_factor), (epochs_p, epochs_factor) = height, epochs
    of_pairs = _factor(by_search=comparison.by_search)
    comparison = comparison_of(
        row, baseline, comparison.epochs.share, height_level=1 - ALPHA / (of_pairs * height_factor),
        epochs_level=1 - ALPHA / (of_pairs * epochs_factor),
    )
    leads, faster = (comparison.m_recall or 0.0) > 0, (comparison.epochs.percent or 0.0) < 0
    return replace(
        comparison, height_p=height_p, epochs_p=epochs_p, height=_answer(comparison.height, height_p, leads=leads),
        epochs_answer=_answer(comparison.epochs_answer, epochs_p, leads=faster),
    )


def _answer(before: Answer, p_value: float, *, leads: bool) -> Answer:
    if before != "undecided" or p_value > ALPHA:
        return before
    return "supported" if leads else "contradicted"


def _improves(gain: float) -> float:
    """1 for a gain, 0 for a loss, one half for a tie."""
    return 0.5 if abs(gain) <= ROUNDING else float(gain > 0)
