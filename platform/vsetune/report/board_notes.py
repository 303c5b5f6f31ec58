"""What to know before quoting a number of a board: definitions, caveats, and what each search found."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence

from vsetune.metrics.repeated_searches import FEWEST_REPEATS
from vsetune.metrics.seed_statistics import MEAN_SEEDS, MEDIAN_SEEDS
from vsetune.report.board_sentences import is_claimed
from vsetune.report.paper_table import published_notes
from vsetune.report.pareto_front import pareto_front
from vsetune.report.rows import AT_RANGE_END, Leaderboard, Pick, RangeEnd, Row
from vsetune.report.search_budgets import LESS, MORE
from vsetune.report.selection import code_words
from vsetune.report.wording import (
    collapsed,
    configuration,
    epochs,
    fixed,
    mean,
    search_name,
    share_of_epochs,
)

FLAGS = {
    "baseline_rising": "the baseline was still rising when it ended, so targets taken from its best are easy ones: "
    "after more epochs they would be higher",
    "baseline_collapsed": "the last M-Recall of the baseline is that of a random order, or it stays near its first "
    "one, below half of the best that any loss reached with this network: nothing is compared with it",
    "censored": "seeds that never reached the baseline's best; they count as slower than their last epoch, and > marks "
    "a lower bound",
    "no_pairs": "no seed was run for both this loss and the baseline: no Difference",
    "incomplete": "a run of the shown configuration has not been trained to its budget (running, pruned or killed); "
    "it is ignored if other seeds have finished",
    "seed_failed": "a seed of the shown configuration failed, for another reason than divergence, and is missing from "
    "the means",
    "seed_collapsed": "seeds that collapsed (a last M-Recall of a random order, or one that stays near its first, "
    "below half of the best of any loss) or diverged; they count, a diverged one as 0 % that never reaches a target",
    "search_missing": "a search has no confirmed result yet and is missing from the means",
    "search_failed": "every trial of a search failed, so its other searches are a favourable choice: no claim is made",
    "chosen_by_itself": "the seed that searched chose this configuration and no other seed has confirmed it: the "
    "number is the maximum over the configurations tried, and optimistic",
    "runner_up_ahead": "the runner-up of the search is higher over the confirming seeds: the search could not tell the "
    "two apart, and the number shown is still that of its winner",
    "not_comparable": "taken under other conditions than the baseline: shown, and not compared",
    "stopped_at_target": "a seed shown was trained only until it reached the target of its search, so its best "
    "M-Recall is not final",
    "less_than_budget": "the search left more than one full training of its budget unused (it is not over, trials "
    "failed, or nothing was left to try): the other losses had more chances",
    "more_than_budget": "the search exceeded its budget by more than one full training: it had more chances than the "
    "others",
    "cannot_draw": "the search found no further configuration that makes a valid trial, and ended there",
    AT_RANGE_END: "the winner has a setting at an end of the range that its search was given",
    "rising": "still rising at the end of training: its M-Recall is measured at the last epoch, and may be higher "
    "after more",
    "untrained": "not trained (`epochs: 0`): the network as it starts, validated once; it has no epochs to compare, "
    "and nothing is claimed about it",
    "none_allowed": "every trial of this cell breaks a constraint of the search",
    "all_failed": "every trial of this cell failed",
    "no_result": "no trial of this cell has a usable validation",
}
"""Meaning of each flag of a row, for the notes under a table."""


CAVEATS = {
    "not_comparable": "other conditions than the baseline, not compared",
    "all_failed": "every trial failed",
    "none_allowed": "every trial breaks a constraint",
    "no_result": "no result yet",
    "incomplete": "not trained to the end yet",
    "chosen_by_itself": "best of its search, not confirmed by another seed: optimistic",
    "search_missing": "a search without a confirmed result is missing",
    "search_failed": "a search failed, so the others are a favourable choice: no claim",
    "seed_failed": "a seed failed and is missing",
    "seed_collapsed": "seeds collapsed; they count",
    "stopped_at_target": "stopped at its target: its M-Recall is not final",
    "less_than_budget": "searched less than its budget: the others had more chances",
    "more_than_budget": "searched more than its budget: it had more chances",
    "untrained": "not trained: the network as it starts",
    "baseline_rising": "The baseline was still improving at its last epoch: more epochs would make its best, and the "
    "targets taken from it, higher",
}
"""Flags that change the conclusions from a board, in a few words for a terminal."""


def notes(leaderboard: Leaderboard) -> list[str]:
    """Notes to read before quoting a number: resolution, intervals, and every flag that occurs."""
    lines = [*_resolution_notes(leaderboard), *_interval_notes(leaderboard)]
    for group in leaderboard.groups():
        found = (_front_note(*group, leaderboard.baseline), _shares_note(*group, leaderboard.baseline))
        lines += [note for note in found if note]
    lines += [note for row in leaderboard.rows if (note := _picks_note(row))]
    lines += [_sources_note(leaderboard.rows)]
    lines += [
        f"{row.network} {row.loss} searched {'; '.join(row.searched)}." for row in leaderboard.rows if row.searched
    ]
    lines += _searching_note(leaderboard)
    lines += [_contenders_note(row) for row in leaderboard.rows if row.contenders]
    for flag in _occurring(leaderboard):
        lines += _flag_notes(leaderboard, flag, flag_marks(leaderboard).get(flag))
    return [*lines, *code_notes(leaderboard.rows), *published_notes(leaderboard)]


def _flag_notes(leaderboard: Leaderboard, flag: str, mark: str | None) -> list[str]:
    """The note on a flag, and those on single rows. mark: its letter, None where all rows have it."""
    rows = [row for row in leaderboard.rows if flag in row.flags]
    named = [row for row in rows if row.is_baseline] if flag.startswith("baseline_") else rows
    names = [_name(row, flag) for row in named]
    is_plain = all(name == f"{row.network} {row.loss}" for name, row in zip(names, named, strict=True))
    is_of_all = mark is None and is_plain and not flag.startswith("baseline_")
    start = f"({mark}) " if mark else ""
    lines = [f"{'Every row' if is_of_all else ', '.join(names)}: {FLAGS[flag]}.", *(
        line for row in rows for line in _details(row, flag)
    )]
    return [f"{start}{line}" for line in lines]


def _details(row: Row, flag: str) -> list[str]:
    """Lines on one row with a flag, below the note on all of them."""
    name = f"{row.network} {row.loss}"
    match flag:
        case "at_range_end":
            return _range_ends(row)
        case "not_comparable":
            return [f"{name}: {row.not_comparable}."]
        case "cannot_draw":
            return [f"{_search_of(row, pick)}: {pick.cannot_draw}." for pick in row.repeats if pick.cannot_draw]
    return []


def _range_ends(row: Row) -> list[str]:
    """A sentence per setting and value, with the searches that ended there."""
    searches: dict[RangeEnd, list[str]] = {}
    for pick in row.repeats:
        for end in pick.range_ends:
            searches.setdefault(end, []).append(str(pick.repeat))
    return [
        end.sentence(f"{row.network} {row.loss}" + (f", search {', '.join(of)}" if len(row.repeats) > 1 else ""))
        for end, of in searches.items()
    ]


def _search_of(row: Row, pick: Pick) -> str:
    return f"{row.network} {search_name(row, pick)}"


def _sources_note(rows: Sequence[Row]) -> str:
    """The trials whose curves the numbers of a board are the means and medians of."""
    trials = "; ".join(
        f"{row.network} {row.loss} {', '.join(seed.trial for seed in row.headline)}" for row in rows if row.headline
    )
    return f"Trials behind the numbers: {trials}."


def _picks_note(row: Row) -> str:
    """What each of several searches of a loss found, and how far apart searches and seeds are."""
    if len(row.repeats) == 1 or not row.is_tuned:
        return ""
    found = [pick for pick in row.repeats if pick.seeds]
    means = ", ".join(fixed(pick.best_m_recall, 1) for pick in found)
    same: dict[str, list[str]] = {}
    for pick in found:
        same.setdefault(configuration(pick.configuration), []).append(str(pick.repeat))
    picks = "; ".join(f"{words} in {', '.join(numbers)}" for words, numbers in same.items())
    apart = "" if row.spread is None else (
        f" Standard deviation between searches {fixed(row.spread.search, 2)} points, between seeds of a pick "
        f"{fixed(row.spread.seed, 2)}."
    )
    return f"{row.network} {row.loss}, search by search: {means} %. Picks: {picks}.{apart}"


def _shares_note(dataset: str, network: str, rows: Sequence[Row], baseline: str) -> str:
    """Epochs to several shares of the baseline's mean best; empty if nothing is compared."""
    comparisons = [(row.loss, row.comparison) for row in rows if row.comparison is not None]
    known = [(loss, each.profile) for loss, each in comparisons if each.m_recall is not None]
    if not known:
        return ""
    shares = ", ".join(fixed(100 * each.share, 0) for each in known[0][1])
    losses = "; ".join(f"{loss} {', '.join(map(share_of_epochs, profile))}" for loss, profile in known)
    return (
        f"{network} on {dataset}, epochs to {shares} % of the mean best of {baseline}, relative to those of "
        f"{baseline}: {losses}. These are measured, not tested."
    )


def _front_note(dataset: str, network: str, rows: Sequence[Row], baseline: str) -> str:
    """A note on the Pareto front; empty where no claim is supported, and if all its rows have the same M-Recall."""
    front = pareto_front(rows)
    if not is_claimed(rows) or len({row.best_m_recall for row in front}) < 2:
        return ""
    losses = ", ".join(
        f"{row.loss} ({epochs(row.epochs_to_target)} epochs to the best of {baseline}, M-Recall "
        f"{fixed(row.best_m_recall, 1)} %)" for row in front
    )
    place = f"{network} on {dataset}"
    return f"{place}, from the fastest to the highest (the Pareto front): {losses}, as measured, not tested."


def _searching_note(leaderboard: Leaderboard) -> list[str]:
    """M-Recall of the seeds that searched, where the numbers exclude them."""
    left_out = []
    for row in leaderboard.rows:
        tried = {pick.repeat: pick.configurations for pick in row.repeats}
        seeds = [seed for seed in row.seeds if seed.chose and seed not in row.headline]
        means, numbers, of = (", ".join(words) for words in (
            [fixed(seed.best_m_recall, 1) for seed in seeds], [str(seed.seed) for seed in seeds],
            dict.fromkeys(str(tried[seed.repeat]) for seed in seeds),
        ))
        plural = "" if len(seeds) == 1 else "s"
        left_out += [f"{row.network} {row.loss} {means} (seed{plural} {numbers}, best of {of})"] if seeds else []
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
    """The letter that links rows with a flag to its note; none for a flag of the baseline or of every row with a
    result, which distinguishes no row. Caveats of a terminal have the first letters."""
    shown = [row for row in leaderboard.rows if row.seeds]
    telling = [
        flag for flag in _occurring(leaderboard)
        if not flag.startswith("baseline_") and not (len(shown) > 1 and all(flag in row.flags for row in shown))
    ]
    return dict(zip(telling, string.ascii_lowercase, strict=False))


def _occurring(leaderboard: Leaderboard) -> list[str]:
    """Flags of any row, those with a caveat first."""
    found = [flag for flag in FLAGS if any(flag in row.flags for row in leaderboard.rows)]
    return sorted(found, key=lambda flag: flag not in CAVEATS)


def caveats(leaderboard: Leaderboard) -> list[str]:
    """Each reason to read a number otherwise than it looks, in one line with its letter; `All: ` for all rows."""
    letters = flag_marks(leaderboard)
    lines = []
    for flag in (flag for flag in CAVEATS if flag in _occurring(leaderboard)):
        if flag == "baseline_rising" and not any(row.comparison and flag in row.flags for row in leaderboard.rows):
            continue
        start = "" if flag.startswith("baseline_") else f"({letters[flag]}) " if flag in letters else "All: "
        reasons = {row.not_comparable for row in leaderboard.rows if flag == "not_comparable" and row.not_comparable}
        lines.append(f"{start}{'; '.join([CAVEATS[flag], *sorted(reasons)])}.")
    return lines


def marks(row: Row, letters: Mapping[str, str]) -> str:
    """`a,c`: the letters of a row's flags."""
    return ",".join(letter for flag, letter in letters.items() if flag in row.flags)


def _interval_notes(leaderboard: Leaderboard) -> list[str]:
    lines = []
    if any(row.best_m_recall_std is not None for row in leaderboard.rows):
        lines.append(
            "± is the standard deviation over seeds; epochs are medians over seeds. [low, high] are 95 % intervals "
            f"over finished seeds that chose no configuration. Mean M-Recall has one from {MEAN_SEEDS} seeds on "
            f"(Student's t), median epochs and Difference from {MEDIAN_SEEDS} on (order statistics). Difference is "
            "relative to the baseline's own best (LSEH Eq. 10), and is not tested."
        )
    tuned = [row for row in leaderboard.rows if row.is_tuned and row.best_m_recall_std is not None]
    if any(len(row.repeats) > 1 for row in tuned):
        lines.append(
            "For a tuned loss with several searches, ± and interval are over the means of searches; the interval needs "
            f"{FEWEST_REPEATS} searches."
        )
    if any(len(row.repeats) == 1 for row in tuned):
        lines.append(
            "For a tuned loss with one search, ± and interval are over its seeds: another search may differ more."
        )
    tolerances = {
        (row.dataset, row.network): row.level_tolerance for row in leaderboard.rows
        if row.level_tolerance is not None and row.not_comparable is None
    }
    if tolerances:
        widths = ", ".join(f"{network} on {data} {fixed(width, 2)}" for (data, network), width in tolerances.items())
        lines.append(
            "Epochs to level: epochs to the first validation within 2.77 standard deviations of the best. The "
            f"deviation is that of one validation of the noisiest loss. The distance in points: {widths}."
        )
    return lines


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
