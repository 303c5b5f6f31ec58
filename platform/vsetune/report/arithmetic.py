"""The runs behind a row of a board, and every step from them to its numbers, as lines of text."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from scipy import special

from vsetune.metrics.curves import best_of_curve
from vsetune.metrics.efficiency import epochs_to_target
from vsetune.metrics.repeated_searches import log_means, welch
from vsetune.metrics.seed_statistics import (
    LEVEL,
    MEAN_SEEDS,
    MEDIAN_SEEDS,
    kaplan_meier,
    median_depth,
    paired_t,
)
from vsetune.records.events import AttemptRecord
from vsetune.report import wording
from vsetune.report.comparing import FOR_LONG_TAILS, means_of, units_of
from vsetune.report.rows import Comparison, Leaderboard, Row
from vsetune.report.seed_results import SeedResult


@dataclass(frozen=True)
class Step:
    """One number of the row: its name, and the lines of its computation."""

    title: str
    lines: tuple[str, ...]


def steps(row: Row, leaderboard: Leaderboard) -> list[Step]:
    """Steps of every number that the row shows, in the order of its columns; for a row without seeds only the cost."""
    if not row.seeds:
        return [_cost(row)]
    group = next(rows for dataset, network, rows in leaderboard.groups() if row in rows)
    baseline = next((each for each in group if each.is_baseline), None)
    found = [Step("best M-Recall", tuple(_height(row))), Step("epochs to best, to level", tuple(_own_epochs(row)))]
    if baseline is not None and row.collapse is not None:
        found.append(Step(f"against {baseline.loss}", (f"nothing: {wording.collapse(row)}",)))
    if baseline is not None:
        found += _against(row, baseline, leaderboard)
    return [*found, _cost(row)]


def _against(row: Row, baseline: Row, leaderboard: Leaderboard) -> list[Step]:
    pairs, found = _pairs(row, baseline), []
    if row.comparison is not None:
        height = _gain if not row.comparison.by_search else _gain_of_searches
        found.append(Step(f"M-Recall over {baseline.loss}", tuple(height(row, baseline, leaderboard))))
        found.append(Step("epochs to the target", tuple(_pace(row, baseline, leaderboard))))
    if pairs:
        found.append(Step(f"epochs to the best of {baseline.loss}", tuple(_target_epochs(row, pairs))))
    if row.difference is not None:
        found.append(Step("Difference", tuple(_difference(row, pairs))))
    return found


def _cost(row: Row) -> Step:
    known = [seed.seconds_per_epoch for seed in row.headline if seed.seconds_per_epoch is not None]
    lines = [f"seconds per epoch: median of {', '.join(map(_n, known))} = {_n(row.seconds_per_epoch)}"] if known else []
    counts = ", ".join(f"{count} {status}" for status, count in sorted(row.counts.items()))
    lines.append(
        f"charged: all {row.attempts} attempts ({counts}) at {row.trials} trials, each epoch and second once: "
        f"{_n(row.cost.epochs)} epochs, {_n(row.cost.wasted_epochs)} of them lost; {_n(row.cost.device_seconds)} "
        "device-seconds" + ("" if row.cost.whole_usd is None else f"; {_n(row.cost.whole_usd)} US$")
    )
    return Step("cost", tuple(lines))


def _pairs(row: Row, baseline: Row) -> list[tuple[SeedResult, SeedResult]]:
    own = {seed.seed: seed for seed in baseline.headline}
    return [(seed, own[seed.seed]) for seed in row.headline if seed.seed in own and seed.epochs_to_target]


def _height(row: Row) -> list[str]:
    left_out = [
        f"left out: seed {seed.seed}, {_n(seed.best_m_recall)}, which chose the configuration"
        for seed in row.seeds if seed not in row.headline
    ]
    units = units_of(row) if row.is_tuned else []
    if len(units) < 2:
        bests = [seed.best_m_recall for seed in row.headline]
        return [_mean(f"seeds {_names(row.headline)}", bests), *left_out, *_t_interval(
            bests, row.m_recall_bounds, "chose or did not finish"
        )]
    lines = [_mean(f"search {unit[0].repeat}, seeds {_names(unit)}", [seed.best_m_recall for seed in unit])
             for unit in units]
    means = means_of(units)
    interval = _t_interval(means, row.m_recall_bounds, "are fewer than three")
    return [*lines, *left_out, _mean("searches", means), *interval]


def _mean(of: str, values: Sequence[float]) -> str:
    return f"mean of {of}: ({' + '.join(map(_n, values))}) / {len(values)} = {_n(statistics.fmean(values))}"


def _t_interval(
    values: Sequence[float], found: tuple[float, float] | None, otherwise: str, level: float = LEVEL
) -> list[str]:
    size = len(values)
    if size < 2:
        return [f"no deviation and no interval: they take {MEAN_SEEDS} seeds"]
    deviation = statistics.stdev(values)
    lines = [f"deviation: sqrt(sum of squares around the mean / {size - 1}) = {_n(deviation)}"]
    if found is None:
        return [*lines, f"no interval: they {otherwise}, or are equal"]
    quantile = float(special.stdtrit(size - 1, (1 + level) / 2))
    half = quantile * deviation / math.sqrt(size)
    return [
        *lines, f"{_per_cent(level)} interval: mean ± t({size - 1}) s / sqrt({size}) = {_n(quantile)} x "
        f"{_n(deviation)} / sqrt({size}) = ± {_n(half)}: {_n(found[0])} to {_n(found[1])}"
    ]


def _per_cent(level: float) -> str:
    return f"{100 * level:.6g} %"


def _own_epochs(row: Row) -> list[str]:
    trained = [seed for seed in row.headline if not seed.diverged]
    lines = [f"to best: median of {_list(trained, lambda seed: seed.epochs_to_best)} = {_n(row.epochs_to_best)}"]
    if row.level_tolerance is None:
        return [*lines, "to level: not known, the curves are too short to estimate their noise"]
    return [
        *lines, f"noise of one validation: {_n(row.noise)}; the largest of the compared losses, times 2.77, is "
        f"{_n(row.level_tolerance)}: two validations of one level differ by no more in 95 of 100 cases",
        f"to level: median of {_list(trained, lambda seed: seed.epochs_to_level)} = {_n(row.epochs_to_level)}",
    ]


def _gain(row: Row, baseline: Row, leaderboard: Leaderboard) -> list[str]:
    comparison, own = row.comparison, {seed.seed: seed for seed in baseline.headline if seed.is_evidence}
    fresh = [(seed, own[seed.seed]) for seed in row.headline if seed.is_evidence and seed.seed in own]
    if comparison is None or not fresh:
        return ["no pair of seeds that finished and chose nothing"]
    gains = [seed.best_m_recall - other.best_m_recall for seed, other in fresh]
    lines = [
        f"seed {seed.seed}: {_n(seed.best_m_recall)} - {_n(other.best_m_recall)} = {_n(gain)}"
        for (seed, other), gain in zip(fresh, gains, strict=True)
    ]
    lines.append(f"mean: {_n(statistics.fmean(gains))}")
    if comparison.height == "cut short":
        return [*lines, "no interval and no test: seeds were stopped at their target"]
    lines += _t_interval(gains, comparison.m_recall_bounds, "differ in nothing", comparison.height_level)
    corrected = _corrected(comparison.height_p, comparison, leaderboard)
    lines.append(f"p of the paired t test: {_n(paired_t(gains))}; {corrected}")
    if comparison.improvement is not None and comparison.improvement_bounds is not None:
        low, high = comparison.improvement_bounds
        lines.append(
            f"higher in {_n(comparison.improvement * len(gains))} of {len(gains)} seeds, {_n(comparison.improvement)}; "
            f"{_per_cent(comparison.height_level)} interval of that probability, of the non-central t: {_n(low)} to "
            f"{_n(high)}"
        )
    return [*lines, f"so the claim that it is higher is: {comparison.height}"]


def _gain_of_searches(row: Row, baseline: Row, leaderboard: Leaderboard) -> list[str]:
    comparison = row.comparison
    assert comparison is not None
    means = [means_of(units_of(each)) for each in (row, baseline)]
    if not all(means):
        return ["no search with fresh seeds, of the loss or of the baseline"]
    lines = [
        _mean(f"{each.loss}, by {'search' if each.is_tuned else 'seed'}", values)
        for each, values in zip((row, baseline), means, strict=True)
    ]
    lines.append(f"difference: {_n(comparison.m_recall)}")
    if comparison.m_recall_bounds is not None:
        low, high = comparison.m_recall_bounds
        lines.append(
            f"Welch's t: {_per_cent(comparison.height_level)} interval {_n(low)} to {_n(high)}, p "
            f"{_n(welch(*means).p)}; {_corrected(comparison.height_p, comparison, leaderboard)}"
        )
    return [*lines, f"so the claim that it is higher is: {comparison.height}"]


def _pace(row: Row, baseline: Row, leaderboard: Leaderboard) -> list[str]:
    comparison = row.comparison
    assert comparison is not None
    found = comparison.epochs
    lines = [f"target: {_n(100 * found.share)} % of the mean best of {baseline.loss}, {_n(found.target)}"]
    if not found.seeds or not found.baseline_seeds:
        return [*lines, "no seeds to compare"]
    for each in (row, baseline):
        for unit in units_of(each):
            if comparison.by_search or unit[0].seed in comparison.seeds:
                reached = [(seed.seed, epochs_to_target(seed.curve, found.target)) for seed in unit]
                words = ", ".join(f"{seed} {'after ' if to.censored else 'at '}{_n(to.value)}" for seed, to in reached)
                lines.append(
                    f"{each.loss}, seed {words}: mean logarithm {_n(log_means([[to for _, to in reached]])[0])}"
                )
    shown = wording.share_of_epochs(found) if found.percent is None else _n(found.percent)
    lines.append(f"ratio of the means of these, in per cent: {shown}")
    if comparison.epochs_bounds is not None:
        low, high = comparison.epochs_bounds
        corrected = _corrected(comparison.epochs_p, comparison, leaderboard)
        lines.append(f"{_per_cent(comparison.epochs_level)} interval of t: {_n(low)} to {_n(high)}; p {corrected}")
    return [*lines, f"so the claim that it needs fewer epochs is: {comparison.epochs_answer}"]


def _target_epochs(row: Row, pairs: Sequence[tuple[SeedResult, SeedResult]]) -> list[str]:
    reached = [(seed, other, seed.epochs_to_target) for seed, other in pairs if seed.epochs_to_target]
    lines = [
        f"seed {seed.seed}: target {_n(best_of_curve(other.curve).m_recall)} of {other.trial}: "
        + (f"not reached in {_n(epochs.value)} epochs" if epochs.censored else f"reached at {_n(epochs.value)}")
        for seed, other, epochs in reached
    ]
    curve = kaplan_meier([epochs for *_, epochs in reached])
    lines += [f"share not there yet after {_n(moment)} epochs: {_n(left)}" for moment, left in curve]
    if row.epochs_to_target is not None:
        bound = " at least" if row.epochs_to_target.censored else ""
        lines.append(f"median (Kaplan-Meier):{bound} {_n(row.epochs_to_target.value)}")
    return [*lines, _median_interval(row.epochs_bounds, len(reached))]


def _difference(row: Row, pairs: Sequence[tuple[SeedResult, SeedResult]]) -> list[str]:
    lines = []
    for seed, other in pairs:
        epochs = seed.epochs_to_target
        if epochs is not None:
            percent = 100 * (epochs.value - other.epochs_to_best) / other.epochs_to_best
            lines.append(
                f"seed {seed.seed}: 100 ({_n(epochs.value)} - {_n(other.epochs_to_best)}) / {_n(other.epochs_to_best)} "
                f"= {'at least ' if epochs.censored else ''}{_n(percent)} %"
            )
    difference = row.difference
    assert difference is not None
    ends = None if difference.low is None or difference.high is None else (difference.low, difference.high)
    is_known = difference.percent is not None
    median = f"{'at least ' if difference.is_lower_bound else ''}{_n(difference.percent)} %"
    lines.append(f"median: {median if is_known else wording.difference(difference)}")
    return [*lines, _median_interval(ends, difference.pairs), "not tested"]


def _median_interval(found: tuple[float, float] | None, seeds: int) -> str:
    if found is not None:
        depth, share = median_depth(seeds)
        return (
            f"95 % interval of the median of {seeds}: value {depth} from either end, and {_n(share)} of the way to the "
            f"next: {_n(found[0])} to {_n(found[1])}"
        )
    if seeds < MEDIAN_SEEDS:
        return f"no interval: it takes {MEDIAN_SEEDS} seeds"
    return "no interval: seeds chose the configuration, did not finish, or are of several searches"


def _corrected(p_value: float, comparison: Comparison, leaderboard: Leaderboard) -> str:
    count = sum(row.comparison is not None for row in leaderboard.rows)
    factor = "" if comparison.by_search else f"times {FOR_LONG_TAILS:g} for pairs of seeds, and "
    return f"{factor}after Holm, among {count} comparison{'s' if count > 1 else ''}: {_n(p_value)}"


def _names(seeds: Sequence[SeedResult]) -> str:
    return ", ".join(str(seed.seed) for seed in seeds)


def _list(seeds: Sequence[SeedResult], value: Callable[[SeedResult], float | None]) -> str:
    return ", ".join(_n(value(seed)) for seed in seeds)


def _n(value: float | None) -> str:
    """Six significant digits, so that the arithmetic can be followed."""
    return "unknown" if value is None else f"{value:.6g}"


@dataclass(frozen=True)
class RowRun:
    """One seed. run: its id in the tracking store. counts: it is a `headline` seed, so it enters the numbers."""

    seed: int
    trial: str
    run: str
    phase: str
    status: str
    best_m_recall: float
    epochs_to_best: float
    counts: bool

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class RowSources:
    """revisions, data_fingerprints: of the code and of the data of these runs, each once."""

    runs: tuple[RowRun, ...]
    revisions: tuple[str, ...]
    data_fingerprints: tuple[str, ...]


def sources_of(row: Row, attempts: Sequence[AttemptRecord]) -> RowSources:
    """The runs of a row. attempts: all attempts of the study; the latest of each trial counts."""
    latest = {attempt.start.trial: attempt for attempt in sorted(attempts, key=lambda each: each.start.number)}
    counted = {seed.trial for seed in row.headline}
    found = [(seed, latest[seed.trial]) for seed in row.seeds]
    environments = [attempt.start.environment for _, attempt in found]
    return RowSources(
        tuple(
            RowRun(
                seed.seed, seed.trial, attempt.attempt_id, attempt.start.phase, attempt.status, seed.best_m_recall,
                seed.epochs_to_best, seed.trial in counted,
            )
            for seed, attempt in found
        ),
        *(
            tuple(dict.fromkeys(each[key] for each in environments if each.get(key)))
            for key in ("git_revision", "data_fingerprint")
        ),
    )
