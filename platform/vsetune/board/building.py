"""Building of a leaderboard from attempts."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from vsetune.board.comparing import answered, bounds, collapse_of, collapsed_seeds, comparison_of
from vsetune.board.pareto_front import pareto_front
from vsetune.board.rows import Bounds, Collapse, Cost, Leaderboard, Pick, Row, best_pick
from vsetune.board.search_budgets import SearchBudget
from vsetune.board.seed_results import Contender, SeedResult, headline_of
from vsetune.board.selection import (
    RUNNER_UP,
    budget_of_search,
    by_configuration,
    code_of,
    configuration_key,
    configurations_of,
    contenders_of,
    costs_of,
    dataset_of,
    keeps_constraints,
    other_code,
    runs_of_configuration,
    seed_results,
    sum_of,
    usable,
    why_cannot_draw,
    winner_of,
)
from vsetune.errors import IncompatibleCurves, UsageError
from vsetune.metrics.best_of_k import Tried, TuningCurves, tuning_curves
from vsetune.metrics.curves import Curve, best_of_curve, check_same_cadence, check_same_protocol, resolution
from vsetune.metrics.efficiency import (
    TARGET_SHARE,
    SeedDifference,
    difference_over_seeds,
    epochs_to_best,
    epochs_to_target,
)
from vsetune.metrics.repeated_searches import FEWEST_REPEATS, spread
from vsetune.metrics.seed_statistics import curve_noise, epochs_over_seeds, mean_interval, noise_tolerance, still_rises
from vsetune.records.events import SEARCH_VALUE, was_cut_short
from vsetune.records.state import Attempt, Trial, trials_of


def build(
    attempts: Sequence[Attempt], *, baseline: str, target_share: float = TARGET_SHARE
) -> Leaderboard:
    """Compare the losses of a study, separately for every data set and network.

    The latest attempt of each trial counts, and all attempts are charged. Each search is represented by the
    configuration that won it. Its numbers come from the seeds that confirmed it (docs/decisions/0046). Tuned losses are
    compared search by search, others seed by seed. baseline: name of the loss to compare with. target_share: share of
    the baseline's mean best M-Recall to which epochs are compared, above 0 and at most 1.
    A row with another protocol, validation gap or code version than the baseline is shown but not compared;
    `not_comparable` gives the reason. Raises UsageError without attempts or for a baseline that was not run.
    """
    if not attempts:
        raise UsageError(
            "VSE-B001", "leaderboard: {where} has no attempts yet; wait for its first validation", where="this study"
        )
    cells: dict[tuple[str, str], defaultdict[str, list[Trial]]] = {}
    for trial in trials_of(attempts):
        start = trial[-1].start
        cells.setdefault((dataset_of(trial[-1]), start.network), defaultdict(list))[start.loss].append(trial)
    losses = sorted({loss for group in cells.values() for loss in group})
    if baseline not in losses:
        raise UsageError(
            "VSE-B002", "leaderboard: baseline {baseline} was not run; need one of {losses}", baseline=baseline,
            losses=", ".join(losses),
        )
    rows = [
        row for (dataset, _), group in cells.items()
        for row in group_rows(dataset, group, baseline, target_share=target_share)
    ]
    return board_of(rows, study=attempts[0].start.study, baseline=baseline)


def board_of(rows: Sequence[Row], *, study: str, baseline: str, number: int = 1) -> Leaderboard:
    """The board of rows from `group_rows`, with corrected p-values."""
    return Leaderboard(study, baseline, tuple(answered(rows)), number=number)


def group_rows(
    dataset: str, trials_by_loss: Mapping[str, Sequence[Trial]], baseline: str, *,
    apart: Mapping[str, str] | None = None, target_share: float = TARGET_SHARE,
) -> list[Row]:
    """The rows of one data set and network: the baseline first, then by M-Recall, rows that are not comparable last.

    trials_by_loss: trials by the name of their row. apart: by row, a known reason why it is not comparable.
    target_share: as in `build`.
    """
    apart = apart or {}
    rows = [
        replace(_row(dataset, trials, is_baseline=loss == baseline), loss=loss)
        for loss, trials in sorted(trials_by_loss.items())
    ]
    shown = [row for row in rows if row.seeds and row.loss not in apart]
    reference = next((row for row in shown if row.is_baseline), shown[0] if shown else None)
    rows = [_checked(row, trials_by_loss[row.loss], reference, apart.get(row.loss)) for row in rows]
    noises = [row.noise for row in rows if row.noise is not None and row.not_comparable is None]
    rows = [_levelled(row, row.noise if row.not_comparable else max(noises, default=None)) for row in rows]
    fitting = [row for row in rows if row.not_comparable is None and row.seeds and row.is_trained]
    if fitting and any(row.is_baseline and not row.is_trained for row in rows):
        raise UsageError(
            "VSE-B024", "baseline: {baseline} is trained for 0 epochs, so nothing can be compared with it; name a loss "
            "that is trained", baseline=baseline,
        )
    baseline_row = next((row for row in fitting if row.is_baseline), None)
    collapse = None if baseline_row is None else collapse_of(baseline_row, fitting)
    best = max((seed.best_m_recall for row in fitting for seed in row.headline), default=0.0)
    counted = [row if row.not_comparable else collapsed_seeds(row, best) for row in rows]
    compared = [row if row.not_comparable else _compared(row, baseline_row, collapse, target_share) for row in counted]
    front = {row.loss for row in pareto_front(compared)}
    compared = [replace(row, is_on_front=row.loss in front) for row in compared]
    return sorted(compared, key=lambda row: (
        not row.is_baseline, row.not_comparable is not None, -(row.best_m_recall or -1.0), row.loss
    ))


@dataclass(frozen=True)
class _Search:
    """One search of a row: its pick, the attempt that won it, the seeds of the pick, and the flags of all these."""

    pick: Pick
    winner: Attempt | None
    seeds: tuple[SeedResult, ...]
    contenders: tuple[Contender, ...]
    flags: list[str]


def _row(dataset: str, trials: Sequence[Trial], *, is_baseline: bool) -> Row:
    """The row of one loss, not yet compared."""
    by_repeat: defaultdict[int, list[tuple[Trial, Cost]]] = defaultdict(list)
    costs = costs_of(trials)
    for trial, cost in zip(trials, costs, strict=True):
        by_repeat[trial[-1].start.repeat].append((trial, cost))
    searches = [_search(number, by_repeat[number]) for number in sorted(by_repeat)]
    picks = tuple(search.pick for search in searches)
    shown = searches[picks.index(best_pick(picks))]
    start = (shown.winner or trials[0][-1]).start
    row = Row(
        dataset=dataset, network=start.network, loss=start.loss, cell=f"{start.network}.{start.loss}",
        study=start.study, is_baseline=is_baseline, repeats=picks, configuration=shown.pick.configuration,
        seeds=tuple(sorted((seed for search in searches for seed in search.seeds), key=lambda seed: seed.seed)),
        best_m_recall=None, best_m_recall_std=None, epochs_to_best=None, epochs_to_target=None, difference=None,
        resolution_epochs=None, seconds_per_epoch=None, test_m_recall=None,
        cost=sum_of(costs), configurations=sum(pick.configurations for pick in picks), trials=len(trials),
        attempts=sum(map(len, trials)), counts=dict(Counter(attempt.status for trial in trials for attempt in trial)),
        protocol=start.protocol, flags=_flags_of(searches),
        contenders=tuple(each for search in searches for each in search.contenders), code=code_of(trials),
    )
    return _summarised(row)


def _summarised(row: Row) -> Row:
    """The row with the numbers of its headline seeds."""
    headline = row.headline
    trained = [seed for seed in headline if not seed.diverged]
    by_unit = [[seed.best_m_recall for seed in unit] for unit in row.units]
    bests = [statistics.fmean(unit) for unit in by_unit]
    return replace(
        row, best_m_recall=_mean(bests), best_m_recall_std=statistics.stdev(bests) if len(bests) > 1 else None,
        m_recall_bounds=_recall_bounds(headline, bests, fewest=FEWEST_REPEATS if row.has_searches else 1),
        spread=spread(by_unit) if row.has_searches else None, noise=curve_noise([seed.curve for seed in trained]),
        epochs_to_best=_median([seed.epochs_to_best for seed in trained]),
        resolution_epochs=max((resolution(seed.curve) for seed in headline), default=0.0) or None,
        seconds_per_epoch=_median([seed.seconds_per_epoch for seed in headline]),
        test_m_recall=_mean([seed.test_m_recall for seed in headline]),
    )


def _search(repeat: int, trials_with_costs: Sequence[tuple[Trial, Cost]]) -> _Search:
    """One search of one loss, from its own trials alone."""
    trials, costs = [trial for trial, _ in trials_with_costs], [cost for _, cost in trials_with_costs]
    winner, by_key = winner_of(trials), by_configuration(trials)
    runs = runs_of_configuration(by_key, winner) if winner else []
    configurations = configurations_of(by_key)
    seeds = seed_results(runs, winner, was_searched=configurations > 1) if winner else ()
    headline = headline_of(seeds)
    contenders = contenders_of(trials, by_key, winner, headline) if winner else ()
    budget, cannot_draw = budget_of_search(trials, costs), why_cannot_draw(trials)
    flags = _flags(trials, runs, seeds, contenders)
    flags += [budget.flag] if budget is not None and budget.flag is not None else []
    flags += [] if cannot_draw is None else ["cannot_draw"]
    pick = Pick(
        repeat=repeat, configuration=winner.start.configuration if winner else {},
        seeds=tuple(seed.seed for seed in seeds), best_m_recall=_mean([seed.best_m_recall for seed in headline]),
        is_confirmed=any(seed.is_evidence for seed in headline), configurations=configurations, search_budget=budget,
        tuning=tuning_of(trials, costs, budget), cannot_draw=cannot_draw,
    )
    return _Search(pick, winner, seeds, contenders, flags)


_WITHOUT_RESULT = ("none_allowed", "all_failed", "no_result")


def _flags_of(searches: Sequence[_Search]) -> tuple[str, ...]:
    """Flags of all searches, each once. A search without a result among others with one has a flag of its own."""
    flags = list(dict.fromkeys(flag for search in searches for flag in search.flags))
    if not any(search.seeds for search in searches):
        return tuple(flags)
    if any("chosen_by_itself" not in search.flags for search in searches if search.seeds):
        flags = [flag for flag in flags if flag != "chosen_by_itself"]
    failed = any("all_failed" in search.flags for search in searches)
    missing = any(not search.pick.is_confirmed for search in searches) and len(searches) > 1
    flags = [flag for flag in flags if flag not in _WITHOUT_RESULT]
    return (*flags, *(["search_failed"] if failed else ["search_missing"] if missing else []))


def _flags(
    trials: Sequence[Trial], runs: Sequence[Trial], seeds: tuple[SeedResult, ...], contenders: Sequence[Contender]
) -> list[str]:
    """Flags of one search alone. runs: one per seed of the configuration shown; seeds: the usable ones among them."""
    headline = headline_of(seeds)
    shown = {seed.trial for seed in headline}
    is_barred = not runs and any(usable(trial) and not keeps_constraints(trial[-1]) for trial in trials)
    why_none = "all_failed" if all(trial[-1].status == "failed" for trial in trials) else "no_result"
    flags = [] if seeds else ["none_allowed" if is_barred else why_none]
    flags += ["seed_failed"] if len(seeds) < len(runs) else []
    flags += ["incomplete"] if any(not seed.has_ended for seed in seeds) else []
    flags += ["chosen_by_itself"] if any(seed.chose for seed in headline) else []
    if any(run[-1].start.trial in shown and was_cut_short(run[-1].status, run[-1].error) for run in runs):
        flags.append("stopped_at_target")
    by_recall = not any(SEARCH_VALUE in run[-1].summary for run in runs)
    if by_recall and any(RUNNER_UP in each.role and each.best_m_recall > each.winner_m_recall for each in contenders):
        flags.append("runner_up_ahead")
    return flags


def _still_rises(seeds: Sequence[SeedResult], flags: Sequence[str]) -> bool:
    """Whether the seeds were trained to their end and were still improving. The baseline has its own flag."""
    curves = [seed.curve for seed in seeds if not seed.diverged]
    ended = bool(curves) and all(seed.has_ended for seed in seeds) and "stopped_at_target" not in flags
    return ended and still_rises(curves)


def _checked(row: Row, trials: Sequence[Trial], reference: Row | None, known: str | None) -> Row:
    """The row, flagged if it cannot be compared with the reference (the baseline, else the first loss with a result).
    known: a reason that was found before."""
    reason = known
    if reason is None and row.seeds and reference is not None:
        reason = _incompatibility(row, trials, reference)
    if reason is None:
        return row
    return replace(row, not_comparable=reason, flags=(*row.flags, "not_comparable"))


def _incompatibility(row: Row, trials: Sequence[Trial], reference: Row) -> str | None:
    """Why a row is not comparable: other code, several protocols among its own trials, another protocol or cadence."""
    shown = row.headline[0].trial
    if (versions := other_code(row.code, reference.code)) is not None:
        return f"{shown}: {versions}"
    others = [trial[-1].start for trial in trials if usable(trial) and trial[-1].start.protocol != row.protocol]
    for other in sorted(others, key=lambda start: start.trial):
        try:
            check_same_protocol(row.protocol, other.protocol)
        except IncompatibleCurves as error:
            return f"{shown} against {other.trial}: {error}"
    for seed, against in itertools.product(row.headline, reference.headline):
        try:
            check_same_protocol(reference.protocol, row.protocol)
            check_same_cadence(seed.curve, against.curve)
        except IncompatibleCurves as error:
            return f"{against.trial} against {seed.trial}: {error}"
    return None


def _levelled(row: Row, noise: float | None) -> Row:
    """The row with its epochs to level. noise: the largest of all comparable rows; with a smaller one, one lucky
    validation of a noisy curve would count as its level."""
    if noise is None:
        return row
    tolerance = noise_tolerance(noise)
    seeds = tuple(replace(seed, epochs_to_level=epochs_to_best(seed.curve, tolerance=tolerance)) for seed in row.seeds)
    row = replace(row, seeds=seeds, level_tolerance=tolerance)
    return replace(row, epochs_to_level=_median([seed.epochs_to_level for seed in row.headline if not seed.diverged]))


def _compared(row: Row, baseline_row: Row | None, collapse: Collapse | None, target_share: float) -> Row:
    """The row with its epochs to the baseline's best, seed by seed, its Difference, and its comparison; with none of
    them where the baseline collapsed."""
    if not row.seeds:
        return row
    if not row.is_trained:
        return replace(row, flags=(*row.flags, "untrained"))
    if collapse is not None:
        rising = ["rising"] if not row.is_baseline and _still_rises(row.headline, row.flags) else []
        return replace(row, flags=(*row.flags, "baseline_collapsed", *rising), collapse=collapse)
    references = baseline_row.headline if baseline_row else ()
    baselines = {seed.seed: seed.curve for seed in references}
    counted = {seed.seed for seed in row.headline} & baselines.keys()
    seeds = tuple(
        replace(seed, epochs_to_target=epochs_to_target(seed.curve, best_of_curve(baselines[seed.seed]).m_recall))
        if seed.seed in counted else seed
        for seed in row.seeds
    )
    reached = [seed.epochs_to_target for seed in seeds if seed.epochs_to_target is not None]
    is_by_search = baseline_row is not None and (row.is_tuned or baseline_row.is_tuned)
    flags = list(row.flags)
    is_rising = bool(baselines) and still_rises(list(baselines.values()))
    flags += ["baseline_rising"] if is_rising and (row.is_baseline or counted or is_by_search) else []
    flags += ["censored"] if any(epochs.censored for epochs in reached) else []
    flags += [] if reached or is_by_search else ["no_pairs"]
    flags += ["rising"] if not row.is_baseline and _still_rises(row.headline, flags) else []
    told = epochs_over_seeds(reached) if reached else None
    shared = [seed for seed in (*row.headline, *references) if seed.seed in counted]
    is_independent = all(seed.is_evidence for seed in shared) and len({seed.repeat for seed in shared}) < 2
    row = replace(
        row, seeds=seeds, flags=tuple(flags), epochs_to_target=told.median if told else None,
        epochs_bounds=told.bounds if told and is_independent else None,
    )
    if row.is_baseline or baseline_row is None or not (counted or is_by_search):
        return row
    return replace(
        row, comparison=comparison_of(row, baseline_row, target_share),
        difference=_difference(seeds, baselines, has_interval=is_independent) if counted else None,
    )


def _difference(
    seeds: Sequence[SeedResult], baselines: Mapping[int, Curve], *, has_interval: bool
) -> SeedDifference:
    pairs = [(seed.curve, baselines[seed.seed]) for seed in seeds if seed.epochs_to_target is not None]
    difference = difference_over_seeds(pairs)
    return difference if has_interval else replace(difference, low=None, high=None)


def _recall_bounds(seeds: Sequence[SeedResult], bests: Sequence[float], *, fewest: int) -> Bounds | None:
    """95 % interval of the mean of these numbers, per cent; None for fewer than the fewest, and if any seed is no
    evidence."""
    if len(bests) < fewest or not all(seed.is_evidence for seed in seeds):
        return None
    found = bounds(mean_interval(bests))
    return None if found is None else (max(found[0], 0.0), min(found[1], 100.0))


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


_OVER = ("finished", "pruned", "failed")


def tuning_of(trials: Sequence[Trial], costs: Sequence[Cost], budget: SearchBudget | None) -> TuningCurves | None:
    """Expected best M-Recall of one search. trials: of the search and its seeds. costs: of each trial.

    Ended trials of the search count, each with its validation curve. A trial that failed or breaks a constraint counts
    its epochs and 0 % M-Recall. None for fewer than two configurations, and for a search with another objective than
    M-Recall.
    """
    over = [
        (trial, cost) for trial, cost in zip(trials, costs, strict=True)
        if trial[-1].start.phase == "search" and trial[-1].status in _OVER
    ]
    if not _has_several([trial for trial, _ in over]) or any(SEARCH_VALUE in trial[-1].summary for trial, _ in over):
        return None
    tried = [
        Tried(trial[-1].curve if usable(trial) and keeps_constraints(trial[-1]) else (), cost.budget_epochs)
        for trial, cost in over
    ]
    return tuning_curves(tried, budget_epochs=budget.epochs if budget is not None else None)


def _has_several(trials: Sequence[Trial]) -> bool:
    """Whether the trials have more than one configuration. Stops at the first difference."""
    keys = (configuration_key(trial[-1]) for trial in trials)
    first = next(keys, None)
    return any(key != first for key in keys)
