"""From attempts to a leaderboard."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from vsetune.errors import IncompatibleCurves, UsageError
from vsetune.leaderboard.rows import Leaderboard, Row, SeedResult
from vsetune.leaderboard.selection import (
    Trial,
    cost_of,
    dataset_of,
    runs_of_configuration,
    trials_of,
    usable,
    winner_of,
)
from vsetune.metrics.curves import baseline_flags, best_of_curve, check_same_cadence, check_same_protocol, resolution
from vsetune.metrics.efficiency import Epochs, SeedDifference, difference_over_seeds, epochs_to_best, epochs_to_target
from vsetune.tracking.records import AttemptRecord

_RESAMPLES, _LEVEL, _RESAMPLING_SEED = 2000, 0.95, 0
_INCOMPLETE = ("running", "pruned", "killed")


def build(attempts: Sequence[AttemptRecord], *, baseline: str) -> Leaderboard:
    """Compare the losses of a study, separately for every data set and network.

    Of each trial the latest attempt counts, and all attempts are charged. A cell is represented by the configuration
    with the best validation M-Recall of its search, in all its seeds; a seed is compared with the same seed of the
    baseline. baseline: name of the loss to compare with.
    Raises UsageError without attempts or for a baseline nobody ran, IncompatibleCurves if curves of one data set
    and network were taken under different protocols or validated at different gaps.
    """
    if not attempts:
        raise UsageError("leaderboard: this study has no attempts yet; wait for its first validation")
    cells: dict[tuple[str, str], defaultdict[str, list[Trial]]] = {}
    for trial in trials_of(attempts):
        start = trial[-1].start
        cells.setdefault((dataset_of(trial[-1]), start.network), defaultdict(list))[start.loss].append(trial)
    losses = sorted({loss for group in cells.values() for loss in group})
    if baseline not in losses:
        raise UsageError(f"leaderboard: baseline {baseline} was not run; name one of {', '.join(losses)}")
    rows = [row for (dataset, _), group in cells.items() for row in _group(dataset, group, baseline)]
    return Leaderboard(attempts[0].start.study, baseline, tuple(rows))


def _group(dataset: str, trials_by_loss: dict[str, list[Trial]], baseline: str) -> list[Row]:
    """The rows of one data set and network, the baseline first, then by M-Recall."""
    _refuse_other_protocols([trial for trials in trials_by_loss.values() for trial in trials])
    rows = [_row(dataset, trials, is_baseline=loss == baseline) for loss, trials in trials_by_loss.items()]
    yardstick = next((row for row in rows if row.is_baseline), None)
    _refuse_other_cadences(rows, yardstick)
    best_of_any = max((seed.best_m_recall for row in rows for seed in row.seeds), default=0.0)
    compared = [_compared(row, yardstick, best_of_any) for row in rows]
    return sorted(compared, key=lambda row: (not row.is_baseline, -(row.best_m_recall or -1.0), row.loss))


def _row(dataset: str, trials: Sequence[Trial], *, is_baseline: bool) -> Row:
    """A cell by itself, not yet compared."""
    start = trials[0][-1].start
    winner = winner_of(trials)
    runs = runs_of_configuration(trials, winner) if winner else []
    seeds = tuple(_seed_result(run[-1]) for run in runs if usable(run))
    bests = [seed.best_m_recall for seed in seeds]
    flags = [] if seeds else ["no_result"]
    flags += ["seed_failed"] if len(seeds) < len(runs) else []
    flags += ["incomplete"] if any(seed.status in _INCOMPLETE for seed in seeds) else []
    return Row(
        dataset=dataset, network=start.network, loss=start.loss, cell=start.cell, is_baseline=is_baseline,
        configuration=winner.start.configuration if winner else {}, seeds=seeds,
        best_m_recall=statistics.fmean(bests) if bests else None,
        best_m_recall_std=statistics.stdev(bests) if len(bests) > 1 else None,
        epochs_to_best=_median([seed.epochs_to_best for seed in seeds]), epochs_to_target=None, difference=None,
        resolution_epochs=max((resolution(seed.curve) for seed in seeds), default=None),
        seconds_per_epoch=_median([seed.seconds_per_epoch for seed in seeds]),
        test_m_recall=_mean([seed.test_m_recall for seed in seeds]),
        cost=cost_of(trials), trials=len(trials), attempts=sum(map(len, trials)),
        counts=dict(Counter(attempt.status for trial in trials for attempt in trial)),
        protocol=winner.start.protocol if winner else start.protocol, flags=tuple(flags),
    )


def _seed_result(attempt: AttemptRecord) -> SeedResult:
    summary = attempt.summary
    best = best_of_curve(attempt.curve)
    seconds = summary.get("seconds_per_epoch")
    if seconds is None and "train_seconds" in summary:
        seconds = summary["train_seconds"] / attempt.curve[-1][0]
    return SeedResult(
        seed=attempt.start.seed, trial=attempt.start.trial, status=attempt.status, curve=attempt.curve,
        best_m_recall=best.m_recall, epochs_to_best=epochs_to_best(attempt.curve, tolerance=0.0),
        seconds_per_epoch=seconds, test_m_recall=summary.get("test_m_recall"),
    )


def _compared(row: Row, yardstick: Row | None, best_of_any: float) -> Row:
    """The row with its epochs to the baseline's best, seed by seed, and its Difference."""
    if not row.seeds:
        return row
    baselines = {seed.seed: seed.curve for seed in yardstick.seeds} if yardstick else {}
    seeds = tuple(
        replace(seed, epochs_to_target=epochs_to_target(seed.curve, best_of_curve(baselines[seed.seed]).m_recall))
        if seed.seed in baselines else seed
        for seed in row.seeds
    )
    reached = [seed.epochs_to_target for seed in seeds if seed.epochs_to_target is not None]
    flags = list(row.flags)
    states = [baseline_flags(curve, best_of_any_loss=best_of_any) for curve in baselines.values()]
    flags += ["baseline_rising"] if row.is_baseline and any(state.is_rising for state in states) else []
    flags += ["baseline_collapsed"] if any(state.is_collapsed for state in states) else []
    flags += ["censored"] if any(epochs.censored for epochs in reached) else []
    flags += [] if reached else ["no_pairs"]
    pairs = [(seed.curve, baselines[seed.seed]) for seed in seeds if seed.seed in baselines]
    return replace(
        row, seeds=seeds, flags=tuple(flags), epochs_to_target=median_epochs(reached),
        difference=_difference(pairs) if pairs and not row.is_baseline else None,
    )


def _difference(pairs: Sequence[tuple[Sequence[tuple[float, float]], Sequence[tuple[float, float]]]]) -> SeedDifference:
    return difference_over_seeds(pairs, resamples=_RESAMPLES, level=_LEVEL, seed=_RESAMPLING_SEED)


def median_epochs(values: Sequence[Epochs]) -> Epochs | None:
    """Median over seeds; a lower bound as soon as a censored value could move it. None without values."""
    if not values:
        return None
    lower = statistics.median(epochs.value for epochs in values)
    upper = statistics.median(float("inf") if epochs.censored else epochs.value for epochs in values)
    return Epochs(lower, censored=lower != upper)


def _refuse_other_protocols(trials: Sequence[Trial]) -> None:
    first: AttemptRecord | None = None
    for attempt in (trial[-1] for trial in trials if usable(trial)):
        first = first or attempt
        try:
            check_same_protocol(first.start.protocol, attempt.start.protocol)
        except IncompatibleCurves as error:
            where = f"leaderboard: {first.start.trial} against {attempt.start.trial}"
            raise IncompatibleCurves(f"{where}: {error}") from error


def _refuse_other_cadences(rows: Sequence[Row], yardstick: Row | None) -> None:
    for row in rows if yardstick else ():
        for seed in row.seeds:
            for other in yardstick.seeds if yardstick else ():
                try:
                    check_same_cadence(seed.curve, other.curve)
                except IncompatibleCurves as error:
                    raise IncompatibleCurves(f"leaderboard: {seed.trial} against {other.trial}: {error}") from error


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
