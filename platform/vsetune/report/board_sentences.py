"""Every sentence of a board: what its data support, and what to know before quoting a number of it.

A loss is called higher or faster only after a passed test.
"""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Mapping, Sequence

from vsetune.metrics.repeated_searches import FEWEST_REPEATS
from vsetune.metrics.seed_statistics import MEAN_SEEDS, MEDIAN_SEEDS
from vsetune.report.comparing import units_of
from vsetune.report.paper_table import published_notes
from vsetune.report.rows import ALPHA, AT_RANGE_END, Comparison, Leaderboard, Pick, Row
from vsetune.report.search_budgets import LESS, MORE
from vsetune.report.selection import code_words
from vsetune.report.time_profiles import pareto_front
from vsetune.report.wording import (
    collapse,
    collapsed,
    configuration,
    epochs,
    fixed,
    gain,
    mean,
    new_study_file,
    pace,
    search_name,
    share_of_epochs,
)


def headline(leaderboard: Leaderboard) -> list[str]:
    """One sentence per data set and network: the supported claims, or the searches or seeds that an answer needs;
    collapses first."""
    return [*collapses(leaderboard), *(
        _headline(dataset, network, rows, leaderboard.baseline) for dataset, network, rows in leaderboard.groups()
        if not any(row.collapse for row in rows)
    )]


def collapses(leaderboard: Leaderboard) -> list[str]:
    """One sentence per data set and network whose baseline collapsed, or of whose losses seeds collapsed."""
    lines = []
    for dataset, network, rows in leaderboard.groups():
        place = f"{network} on {dataset}"
        row = next((row for row in rows if row.collapse), None)
        if row is not None:
            words = collapse(row).replace("the baseline", f"the baseline {leaderboard.baseline}", 1)
            lines.append(f"{place}: {words}. Nothing is compared with it.")
        fallen = [f"{row.loss}: {collapsed(row)}" for row in rows if row.collapsed_seeds and row.collapse is None]
        lines += [f"{place}: {'; '.join(fallen)}. They count."] if fallen else []
    return lines


def findings(leaderboard: Leaderboard) -> list[str]:
    """Two sentences per comparison with the baseline, then the tests used and the command for more seeds. Losses of a
    network with equal sentences share them."""
    compared = [row for row in leaderboard.rows if row.comparison is not None]
    losses: dict[tuple[str, str, str], list[str]] = {}
    for row in compared:
        if row.comparison is not None:
            words = _finding(row, row.comparison, leaderboard)
            losses.setdefault((row.dataset, row.network, words), []).append(row.loss)
    lines = [f"{network} {', '.join(names)} {words}" for (_, network, words), names in losses.items()]
    return [*lines, *_method(compared), *_more_seeds(leaderboard, compared)]


def is_ahead(row: Row) -> bool:
    """Whether the data support a higher M-Recall than the baseline's."""
    return row.comparison is not None and row.comparison.height == "supported"


def _headline(dataset: str, network: str, rows: Sequence[Row], baseline: str) -> str:
    place = f"{network} on {dataset}"
    if not any(row.seeds for row in rows):
        failed = all("all_failed" in row.flags for row in rows)
        return f"{place}: no result{', every trial failed' if failed else ' yet'}."
    compared = [row for row in rows if row.comparison is not None]
    if not compared:
        return f"{place}: no loss shares a seed with {baseline}, nothing is compared."
    supported = [
        *_supported(compared, "height", f"higher than {baseline}", _gain),
        *_supported(compared, "epochs_answer", f"faster than {baseline}", _pace),
    ]
    if supported:
        return f"{place}: the data support that {', and that '.join(supported)}."
    answers = [row.comparison.answers for row in compared if row.comparison]
    if all("one search" in each for each in answers):
        return f"{place}: {_one_search(compared, rows, 'which tuned loss is higher')}"
    if all("too few seeds" in each for each in answers):
        return f"{place}: {_too_few([row.comparison for row in compared if row.comparison], baseline)}"
    return f"{place}: the data do not yet separate any loss from {baseline}."


def _one_search(compared: Sequence[Row], rows: Sequence[Row], claim: str) -> str:
    """`one search of each loss: the board cannot say ...`, with the number of searches of every loss with too few.

    rows: of their network and data set, with the baseline.
    """
    involved = [row for row in rows if row.is_tuned and (row.is_baseline or row in compared)]
    counts = {row.loss: len(units_of(row)) for row in involved}
    short = {loss: count for loss, count in counts.items() if count < FEWEST_REPEATS}
    counted = {_count_of_searches(count) for count in short.values()}
    if len(counted) == 1 and len(short) == len(compared) + 1:
        state = f"{counted.pop()} of each loss"
    else:
        state = ", ".join(f"{_count_of_searches(count)} of {loss}" for loss, count in short.items())
    return f"{state}: the board cannot say {claim}; `search.repeats: {FEWEST_REPEATS}` or more would show it."


def _count_of_searches(count: int) -> str:
    return {0: "no confirmed search", 1: "one search"}.get(count, f"{count} searches")


def _too_few(comparisons: Sequence[Comparison], baseline: str) -> str:
    """`no winner over lmh yet: each loss has 1 seed to compare. Testing takes 1 more.`"""
    units, fewest = max((min(each.units, each.baseline_units), _fewest(each)) for each in comparisons)
    state = f"each loss has {_seeds(units)} to compare"
    return f"no winner over {baseline} yet: {state}. Testing takes {fewest - units} more."


def _fewest(comparison: Comparison) -> int:
    """Fewest observations of each loss for a claim."""
    return FEWEST_REPEATS if comparison.by_search else MEAN_SEEDS


def _supported(rows: Sequence[Row], claim: str, words: str, amount: Callable[[Row], str]) -> list[str]:
    """`lseh (+1.3 [0.8, 1.8] points) is higher than lmh`: all losses whose claim is supported; empty without any."""
    found = [row for row in rows if getattr(row.comparison, claim) == "supported"]
    names = ", ".join(f"{row.loss} ({amount(row)})" for row in found)
    limit = _within(found) if claim == "height" else ""
    return [f"{names} {'is' if len(found) == 1 else 'are'} {words}{limit}"] if found else []


def _pace(row: Row) -> str:
    assert row.comparison is not None
    to_target = row.comparison.epochs
    return f"{pace(row.comparison)} epochs to {fixed(to_target.target, 1)} %"


def _gain(row: Row) -> str:
    return f"{gain(row)} points"


def _finding(row: Row, comparison: Comparison, leaderboard: Leaderboard) -> str:
    baseline, amounts = leaderboard.baseline, _amounts(row, comparison)
    rows = next(rows for *_, rows in leaderboard.groups() if row in rows)
    if "one search" in comparison.answers:
        return f"against {baseline}, {_one_search([row], rows, f'whether it is higher or faster{amounts}')}"
    if "search failed" in comparison.answers:
        return f"against {baseline}: no claim is made, since every trial of a search failed{amounts}."
    if "too few seeds" in comparison.answers:
        count = _seeds(min(comparison.units, comparison.baseline_units))
        return f"against {baseline}, {count}: a test takes {_seeds(_fewest(comparison))}{amounts}."
    said = f"{_on_height(row, comparison)} {_on_epochs(comparison, baseline)}"
    return f"against {baseline}, {_observations(row, comparison, rows)}: {said}"


def _amounts(row: Row, comparison: Comparison) -> str:
    """` (+1.3 points of M-Recall, −12.0 % epochs to 57.2 %)`; empty without seeds to compare."""
    return f" ({_gain(row)} of M-Recall, {_pace(row)})" if comparison.m_recall is not None else ""


def _observations(row: Row, comparison: Comparison, rows: Sequence[Row]) -> str:
    """`7 seeds`, `3 searches of each loss`, or `3 searches against 5 seeds` of the baseline."""
    if not comparison.by_search:
        return _seeds(comparison.units)
    is_baseline_tuned = any(each.is_baseline and each.is_tuned for each in rows)
    ours = f"{comparison.units} {'searches' if row.is_tuned else 'seeds'}"
    theirs = f"{comparison.baseline_units} {'searches' if is_baseline_tuned else 'seeds'}"
    return f"{ours} of each loss" if ours == theirs else f"{ours} against {theirs}"


def _on_height(row: Row, comparison: Comparison) -> str:
    amount, p_value, within = f"{_gain(row)} of M-Recall", _p(comparison.height_p), _within([row])
    match comparison.height:
        case "supported":
            return f"the data support that it is higher{within}, {amount}, {p_value}."
        case "contradicted":
            return f"the data support that it is lower{within}, {amount}, {p_value}."
        case "undecided":
            return f"the data cannot yet tell whether it is higher, {amount}, {p_value}."
    return "no claim is made about its best M-Recall, since seeds were stopped at their target."


def _on_epochs(comparison: Comparison, baseline: str) -> str:
    """On epochs to the target, with the seeds that never reach it."""
    found = comparison.epochs
    target = f"{fixed(found.target, 1)} % ({100 * found.share:.3g} % of the mean best of {baseline})"
    sides = ((found.missed, "its seeds"), (found.baseline_missed, f"the seeds of {baseline}"))
    missed = [f"never reached by {count} of {whose}" for count, whose in sides if count]
    evidence = f"{pace(comparison)}, {_p(comparison.epochs_p)}" + "".join(f", {each}" for each in missed)
    match comparison.epochs_answer:
        case "supported":
            return f"The data support that it needs fewer epochs to {target}: {evidence}."
        case "contradicted":
            return f"The data support that it needs more epochs to {target}: {evidence}."
    return f"The data cannot yet tell whether it needs fewer epochs to {target}: {evidence}."


def _method(compared: Sequence[Row]) -> list[str]:
    tested = [
        row.comparison for row in compared
        if row.comparison and row.comparison.answers & {"supported", "contradicted", "undecided"}
    ]
    if not tested:
        return []
    kinds = {
        "paired seeds by Student's t": not all(each.by_search for each in tested),
        "tuned losses by Welch's t over the means of searches (of a loss that was not tuned, over its seeds)":
            any(each.by_search for each in tested),
    }
    used = ", ".join(words for words, is_used in kinds.items() if is_used)
    return [
        f"Tests: {used}; epochs by their logarithms. P-values are corrected after Holm over "
        f"{len(compared)} comparison{'s' if len(compared) > 1 else ''} of each kind, at {fixed(100 * ALPHA, 0)} %; "
        "intervals are not. No claim is made about other validation images."
    ]


def _more_seeds(leaderboard: Leaderboard, compared: Sequence[Row]) -> list[str]:
    short = [(row, row.comparison) for row in compared if row.comparison and "too few seeds" in row.comparison.answers]
    if not short:
        return []
    needed = max(_fewest(each) for _, each in short)
    baselines = {(row.dataset, row.network): row.study for row in leaderboard.rows if row.is_baseline}
    studies = dict.fromkeys(
        study for row, _ in short for study in (baselines.get((row.dataset, row.network), row.study), row.study)
    )
    return [f"More seeds: {' && '.join(f'vsetune study confirm {study} --seeds {needed}' for study in studies)}"]


def _seeds(count: int) -> str:
    return f"{count} seed" if count == 1 else f"{count} seeds"


def _within(rows: Sequence[Row]) -> str:
    """` within 6 epochs` where a loss or its baseline was still improving at the end: more epochs may reverse it."""
    if not any({"rising", "baseline_rising"} & set(row.flags) for row in rows):
        return ""
    longest = max(seed.curve[-1][0] for row in rows for seed in row.headline)
    return f" within {longest:g} epoch{'' if longest == 1 else 's'}"


def _p(value: float) -> str:
    return f"p = {fixed(value, 3)}" if value >= 0.001 else "p < 0.001"


_PROTOCOL_WORDS = {
    "split": "split", "images": "images", "captions": "captions", "validation_images": "images ranked",
    "reranking": "re-ranking", "batch_size": "batch size",
    "validate_every_steps": "steps between validations", "steps_per_epoch": "steps per epoch",
    "tie_rule": "ties", "data_fingerprint": "data",
}


def protocol_line(leaderboard: Leaderboard) -> str:
    """The protocol of the board in one sentence, with every value of entries that differ between groups."""
    seen: dict[str, list[str]] = {}
    for row in leaderboard.rows:
        for key, value in row.protocol.items():
            shown = str(value) if value is not None else "end of epoch"
            if key in _PROTOCOL_WORDS and shown not in seen.setdefault(key, []):
                seen[key].append(shown)
    parts = [f"{word} {' / '.join(seen[key])}" for key, word in _PROTOCOL_WORDS.items() if key in seen]
    return "Protocol: " + ", ".join(parts) + "." if parts else "Protocol: not recorded."


FLAGS = {
    "baseline_rising": "the baseline was still rising when it ended, so targets taken from its best are easy ones: "
    "after more epochs they would be higher",
    "baseline_collapsed": "the best M-Recall of the baseline is below half of the best that any loss reached with this "
    "network, or its last M-Recall is that of a random order: nothing is compared with it; give it a warm-up "
    "(warmup_epochs: 1, of losses on the hardest negative) or a smaller learning rate in a new study, or choose "
    "another baseline (--baseline LOSS)",
    "censored": "seeds that never reached the baseline's best; they count as slower than their last epoch, and > marks "
    "a lower bound",
    "no_pairs": "no seed was run for both this loss and the baseline: no Difference",
    "incomplete": "a run of the shown configuration has not been trained to its budget (running, pruned or killed); "
    "it is ignored if other seeds have finished",
    "seed_failed": "a seed of the shown configuration failed, for another reason than divergence, and is missing from "
    "the means",
    "seed_collapsed": "seeds that collapsed (a best M-Recall below half of the best of any loss, or a last one of a "
    "random order) or diverged; they count, a diverged one as 0 % that never reaches a target",
    "search_missing": "a search has no confirmed result yet and is missing from the means",
    "search_failed": "every trial of a search failed, so its other searches are a favourable choice: no claim is made",
    "chosen_by_itself": "the seed that searched chose this configuration and no other seed has confirmed it: the "
    "number is the maximum over the configurations tried, and optimistic",
    "runner_up_ahead": "the runner-up of the search is higher over the confirming seeds: the search could not tell the "
    "two apart, and the number shown is still that of its winner",
    "not_comparable": "taken under other conditions than the baseline: shown, and not compared",
    "stopped_at_target": "a seed shown was trained only until it reached the target of its search, so its best "
    "M-Recall is not final; confirm it (vsetune study confirm)",
    "less_than_budget": "the search left more than one full training of its budget unused (it is not over, trials "
    "failed, or nothing was left to try): the other losses had more chances",
    "more_than_budget": "the search exceeded its budget by more than one full training: it had more chances than the "
    "others",
    "cannot_draw": "the search found no further configuration that makes a valid trial, and ended there",
    AT_RANGE_END: "the winner has a setting at an end of the range that its search was given",
    "rising": "still rising at the end of training: its M-Recall is measured at the last epoch, and may be higher "
    "after more",
    "none_allowed": "every trial of this cell breaks a constraint of the search",
    "all_failed": "every trial of this cell failed",
    "no_result": "no trial of this cell has a usable validation",
}
"""Meaning of each flag of a row, for the notes under a table."""


def notes(leaderboard: Leaderboard) -> list[str]:
    """Notes to read before quoting a number: resolution, intervals, and every flag that occurs."""
    lines = [*_resolution_notes(leaderboard), *_interval_notes(leaderboard)]
    for group in leaderboard.groups():
        found = (_front_note(*group, leaderboard.baseline), _shares_note(*group, leaderboard.baseline))
        lines += [note for note in found if note]
    lines += [note for row in leaderboard.rows if (note := _picks_note(row))]
    lines += _searching_note(leaderboard)
    lines += [_contenders_note(row) for row in leaderboard.rows if row.contenders]
    for flag, mark in flag_marks(leaderboard).items():
        rows = [row for row in leaderboard.rows if flag in row.flags]
        named = [row for row in rows if row.is_baseline] if flag.startswith("baseline_") else rows
        lines.append(f"({mark}) {', '.join(_name(row, flag) for row in named)}: {FLAGS[flag]}.")
        lines += [f"({mark}) {line}" for row in rows for line in _details(row, flag)]
    return [*lines, *code_notes(leaderboard.rows), *published_notes(leaderboard)]


def _details(row: Row, flag: str) -> list[str]:
    """Lines on one row with a flag, below the note on all of them."""
    name = f"{row.network} {row.loss}"
    match flag:
        case "baseline_rising" if row.is_baseline:
            return [_longer(row)]
        case "at_range_end":
            return [end.sentence(_search_of(row, pick)) for pick in row.repeats for end in pick.range_ends]
        case "not_comparable":
            return [f"{name}: {row.not_comparable}."]
        case "cannot_draw":
            return [f"{_search_of(row, pick)}: {pick.cannot_draw}." for pick in row.repeats if pick.cannot_draw]
    return []


def _search_of(row: Row, pick: Pick) -> str:
    return f"{row.network} {search_name(row, pick)}"


def _picks_note(row: Row) -> str:
    """What each of several searches of a loss found, and how far apart searches and seeds are."""
    if len(row.repeats) == 1 or not row.is_tuned:
        return ""
    picks = "; ".join(
        f"{pick.repeat}: {fixed(pick.best_m_recall, 1)} % ({configuration(pick.configuration)}; seeds "
        f"{', '.join(map(str, pick.seeds))})" for pick in row.repeats if pick.seeds
    )
    apart = "" if row.spread is None else (
        f" Standard deviation between searches {fixed(row.spread.search, 2)} points, between seeds of a pick "
        f"{fixed(row.spread.seed, 2)}."
    )
    return f"{row.network} {row.loss}, search by search: {picks}.{apart}"


def _shares_note(dataset: str, network: str, rows: Sequence[Row], baseline: str) -> str:
    """Epochs to several shares of the baseline's mean best; empty if nothing is compared."""
    comparisons = [(row.loss, row.comparison) for row in rows if row.comparison is not None]
    known = [(loss, each.profile) for loss, each in comparisons if each.m_recall is not None]
    if not known:
        return ""
    shares = ", ".join(fixed(100 * each.share, 0) for each in known[0][1])
    losses = "; ".join(f"{loss} {', '.join(map(share_of_epochs, profile))}" for loss, profile in known)
    return (
        f"{network} on {dataset}, epochs to {shares} % of the mean best of {baseline}, against its own: {losses}; as "
        "measured, not tested."
    )


def _front_note(dataset: str, network: str, rows: Sequence[Row], baseline: str) -> str:
    """A note on the Pareto front; empty if all its rows have the same M-Recall."""
    front = pareto_front(rows)
    if len({row.best_m_recall for row in front}) < 2:
        return ""
    losses = ", ".join(
        f"{row.loss} ({epochs(row.epochs_to_target)} epochs to the best of {baseline}, M-Recall "
        f"{fixed(row.best_m_recall, 1)} %)" for row in front
    )
    place = f"{network} on {dataset}"
    return f"{place}, from the fastest to the highest (the Pareto front): {losses}, as measured, not tested."


def _searching_note(leaderboard: Leaderboard) -> list[str]:
    """M-Recall of the seeds that searched, where the numbers exclude them."""
    left_out = [
        f"{row.network} {row.loss} {fixed(seed.best_m_recall, 1)} (seed {seed.seed}, best of {pick.configurations})"
        for row in leaderboard.rows for pick in row.repeats for seed in row.seeds_of(pick)
        if seed.chose and seed not in row.headline
    ]
    if not left_out:
        return []
    return [f"Seeds that chose the configuration are excluded: {', '.join(left_out)}."]


def _contenders_note(row: Row) -> str:
    """`vsepp lseh, run again together with its winner: runner-up 61.0 ± 0.2 over the seeds 1, 2 ...`"""
    contenders = "; ".join(
        f"{each.role} {mean(each.best_m_recall, each.best_m_recall_std)} over the seeds "
        f"{', '.join(str(seed.seed) for seed in each.seeds)} (the winner {fixed(each.winner_m_recall, 1)})"
        for each in row.contenders
    )
    return f"{row.network} {row.loss}, run again together with its winner: {contenders}."


def _name(row: Row, flag: str) -> str:
    name = f"{row.network} {row.loss}"
    if flag == "chosen_by_itself":
        return f"{name} (best of {row.configurations})"
    if flag == "censored":
        reached = [seed.epochs_to_target for seed in row.headline if seed.epochs_to_target is not None]
        return f"{name} ({sum(each.censored for each in reached)} of {len(reached)})"
    if flag == "seed_collapsed":
        return f"{name} ({collapsed(row)})"
    if flag in (LESS, MORE) and row.search_budget is not None:
        return f"{name} (epochs: {row.search_budget.words})"
    return name


def flag_marks(leaderboard: Leaderboard) -> dict[str, str]:
    """The letter that links rows with a flag to its note, for every flag that occurs."""
    occurring = [flag for flag in FLAGS if any(flag in row.flags for row in leaderboard.rows)]
    return dict(zip(occurring, string.ascii_lowercase, strict=False))


def marks(row: Row, letters: Mapping[str, str]) -> str:
    """`a,c`: the letters of a row's flags."""
    return ",".join(letter for flag, letter in letters.items() if flag in row.flags)


def _interval_notes(leaderboard: Leaderboard) -> list[str]:
    lines = []
    if any(row.best_m_recall_std is not None for row in leaderboard.rows):
        lines.append(
            "± is the standard deviation over seeds; epochs are medians over seeds. [low, high] are 95 % intervals, "
            f"over finished seeds that chose nothing: of mean M-Recall (Student's t) from {MEAN_SEEDS} seeds, of "
            f"median epochs and Difference (order statistics) from {MEDIAN_SEEDS}; of fewer none is given. Difference "
            "is to the baseline's own best (LSEH Eq. 10), and is not tested."
        )
    tuned = [row for row in leaderboard.rows if row.is_tuned and row.best_m_recall_std is not None]
    if any(len(row.repeats) > 1 for row in tuned):
        lines.append(
            "Of a tuned loss with several searches, ± and interval are over the means of searches, the interval from "
            f"{FEWEST_REPEATS}."
        )
    if any(len(row.repeats) == 1 for row in tuned):
        lines.append(
            "Of a tuned loss with one search, ± and interval are over its seeds: another search may differ more."
        )
    tolerances = {
        (row.dataset, row.network): row.level_tolerance for row in leaderboard.rows
        if row.level_tolerance is not None and row.not_comparable is None
    }
    if tolerances:
        widths = ", ".join(f"{network} on {data} {fixed(width, 2)}" for (data, network), width in tolerances.items())
        lines.append(
            "Epochs to level: the first validation within 2.77 standard deviations of the best, of the noisiest loss. "
            f"That is, in points: {widths}."
        )
    return lines


def _longer(row: Row) -> str:
    """The command that trains a baseline twice as long."""
    last = max(epoch for seed in row.headline for epoch, _ in seed.curve)
    file = new_study_file(row.study, row.cell.partition(".")[0], "longer")
    return (
        f"Prolong it: vsetune leaderboard repeat {row.study}/{row.cell} --all --epochs {math.ceil(2 * last)} "
        f"--output {file}, then vsetune study run {file}"
    )


def _resolution_notes(leaderboard: Leaderboard) -> list[str]:
    gaps: dict[str, list[str]] = {}
    for dataset, network, rows in leaderboard.groups():
        known = [row.resolution_epochs for row in rows if row.resolution_epochs is not None]
        if known:
            gaps.setdefault(fixed(max(known), 2), []).append(f"{network} on {dataset}")
    if not gaps:
        return []
    shown = next(iter(gaps)) if len(gaps) == 1 else "; ".join(f"{gap} for {', '.join(of)}" for gap, of in gaps.items())
    return [f"Epochs are resolved to the gap between validations, {shown}: ignore smaller differences."]


def code_notes(rows: Sequence[Row]) -> list[str]:
    """One sentence for every user component: the version that each cell ran with."""
    cells: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        for key, sha256 in row.code.items():
            cells.setdefault(key, {}).setdefault(sha256, []).append(f"{row.network} {row.loss}")
    lines = []
    for key, versions in sorted(cells.items()):
        words = "; ".join(f"{code_words(key, sha256)} in {', '.join(of)}" for sha256, of in versions.items())
        several = f"{len(versions)} versions, which are not comparable: " if len(versions) > 1 else ""
        lines.append(f"Plugin code: {several}{words}.")
    return lines
