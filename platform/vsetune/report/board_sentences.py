"""Every sentence of a board: what its data support, and what to know before quoting a number of it.

A loss is called higher or faster only after a passed test.
"""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Mapping, Sequence

from vsetune.metrics.seed_statistics import MEAN_SEEDS, MEDIAN_SEEDS, noise_tolerance
from vsetune.report.paper_table import published_notes
from vsetune.report.rows import ALPHA, AT_RANGE_END, Answer, Comparison, Leaderboard, Row
from vsetune.report.search_budgets import LESS, MORE
from vsetune.report.selection import code_words
from vsetune.report.time_profiles import pareto_front
from vsetune.report.wording import collapse, difference, epochs, fixed, gain, mean, new_study_file


def headline(leaderboard: Leaderboard) -> list[str]:
    """One sentence per data set and network: the supported claims, or the seeds that an answer needs; collapsed
    baselines first."""
    return [*collapses(leaderboard), *(
        _headline(dataset, network, rows, leaderboard.baseline) for dataset, network, rows in leaderboard.groups()
        if not any(row.collapse for row in rows)
    )]


def collapses(leaderboard: Leaderboard) -> list[str]:
    """One sentence per data set and network whose baseline collapsed."""
    collapsed = [
        (f"{network} on {dataset}", next((row for row in rows if row.collapse), None))
        for dataset, network, rows in leaderboard.groups()
    ]
    return [
        f"{place}: {collapse(row).replace('the baseline', f'the baseline {leaderboard.baseline}', 1)}. Nothing "
        "is compared with it." for place, row in collapsed if row is not None
    ]


def findings(leaderboard: Leaderboard) -> list[str]:
    """Two sentences per comparison with the baseline, then the tests used and the command for more seeds. Losses of a
    network with equal sentences share them."""
    compared = [row for row in leaderboard.rows if row.comparison is not None]
    losses: dict[tuple[str, str, str], list[str]] = {}
    for row in compared:
        if row.comparison is not None:
            words = _finding(row, row.comparison, leaderboard.baseline)
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
        *_supported(compared, "epochs", f"faster to the best of {baseline}", _difference),
    ]
    if supported:
        return f"{place}: the data support that {', and that '.join(supported)}."
    if all("too few seeds" in _answers(row) for row in compared):
        return f"{place}: {_too_few([row.comparison for row in compared if row.comparison], baseline)}"
    return f"{place}: the data do not yet separate any loss from {baseline}."


def _too_few(comparisons: Sequence[Comparison], baseline: str) -> str:
    """`no winner over lmh yet: each loss has 1 seed to compare. Testing which is higher needs 1 more.`"""
    most = max(len(each.seeds) for each in comparisons)
    state = f"each loss has {_seeds(most)} to compare" if most else "each loss has only the seed that it was tuned on"
    needed = {"higher": comparisons[0].height_seeds, "faster": comparisons[0].epochs_seeds}
    more = [f"which is {what} needs {count - most} more" for what, count in needed.items() if count > most]
    return f"no winner over {baseline} yet: {state}. Testing {', '.join(more)}."


def _supported(rows: Sequence[Row], claim: str, words: str, amount: Callable[[Row], str]) -> list[str]:
    """`lseh (+1.3 [0.8, 1.8] points) is higher than lmh`: all losses whose claim is supported; empty without any."""
    found = [row for row in rows if getattr(row.comparison, claim) == "supported"]
    names = ", ".join(f"{row.loss} ({amount(row)})" for row in found)
    limit = _within(found) if claim == "height" else ""
    return [f"{names} {'is' if len(found) == 1 else 'are'} {words}{limit}"] if found else []


def _difference(row: Row) -> str:
    return f"Difference {difference(row.difference)}"


def _gain(row: Row) -> str:
    return f"{gain(row)} points"


def _answers(row: Row) -> set[Answer]:
    return {row.comparison.height, row.comparison.epochs} if row.comparison else set()


def _finding(row: Row, comparison: Comparison, baseline: str) -> str:
    seeds = _seeds(len(comparison.seeds)) if comparison.seeds else "only the seeds of the search"
    return f"against {baseline}, {seeds}: {_on_height(row, comparison)} {_on_epochs(row, comparison, baseline)}"


def _on_height(row: Row, comparison: Comparison) -> str:
    amount = f"{_gain(row)} of M-Recall" if comparison.m_recall is not None else ""
    p_value, within = _p(comparison.height_p), _within([row])
    match comparison.height:
        case "supported":
            return f"the data support that it is higher{within}, {amount}, {p_value}."
        case "contradicted":
            return f"the data support that it is lower{within}, {amount}, {p_value}."
        case "undecided":
            return f"the data cannot yet tell whether it is higher, {amount}, {p_value}."
        case "cut short":
            return "no claim is made about its best M-Recall, since seeds were stopped at their target."
    needed = f"a test of whether it is higher needs {_seeds(comparison.height_seeds)}"
    return f"{needed} ({amount})." if amount else f"{needed}."


def _on_epochs(row: Row, comparison: Comparison, baseline: str) -> str:
    claim = f"it is faster to the best of {baseline}"
    counts = f"faster on {_seeds(comparison.sooner)}, slower on {comparison.later}"
    evidence = f"{counts}, {_difference(row)}, {_p(comparison.epochs_p)}"
    match comparison.epochs:
        case "supported":
            return f"The data support that {claim}: {evidence}."
        case "contradicted":
            return f"The data do not support that {claim}: {evidence}."
        case "undecided":
            return f"The data cannot yet tell whether {claim}: {evidence}."
        case "no yardstick":
            return f"No claim is made about epochs, since {baseline} was still rising when it ended."
    return f"A test of whether {claim} needs {_seeds(comparison.epochs_seeds)}."


def _method(compared: Sequence[Row]) -> list[str]:
    if not any(_answers(row) & {"supported", "contradicted", "undecided"} for row in compared):
        return []
    return [
        f"Tests use paired seeds: M-Recall by Student's t, epochs by signs. P-values are corrected after Holm over "
        f"{len(compared)} comparison{'s' if len(compared) > 1 else ''} of each kind, at {fixed(100 * ALPHA, 0)} %; "
        "intervals are not. No claim is made about other validation images."
    ]


def _more_seeds(leaderboard: Leaderboard, compared: Sequence[Row]) -> list[str]:
    short = [(row, row.comparison) for row in compared if row.comparison and "too few seeds" in _answers(row)]
    if not short:
        return []
    needed = max(max(each.epochs_seeds, each.height_seeds) for _, each in short)
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
    "baseline_rising": "the baseline was still rising when it ended, so its best is an easy target: no claim is made "
    "about which loss is faster there",
    "baseline_collapsed": "the best M-Recall of the baseline is below half of the best that any loss reached with this "
    "network, or its last M-Recall is that of a random order: nothing is compared with it; give it a warm-up "
    "(warmup_epochs: 1, of losses on the hardest negative) or a smaller learning rate in a new study, or choose "
    "another baseline (--baseline LOSS)",
    "censored": "seeds that never reached the baseline's best; they count as slower than their last epoch, and > marks "
    "a lower bound",
    "no_pairs": "no seed was run for both this loss and the baseline: no Difference",
    "incomplete": "a run of the shown configuration has not been trained to its budget (running, pruned or killed); "
    "it is ignored if other seeds have finished",
    "seed_failed": "a seed of the shown configuration failed and is missing from the means",
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
    lines += [note for group in leaderboard.groups() if (note := _front_note(*group, leaderboard.baseline))]
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
            return [end.sentence(name) for end in row.range_ends]
        case "not_comparable":
            return [f"{name}: {row.not_comparable}."]
        case "cannot_draw":
            return [f"{name}: {row.cannot_draw}."]
    return []


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
        f"{row.network} {row.loss} {fixed(seed.best_m_recall, 1)} (seed {seed.seed}, best of {row.configurations})"
        for row in leaderboard.rows for seed in row.seeds if seed.chose and seed not in row.headline
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
            f"median epochs and Difference (order statistics) from {MEDIAN_SEEDS}; of fewer none is given."
        )
    noisy = [(row, row.noise) for row in leaderboard.rows if row.noise is not None]
    if noisy:
        widths = ", ".join(f"{row.network} {row.loss} {fixed(noise_tolerance(noise), 2)}" for row, noise in noisy)
        lines.append(
            "Epochs to level: the first validation within 2.77 standard deviations of the best. That is, in points: "
            f"{widths}."
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
