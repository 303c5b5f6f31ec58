"""What the data of a board support, and what it takes to know more.

Each loss has one of three sentences on its M-Recall. Separated by a passed test: `lseh reaches +1.3 [0.8, 1.8] points
M-Recall over lmh`. Not separated: the interval that leaves it open. Cannot be said: the reason. Another one of the same
three forms is on its epochs to the target.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from vsetune.board.comparing import units_of
from vsetune.board.rows import Comparison, Leaderboard, Row
from vsetune.board.wording import collapse, collapsed, counted, fixed, gain, new_study_file, pace
from vsetune.metrics.repeated_searches import FEWEST_REPEATS
from vsetune.metrics.seed_statistics import MEAN_SEEDS

_DECIDED = ("supported", "contradicted")
_MOST = 6
"""Claims of one network that a headline has in full."""


def headline(board: Leaderboard) -> list[str]:
    """Collapses, then a sentence per data set and network: its separated losses, or why there are none."""
    return [*collapses(board), *(
        f"{network} on {dataset}: {_headline(rows, board)}." for dataset, network, rows in board.groups()
        if not any(row.collapse for row in rows)
    )]


def collapses(board: Leaderboard) -> list[str]:
    """A sentence per data set and network whose baseline collapsed, and one where seeds of other losses collapsed."""
    lines = []
    for dataset, network, rows in board.groups():
        place = f"{network} on {dataset}"
        row = next((row for row in rows if row.collapse), None)
        if row is not None:
            words = collapse(row).replace("the baseline", f"the baseline {board.baseline}", 1)
            lines.append(f"{place}: {words}. Nothing is compared with it.")
        fallen = [f"{row.loss}: {collapsed(row)}" for row in rows if row.collapsed_seeds and row.collapse is None]
        lines += [f"{place}: {'; '.join(fallen)}. These seeds count in all numbers."] if fallen else []
    return lines


def findings(board: Leaderboard) -> list[str]:
    """A sentence on M-Recall and one on epochs of every compared loss, or one on why neither can be compared."""
    return [
        f"{network} {sentence}." for _, network, rows in board.groups() for row in rows
        for sentence in _findings(row, rows, board)
    ]


def is_ahead(row: Row) -> bool:
    """Whether the data support a higher M-Recall than the baseline's."""
    return row.comparison is not None and row.comparison.height == "supported"


def is_claimed(rows: Sequence[Row]) -> bool:
    """Whether the data support a claim on any of these rows."""
    return any(row.comparison is not None and "supported" in row.comparison.answers for row in rows)


_NOT_OVER = "the study is not over"


def _headline(rows: Sequence[Row], board: Leaderboard) -> str:
    baseline = board.baseline
    if not any(row.seeds for row in rows):
        return "no result, every trial failed" if all("all_failed" in row.flags for row in rows) else "no result yet"
    compared = [row for row in rows if row.comparison is not None]
    if not compared:
        return f"no loss can be compared with {baseline}"
    claims = [(row.loss, claim) for row in compared for claim in _claims(row, baseline)]
    if claims:
        rest = dict.fromkeys(loss for loss, _ in claims[_MOST:])
        return "; ".join([*(claim for _, claim in claims[:_MOST]), *(
            [f"more on {', '.join(rest)} in the notes"] if rest else []
        )])
    reason = _why_none(compared, rows, board)
    if reason == _NOT_OVER:
        return f"no loss can be compared with {baseline} yet: {reason}"
    return f"no loss is separated from {baseline}{': ' if reason else ' yet'}{reason}"


def _claims(row: Row, baseline: str) -> list[str]:
    """The separated claims on a row."""
    found = row.comparison
    claims = [] if found is None else [
        (found.height, _on_m_recall(row, found, baseline)), (found.epochs_answer, _on_epochs(row, found, baseline)),
    ]
    return [claim for answer, claim in claims if answer in _DECIDED]


def _why_none(compared: Sequence[Row], rows: Sequence[Row], board: Leaderboard) -> str:
    """Why no claim can be made on any of these compared rows; empty where one can. rows: of their network and data set.
    """
    found = [row.comparison for row in compared if row.comparison is not None]
    if _is_unfinished(rows, board) and all({"one search", "too few seeds"} & each.answers for each in found):
        return _NOT_OVER
    if all("one search" in each.answers for each in found):
        counts = {row.loss: len(units_of(row)) for row in rows if row.is_tuned and (row.is_baseline or row in compared)}
        few = ", ".join(f"{loss} {count}" for loss, count in counts.items() if count < FEWEST_REPEATS)
        return f"fewer than {FEWEST_REPEATS} searches with confirming seeds ({few})"
    if all("search failed" in each.answers for each in found):
        return "every trial of a search failed"
    if all("too few seeds" in each.answers for each in found):
        units, needed = max((min(each.units, each.baseline_units), _fewest(each)) for each in found)
        return f"{counted(units, 'seed')} of each loss, and a test needs {needed}"
    return ""


def _is_unfinished(rows: Sequence[Row], board: Leaderboard) -> bool:
    return any(row.study in board.unfinished for row in rows)


def _fewest(comparison: Comparison) -> int:
    """Fewest observations of each loss for a claim."""
    return FEWEST_REPEATS if comparison.by_search else MEAN_SEEDS


def _findings(row: Row, rows: Sequence[Row], board: Leaderboard) -> list[str]:
    found, baseline = row.comparison, board.baseline
    if found is None:
        return []
    if reason := _why_none([row], rows, board):
        measured = "" if found.m_recall is None else (
            f"; measured: {gain(row)} points M-Recall, {pace(found)} epochs to {_target(found)}"
        )
        return [f"{row.loss} cannot be compared with {baseline}: {reason}{measured}"]
    units = _units(row, found, rows)
    more = f"; {2 * found.units} {'searches' if found.by_search else 'seeds'} narrow this by about 30 %"
    missed = "".join(
        f", {count} of {whose} never reach it"
        for count, whose in ((found.epochs.missed, "its seeds"), (found.epochs.baseline_missed, f"those of {baseline}"))
        if count and found.epochs.percent is not None
    )
    return [
        f"{sentence} ({units}, {_p(p_value)}{more_words}){more if answer == 'undecided' else ''}"
        for sentence, answer, p_value, more_words in (
            (_on_m_recall(row, found, baseline), found.height, found.height_p, ""),
            (_on_epochs(row, found, baseline), found.epochs_answer, found.epochs_p, missed),
        )
    ]


def _on_m_recall(row: Row, found: Comparison, baseline: str) -> str:
    if found.height in _DECIDED:
        return f"{row.loss} reaches {gain(row)} points M-Recall over {baseline}{_within(row)}"
    if found.height == "undecided":
        return f"{row.loss} is not separated from {baseline} in M-Recall: {gain(row)} points"
    return f"{row.loss} cannot be compared with {baseline} in M-Recall: seeds were stopped at their target"


def _on_epochs(row: Row, found: Comparison, baseline: str) -> str:
    is_known, to = found.epochs.percent is not None, f"epochs to {_target(found)}"
    if found.epochs_answer in _DECIDED:
        amount, rest = (pace(found), "") if is_known else ("more", f": {pace(found)}")
        return f"{row.loss} takes {amount} {to} against {baseline}{rest}"
    if is_known:
        return f"{row.loss} is not separated from {baseline} in {to}: {pace(found)}"
    return f"{row.loss} cannot be compared with {baseline} in {to}: {pace(found)}"


def _target(found: Comparison) -> str:
    return f"{fixed(found.epochs.target, 1)} % M-Recall"


def _units(row: Row, found: Comparison, rows: Sequence[Row]) -> str:
    """`7 seeds`, `3 searches`, or `3 searches against 5 seeds` of the baseline."""
    if not found.by_search:
        return counted(found.units, "seed")
    is_baseline_tuned = any(each.is_baseline and each.is_tuned for each in rows)
    ours = f"{found.units} {'searches' if row.is_tuned else 'seeds'}"
    theirs = f"{found.baseline_units} {'searches' if is_baseline_tuned else 'seeds'}"
    return ours if ours == theirs else f"{ours} against {theirs}"


def _within(row: Row) -> str:
    """` within 6 epochs` where the loss or its baseline was still improving at the end: more epochs may reverse it."""
    if not {"rising", "baseline_rising"} & set(row.flags):
        return ""
    longest = max(seed.curve[-1][0] for seed in row.headline)
    return f" within {longest:g} epoch{'' if longest == 1 else 's'}"


def _p(value: float) -> str:
    return f"p = {fixed(value, 3)}" if value >= 0.001 else "p < 0.001"


_PROTOCOL_WORDS = {
    "split": "split", "images": "images", "captions": "captions", "validation_images": "images ranked",
    "reranking": "re-ranking", "batch_size": "batch size",
    "validate_every_steps": "steps between validations", "steps_per_epoch": "steps per epoch",
    "tie_rule": "ties", "data_fingerprint": "data",
}


def protocol_line(board: Leaderboard) -> str:
    """The protocol of the board in one sentence, with every value of entries that differ between groups."""
    seen: dict[str, dict[str, None]] = {}
    for row in board.rows:
        for key, value in row.protocol.items():
            seen.setdefault(key, {})["end of epoch" if value is None else str(value)] = None
    parts = [f"{word} {' / '.join(seen[key])}" for key, word in _PROTOCOL_WORDS.items() if key in seen]
    return f"Protocol: {', '.join(parts) or 'not recorded'}."


def to_know(board: Leaderboard) -> list[str]:
    """What further conclusions would take, each with its command; one that several networks share once."""
    places: dict[str, list[str]] = {}
    for dataset, network, rows in board.groups():
        for step in _steps(rows, board):
            places.setdefault(step, []).append(f"{network} on {dataset}")
    is_one = len(board.groups()) == 1
    return [step if is_one else f"{', '.join(of)}: {step}" for step, of in places.items()]


def more(board: Leaderboard) -> list[str]:
    """Commands that show the rest. Several studies share a board by data set, so each names its own."""
    named = " ".join(dict.fromkeys(row.study for row in board.rows))
    return [
        *([] if board.unfinished or any(row.is_tuned for row in board.rows) else [
            f"search: {{configurations: 8, repeats: {FEWEST_REPEATS}}} in a study file, then vsetune study run FILE: "
            "each loss at its own best settings",
        ]),
        f"vsetune leaderboard notes {named}: definitions, caveats, every search",
        f"vsetune leaderboard export {named}: the page, with curves",
    ]


def _steps(rows: Sequence[Row], board: Leaderboard) -> list[str]:
    baseline = board.baseline
    reference = next((row for row in rows if row.is_baseline), rows[0])
    if any(row.collapse for row in rows):
        return [
            f"{baseline} needs a warm-up (warmup_epochs: 1, of losses on the hardest negative) or a smaller learning "
            f"rate in a new study; or another baseline: vsetune leaderboard show {reference.study} --baseline LOSS"
        ]
    if _is_unfinished(rows, board):
        return [f"{_NOT_OVER}: wait for its end or, where it was interrupted, vsetune study run FILE --resume"]
    compared = [row for row in rows if row.comparison is not None]
    if not compared:
        return []
    return [*_more_units(compared, reference), *_longer_searches(rows), *_longer(reference)]


def _more_units(compared: Sequence[Row], reference: Row) -> list[str]:
    """The searches or seeds that claims on these rows need; for open ones twice as many."""
    found = [row.comparison for row in compared if row.comparison is not None]
    answers = {answer for each in found for answer in each.answers}
    by_search = "one search" in answers
    if by_search:
        needed = FEWEST_REPEATS
    elif "too few seeds" in answers:
        needed = max(map(_fewest, found))
    elif "undecided" in answers:
        by_search, needed = any(each.by_search for each in found), 2 * max(each.units for each in found)
    else:
        return []
    if by_search:
        return [
            f"{needed} searches of each tuned loss: search.repeats: {needed} in the study file, then vsetune study run "
            "FILE --resume"
        ]
    studies = dict.fromkeys([reference.study, *(row.study for row in compared)])
    commands = " && ".join(f"vsetune study confirm {study} --seeds {needed}" for study in studies)
    return [f"{needed} seeds of each loss: {commands}"]


def _longer_searches(rows: Sequence[Row]) -> list[str]:
    """Losses whose searches have not levelled off: half of the configurations would have ended lower by more than the
    difference from the baseline and the deviation of seeds (docs/statistics.md)."""
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
            found.append(f"{row.loss} {fixed(lost, 1)}")
    return [
        "longer searches (twice search.configurations in a copy of the study file under another name): with half of "
        f"the configurations the best would have been lower, by points: {', '.join(found)}"
    ] if found else []


def lost_by_half(row: Row) -> float | None:
    """How many points lower its search was expected to end with half of its configurations, mean over its searches.
    None without a search, with fewer than four trials, and for another objective than M-Recall."""
    known = [pick.tuning.lost_by_half for pick in row.repeats if pick.tuning is not None]
    lost = [each for each in known if each is not None]
    return statistics.fmean(lost) if lost and len(lost) == len(row.repeats) else None


def _longer(row: Row) -> list[str]:
    """The command that trains the baseline for twice as many epochs, if it was still rising."""
    if "baseline_rising" not in row.flags or not row.is_baseline:
        return []
    last = max(epoch for seed in row.headline for epoch, _ in seed.curve)
    file = new_study_file(row.study, row.cell.partition(".")[0], "longer")
    return [
        f"whether it lasts: vsetune leaderboard repeat {row.study}/{row.cell} --all --epochs {math.ceil(2 * last)} "
        f"--output {file}, then vsetune study run {file}"
    ]
