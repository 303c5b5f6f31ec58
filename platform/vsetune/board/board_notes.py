"""What to know before quoting a number of a board: its legend, facts on networks and losses, and the flags of rows."""

from __future__ import annotations

import statistics
import string
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from vsetune.board.board_sentences import is_claimed
from vsetune.board.columns import EXPECTED_BEST, LEGEND, MORE_LEGEND
from vsetune.board.paper_table import published_notes
from vsetune.board.pareto_front import pareto_front
from vsetune.board.rows import AT_RANGE_END, Leaderboard, RangeEnd, Row
from vsetune.board.search_budgets import LESS, MORE
from vsetune.board.selection import code_words
from vsetune.board.wording import (
    collapsed,
    configuration,
    counted,
    epochs,
    expected_best,
    fixed,
    mean,
    share_of_epochs,
)
from vsetune.metrics.best_of_k import ExpectedBest, TuningCurves

CAVEATS = {
    "baseline_rising": "the baseline was still improving at its last epoch: more epochs would raise its best, and the "
    "targets taken from it",
    "not_comparable": "other conditions than the baseline, not compared",
    "all_failed": "every trial failed",
    "none_allowed": "every trial breaks a constraint of the search",
    "no_result": "no trial has a usable validation",
    "incomplete": "not trained to the end yet (running, pruned or killed); ignored if other seeds have finished",
    "chosen_by_itself": "best of its search, not confirmed by another seed: optimistic",
    "search_missing": "a search has no confirmed result yet and is missing from the means",
    "search_failed": "every trial of a search failed, so the others are a favourable choice: no claim",
    "seed_failed": "a seed failed, not by divergence, and is missing from the means",
    "seed_collapsed": "collapsed and diverged seeds count, a diverged one as 0 % that never reaches a target",
    "stopped_at_target": "stopped at the target of its search: its M-Recall is not final",
    LESS: "the search left more than one full training of its budget: the others had more chances",
    MORE: "the search exceeded its budget by more than one full training: it had more chances",
    "untrained": "not trained (`epochs: 0`): the network as it starts; nothing is claimed about it",
}
"""Meaning of the flags of a row that change conclusions; a terminal has them too."""
FLAGS = CAVEATS | {
    "baseline_collapsed": "the baseline collapsed, so nothing is compared with it",
    "censored": "some seeds never reached the baseline's best; they count as slower than their last epoch, and > marks "
    "a lower bound",
    "no_pairs": "no seed was run for both this loss and the baseline: no Difference",
    "runner_up_ahead": "the runner-up of the search is higher over the confirming seeds; the number is the winner's",
    "cannot_draw": "the search found no further valid configuration and ended",
    AT_RANGE_END: "the winner has a setting at an end of its searched range",
    "rising": "still improving at its last epoch: its M-Recall may be higher after more",
}
"""Meaning of every flag of a row."""

_DETAILS: Mapping[str, Callable[[Row], str]] = {
    "not_comparable": lambda row: row.not_comparable or "",
    "chosen_by_itself": lambda row: f"best of {row.configurations}",
    "censored": lambda row: _censored(row),
    "seed_collapsed": collapsed,
    LESS: lambda row: f"epochs: {row.search_budget.words}" if row.search_budget else "",
    MORE: lambda row: f"epochs: {row.search_budget.words}" if row.search_budget else "",
    "cannot_draw": lambda row: "; ".join(pick.cannot_draw for pick in row.repeats if pick.cannot_draw),
}
"""What is said of a row beside a flag."""


def notes(board: Leaderboard) -> list[str]:
    """The legend, then one line per fact: on networks, on losses, on flags, on plugin code, and published values."""
    return [
        *LEGEND, *MORE_LEGEND, *([EXPECTED_BEST] if any(map(_expected_best, board.rows)) else []),
        *(f"{network} on {dataset}: {fact}." for dataset, network, rows in board.groups()
          for of in _OF_NETWORKS if (fact := of(rows, board.baseline))),
        *(f"{row.network} {row.loss}: {fact}." for row in board.rows for of in _OF_LOSSES if (fact := of(row))),
        *(end for row in board.rows for end in _range_ends(row)),
        *flag_lines(board), *code_notes(board.rows), *published_notes(board),
    ]


def caveats(board: Leaderboard) -> list[str]:
    """The flags that change conclusions, each in one line with its letter."""
    return flag_lines(board, CAVEATS)


def flag_lines(board: Leaderboard, flags: Collection[str] = FLAGS) -> list[str]:
    """`(a) best of its search, not confirmed by another seed: optimistic: vsepp lseh (best of 8).`, a line per flag."""
    lines, letters = [], flag_marks(board)
    for flag in _occurring(board):
        if flag not in flags:
            continue
        of_baseline = flag.startswith("baseline_")
        rows = [row for row in board.rows if flag in row.flags and (row.is_baseline or not of_baseline)]
        details = [_DETAILS[flag](row) if flag in _DETAILS else "" for row in rows]
        names = [
            f"{row.network} {row.loss}" + (f" ({detail})" if detail else "")
            for row, detail in zip(rows, details, strict=True)
        ]
        is_of_all = flag not in letters and not of_baseline and not any(details)
        start = f"({letters[flag]}) " if flag in letters else ""
        lines.append(f"{start}{FLAGS[flag]}: {'every row' if is_of_all else ', '.join(names)}.")
    return lines


def flag_marks(board: Leaderboard) -> dict[str, str]:
    """The letter that links rows with a flag to its line; none for a flag of the baseline or of every row with a
    result, which distinguishes no row. Caveats have the first letters."""
    shown = [row for row in board.rows if row.seeds]
    telling = [
        flag for flag in _occurring(board)
        if not flag.startswith("baseline_") and not (len(shown) > 1 and all(flag in row.flags for row in shown))
    ]
    return dict(zip(telling, string.ascii_lowercase, strict=False))


def marks(row: Row, letters: Mapping[str, str]) -> str:
    """`a,c`: the letters of a row's flags."""
    return ",".join(letter for flag, letter in letters.items() if flag in row.flags)


def _occurring(board: Leaderboard) -> list[str]:
    return [flag for flag in FLAGS if any(flag in row.flags for row in board.rows)]


def _censored(row: Row) -> str:
    reached = [seed.epochs_to_target for seed in row.headline if seed.epochs_to_target is not None]
    return f"{sum(each.censored for each in reached)} of {len(reached)}"


def _resolution(rows: Sequence[Row], _: str) -> str:
    gaps = [row.resolution_epochs for row in rows if row.resolution_epochs is not None]
    return f"epochs are resolved to {fixed(max(gaps), 2)}, the gap between validations" if gaps else ""


def _level(rows: Sequence[Row], _: str) -> str:
    widths = [row.level_tolerance for row in rows if row.level_tolerance is not None and row.not_comparable is None]
    return f"epochs to level end within {fixed(widths[0], 2)} points of the best" if widths else ""


def _target(rows: Sequence[Row], baseline: str) -> str:
    targets = [row.comparison.epochs for row in rows if row.comparison is not None]
    return (
        f"the target of epochs is {fixed(targets[0].target, 1)} % M-Recall, {100 * targets[0].share:.3g} % of the mean "
        f"best of {baseline}"
    ) if targets else ""


def _front(rows: Sequence[Row], baseline: str) -> str:
    """The Pareto front; empty where no claim is supported, and if all its rows have the same M-Recall."""
    front = pareto_front(rows)
    if not is_claimed(rows) or len({row.best_m_recall for row in front}) < 2:
        return ""
    losses = ", ".join(
        f"{row.loss} ({epochs(row.epochs_to_target)} epochs to the best of {baseline}, M-Recall "
        f"{fixed(row.best_m_recall, 1)} %)" for row in front
    )
    return f"from the fastest to the highest (the Pareto front, untested): {losses}"


_OF_NETWORKS: Sequence[Callable[[Sequence[Row], str], str]] = (_resolution, _level, _target, _front)
"""Facts on the rows of a data set and network, compared with a baseline; empty where one does not hold."""


def _trials(row: Row) -> str:
    """The trials whose curves the numbers of the row are the means and medians of."""
    return f"from the trials {', '.join(seed.trial for seed in row.headline)}" if row.headline else ""


def _searched(row: Row) -> str:
    return f"searched {'; '.join(row.searched)}" if row.searched else ""


def _picks(row: Row) -> str:
    """What each of several searches found, and how far apart searches and seeds are."""
    if len(row.repeats) == 1 or not row.is_tuned:
        return ""
    found = [pick for pick in row.repeats if pick.seeds]
    means = ", ".join(fixed(pick.best_m_recall, 1) for pick in found)
    picks = "; ".join(f"{configuration(pick.configuration)} in {pick.repeat}" for pick in found)
    spread = "" if row.spread is None else (
        f"; standard deviation between searches {fixed(row.spread.search, 2)} points, between seeds of a pick "
        f"{fixed(row.spread.seed, 2)}"
    )
    return f"search by search {means} %, by {picks}{spread}"


def _choosers(row: Row) -> str:
    """M-Recall of the seeds that searched, where the numbers exclude them."""
    tried = {pick.repeat: pick.configurations for pick in row.repeats}
    found = ", ".join(
        f"{fixed(seed.best_m_recall, 1)} (seed {seed.seed}, best of {tried[seed.repeat]})"
        for seed in row.seeds if seed.chose and seed not in row.headline
    )
    return f"seeds that chose the configuration are excluded: {found}" if found else ""


def _contenders(row: Row) -> str:
    contenders = "; ".join(
        f"{each.role} {mean(each.best_m_recall, each.best_m_recall_std)} over the seeds "
        f"{', '.join(str(seed.seed) for seed in each.seeds)} (the winner {fixed(each.winner_m_recall, 1)})"
        for each in row.contenders
    )
    return f"run again together with its winner: {contenders}" if contenders else ""


def _shares(row: Row) -> str:
    if row.comparison is None or row.comparison.m_recall is None:
        return ""
    shares = ", ".join(f"{share_of_epochs(each)} to {100 * each.share:.3g} %" for each in row.comparison.profile)
    return f"epochs beyond the baseline's to shares of its mean best, untested: {shares}"


FEWEST_TRIALS = 4
"""Of a search whose expected best is noted."""
_PARTS = {"¼": 0.25, "½": 0.5}


def _expected_best(row: Row) -> str:
    """What its searches were expected to find with fewer trials, and, where a trial was stopped, fewer epochs."""
    found = [pick.tuning for pick in row.repeats if pick.tuning and pick.tuning.trials >= FEWEST_TRIALS]
    if not found:
        return ""
    fewest = min(each.trials for each in found)
    counts = [2**power for power in range(fewest.bit_length()) if 2**power < fewest]
    known = [{int(point.at): point for point in each.after_trials} for each in found]
    earlier = [f"{_over_searches([of[count] for of in known])} after {counted(count, 'trial')}" for count in counts]
    for part, share in _PARTS.items() if row.counts.get("pruned") else ():
        earlier.append(f"{_over_searches([_nearest(each, share) for each in found])} after {part} of the epochs")
    ends = [each.after_epochs[-1] for each in found]
    trials = " to ".join(str(each) for each in sorted({fewest, max(each.trials for each in found)}))
    return (
        f"expected best of a search that had ended earlier: {', '.join(earlier)}; "
        f"{fixed(statistics.fmean(each.mean for each in ends), 1)} after all {trials} "
        f"({fixed(statistics.fmean(each.at for each in ends), 1)} epochs)"
    )


def _nearest(curves: TuningCurves, share: float) -> ExpectedBest:
    """share: of the epochs of the search."""
    return min(curves.after_epochs, key=lambda point: abs(point.at - share * curves.epochs))


def _over_searches(found: Sequence[ExpectedBest]) -> str:
    """The mean of the searches of a loss, and from the lowest to the highest; one search as it is."""
    if len(found) == 1:
        return expected_best(found[0])
    means = [each.mean for each in found]
    return expected_best(replace(found[0], mean=statistics.fmean(means), low=min(means), high=max(means)))


_OF_LOSSES: Sequence[Callable[[Row], str]] = (
    _trials, _searched, _picks, _choosers, _contenders, _shares, _expected_best,
)
"""Facts on a row; empty where one does not hold."""


def _range_ends(row: Row) -> list[str]:
    """A sentence per setting and value at an end of its range, with the searches that ended there."""
    searches: dict[RangeEnd, list[str]] = {}
    for pick in row.repeats:
        for end in pick.range_ends:
            searches.setdefault(end, []).append(str(pick.repeat))
    return [
        end.sentence(f"{row.network} {row.loss}" + (f", search {', '.join(of)}" if len(row.repeats) > 1 else ""))
        for end, of in searches.items()
    ]


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
