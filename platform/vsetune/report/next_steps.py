"""What further conclusions would take, each with the command for it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from vsetune.metrics.repeated_searches import FEWEST_REPEATS
from vsetune.report.board_sentences import fewest_units
from vsetune.report.rows import Comparison, Leaderboard, Row
from vsetune.report.wording import fixed, new_study_file


def to_know(board: Leaderboard) -> list[str]:
    """One sentence per comparison of a data set and network; comparisons with equal sentences share it."""
    places: dict[str, list[str]] = {}
    for dataset, network, rows in board.groups():
        for sentence in _steps(rows, board.baseline):
            places.setdefault(sentence, []).append(f"{network} on {dataset}")
    is_one = len(board.groups()) == 1
    return [sentence if is_one else f"{', '.join(of)}: {sentence}" for sentence, of in places.items()]


def more(board: Leaderboard) -> list[str]:
    """Commands that show the rest. Several studies share a board by data set, so each names its own."""
    studies = list(dict.fromkeys(row.study for row in board.rows))
    named = " ".join(studies)
    tuned = (
        f"search: {{configurations: 8, repeats: {FEWEST_REPEATS}}} in a study file, then vsetune study run FILE: each "
        "loss at its own best settings"
    )
    return [
        *([] if any(row.is_tuned for row in board.rows) else [tuned]),
        f"vsetune leaderboard notes {named}: definitions, caveats, every search",
        f"vsetune leaderboard export {named}: the page, with curves",
    ]


def _steps(rows: Sequence[Row], baseline: str) -> list[str]:
    reference = next((row for row in rows if row.is_baseline), rows[0])
    if any(row.collapse for row in rows):
        return [
            f"{baseline} needs a warm-up (warmup_epochs: 1, of losses on the hardest negative) or a smaller learning "
            f"rate in a new study; or another baseline: vsetune leaderboard show {reference.study} --baseline LOSS"
        ]
    comparisons = [row.comparison for row in rows if row.comparison is not None]
    if not comparisons:
        return []
    return [step for step in (_answer(rows, reference, comparisons), _search_on(rows), _longer(reference)) if step]


def _answer(rows: Sequence[Row], reference: Row, comparisons: Sequence[Comparison]) -> str:
    """What decides the claims of these comparisons."""
    answers = {answer for each in comparisons for answer in each.answers}
    studies = list(dict.fromkeys([reference.study, *(row.study for row in rows if row.comparison)]))
    if "one search" in answers and any({"incomplete", "search_missing"} & set(row.flags) for row in rows):
        return "the study is not over: vsetune study run FILE --resume"
    if "one search" in answers:
        return (
            f"{FEWEST_REPEATS} searches of each tuned loss: search.repeats: {FEWEST_REPEATS} in the study file, then "
            "vsetune study run FILE --resume"
        )
    if "too few seeds" in answers:
        needed = max(map(fewest_units, comparisons))
        return f"{needed} seeds of each loss: {_confirm(studies, needed)}"
    if "undecided" in answers:
        units = max(each.units for each in comparisons)
        which = _undecided(rows)
        if any(each.by_search for each in comparisons):
            return (
                f"{which}: twice as many searches narrow the intervals by about 30 % (search.repeats: {2 * units} in "
                "the study file, then vsetune study run FILE --resume)"
            )
        return f"{which}: twice as many seeds narrow the intervals by about 30 % ({_confirm(studies, 2 * units)})"
    return "all comparisons are decided; another network or data set takes a study of its own"


def _undecided(rows: Sequence[Row]) -> str:
    """Losses by their open claims: `whether lsh, irtm are higher or lower, faster or slower; whether lseh is ...`.
    """
    losses: dict[str, list[str]] = {}
    for row in rows:
        if row.comparison is not None and "undecided" in row.comparison.answers:
            claims = {"higher or lower": row.comparison.height, "faster or slower": row.comparison.epochs_answer}
            words = ", ".join(words for words, answer in claims.items() if answer == "undecided")
            losses.setdefault(words, []).append(row.loss)
    return "; ".join(
        f"whether {', '.join(names)} {'is' if len(names) == 1 else 'are'} {words}" for words, names in losses.items()
    )


def _confirm(studies: Sequence[str], seeds: int) -> str:
    return " && ".join(f"vsetune study confirm {study} --seeds {seeds}" for study in studies)


def _search_on(rows: Sequence[Row]) -> str:
    """Losses whose searches have not levelled off, where that matters (docs/statistics.md); empty without any."""
    sizes = {
        row.loss: abs(row.comparison.m_recall) for row in rows
        if row.comparison is not None and row.comparison.m_recall is not None
        and row.comparison.height not in ("cut short", "search failed")
    }
    found = []
    for row in rows:
        lost, size = lost_by_half(row), min(sizes.values(), default=None) if row.is_baseline else sizes.get(row.loss)
        deviation = row.best_m_recall_std if row.spread is None else row.spread.seed
        if lost is not None and size is not None and deviation is not None and lost > max(size, deviation):
            found.append((row.loss, lost))
    if not found:
        return ""
    (name, lost), *others = found
    more = "".join(f", of {other} {fixed(points, 1)}" for other, points in others)
    return (
        f"whether longer searches change this: with half of the configurations the search of {name} would have ended "
        f"{fixed(lost, 1)} points lower on average{more}; double search.configurations in a copy of the study file "
        "under another name"
    )


def lost_by_half(row: Row) -> float | None:
    """Points that half of the configurations of its search were expected to end below all, mean over its searches; None
    without a search, and for one of fewer than four trials or for another objective than M-Recall."""
    lost = [None if pick.tuning is None else pick.tuning.lost_by_half for pick in row.repeats]
    known = [each for each in lost if each is not None]
    return statistics.fmean(known) if known and len(known) == len(lost) else None


def _longer(row: Row) -> str:
    """The command that trains a baseline which still rose twice as long; empty for another row."""
    if "baseline_rising" not in row.flags or not row.is_baseline:
        return ""
    last = max(epoch for seed in row.headline for epoch, _ in seed.curve)
    file = new_study_file(row.study, row.cell.partition(".")[0], "longer")
    return (
        f"whether it lasts: vsetune leaderboard repeat {row.study}/{row.cell} --all --epochs {math.ceil(2 * last)} "
        f"--output {file}, then vsetune study run {file}"
    )
