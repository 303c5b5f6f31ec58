"""Sentences of a board on what its data support.

A loss is called higher or faster only after a passed test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vsetune.metrics.repeated_searches import FEWEST_REPEATS
from vsetune.metrics.seed_statistics import MEAN_SEEDS
from vsetune.report.comparing import FOR_LONG_TAILS, units_of
from vsetune.report.rows import ALPHA, Answer, Comparison, Leaderboard, Row
from vsetune.report.wording import (
    collapse,
    collapsed,
    fixed,
    gain,
    pace,
)


def headline(leaderboard: Leaderboard) -> list[str]:
    """Of each data set and network up to three sentences on the supported claims, or one on the searches or seeds that
    an answer needs. Collapses stand first."""
    return [*collapses(leaderboard), *(
        _headline(dataset, network, rows, leaderboard.baseline) for dataset, network, rows in leaderboard.groups()
        if not any(row.collapse for row in rows)
    )]


def collapses(leaderboard: Leaderboard) -> list[str]:
    """A sentence per data set and network whose baseline collapsed, and one where seeds of other losses collapsed."""
    lines = []
    for dataset, network, rows in leaderboard.groups():
        place = f"{network} on {dataset}"
        row = next((row for row in rows if row.collapse), None)
        if row is not None:
            words = collapse(row).replace("the baseline", f"the baseline {leaderboard.baseline}", 1)
            lines.append(f"{place}: {words}. Nothing is compared with it.")
        fallen = [f"{row.loss}: {collapsed(row)}" for row in rows if row.collapsed_seeds and row.collapse is None]
        lines += [f"{place}: {'; '.join(fallen)}. These seeds count in all numbers."] if fallen else []
    return lines


def findings(leaderboard: Leaderboard) -> list[str]:
    """Two sentences per comparison with the baseline, then the tests used. Losses of a network with
    equal sentences share them."""
    compared = [row for row in leaderboard.rows if row.comparison is not None]
    losses: dict[tuple[str, str, str], list[str]] = {}
    for row in compared:
        if row.comparison is not None:
            words = _finding(row, row.comparison, leaderboard)
            losses.setdefault((row.dataset, row.network, words), []).append(row.loss)
    lines = [f"{network} {', '.join(names)} {words}" for (_, network, words), names in losses.items()]
    return [*lines, *_method(compared)]


def is_ahead(row: Row) -> bool:
    """Whether the data support a higher M-Recall than the baseline's."""
    return row.comparison is not None and row.comparison.height == "supported"


def is_claimed(rows: Sequence[Row]) -> bool:
    """Whether the data support a claim on any of these rows."""
    return any(row.comparison is not None and "supported" in row.comparison.answers for row in rows)


def _headline(dataset: str, network: str, rows: Sequence[Row], baseline: str) -> str:
    place = f"{network} on {dataset}"
    if not any(row.seeds for row in rows):
        failed = all("all_failed" in row.flags for row in rows)
        return f"{place}: no result{', every trial failed' if failed else ' yet'}."
    compared = [row for row in rows if row.comparison is not None]
    if not compared:
        untrained = [row.loss for row in rows if not row.is_trained]
        if untrained and not any(row.not_comparable for row in rows):
            return f"{place}: {', '.join(untrained)} {'was' if len(untrained) == 1 else 'were'} not trained."
        why = "can be compared" if any(row.not_comparable for row in rows) else "shares a seed"
        return f"{place}: no loss {why} with {baseline}."
    claims = _claims(compared, baseline)
    if claims:
        return f"{place}: the data support that {' '.join(claims)}"
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
        state = f"{counted.pop()} of each loss" if any(short.values()) else "no loss has a confirming seed"
    else:
        state = ", ".join(f"{_count_of_searches(count)} of {loss}" for loss, count in short.items())
    return f"{state}: the board cannot say {claim}."


def _count_of_searches(count: int) -> str:
    return {0: "no confirming seed", 1: "one search"}.get(count, f"{count} searches")


def _too_few(comparisons: Sequence[Comparison], baseline: str) -> str:
    """`no winner over lmh yet: each loss has 1 seed, and a test needs 2.`"""
    units, fewest = max((min(each.units, each.baseline_units), fewest_units(each)) for each in comparisons)
    return f"no winner over {baseline} yet: each loss has {_seeds(units)}, and a test needs {fewest}."


def fewest_units(comparison: Comparison) -> int:
    """Fewest observations of each loss for a claim."""
    return FEWEST_REPEATS if comparison.by_search else MEAN_SEEDS


def _claims(rows: Sequence[Row], baseline: str) -> list[str]:
    """At most three sentences: `lseh (+1.3 [0.8, 1.8] points, −12.0 % epochs to 57.2 %) is higher and faster than lmh.`

    Each loss is in one of them, with all of its claims; losses that do not fit are only named.
    """
    by_claims: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        if row.comparison is not None and row.comparison.answers & _SIGNS.keys():
            signs = (_SIGNS.get(row.comparison.height, 0), _SIGNS.get(row.comparison.epochs_answer, 0))
            by_claims.setdefault(signs, []).append(row)
    groups = sorted(by_claims.items(), key=lambda each: (-sum(each[0]), -each[0][0]))
    shown = groups if len(groups) <= _SENTENCES else groups[:_SENTENCES - 1]
    lines = [_claim(*signs, found, baseline) for signs, found in shown]
    rest = [row.loss for _, found in groups[len(shown):] for row in found]
    return [*lines, f"{', '.join(rest)} differ{'s' if len(rest) == 1 else ''} from {baseline} too."] if rest else lines


_SIGNS: Mapping[Answer, int] = {"supported": 1, "contradicted": -1}
_SENTENCES = 3


def _claim(height: int, epochs: int, rows: Sequence[Row], baseline: str) -> str:
    """One sentence on losses with the same claims. height, epochs: 1 for a better loss, -1 for a worse one, 0 for no
    claim."""
    words = [*(["higher"] if height > 0 else ["lower"] if height else []),
             *(["faster"] if epochs > 0 else ["slower"] if epochs else [])]
    names = ", ".join(
        f"{row.loss} ({', '.join([*([_gain(row)] if height else []), *([_pace(row)] if epochs else [])])})"
        for row in rows
    )
    joined = (" and " if height == epochs else " but ").join(words)
    limit = _within(rows) if height else ""
    return f"{names} {'is' if len(rows) == 1 else 'are'} {joined} than {baseline}{limit}."


def _pace(row: Row) -> str:
    assert row.comparison is not None
    return f"{pace(row.comparison)} epochs to {fixed(row.comparison.epochs.target, 1)} %"


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
        return f"against {baseline}, {count}: a test takes {_seeds(fewest_units(comparison))}{amounts}."
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
    missed = [f"never reached by {count} of {whose}" for count, whose in sides if count and found.percent is not None]
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
        f"paired seeds by Student's t (p times {FOR_LONG_TAILS:g}, which allows for long tails)":
            not all(each.by_search for each in tested),
        "tuned losses by Welch's t over the means of searches (of a loss that was not tuned, over its seeds)":
            any(each.by_search for each in tested),
    }
    used = ", ".join(words for words, is_used in kinds.items() if is_used)
    return [
        f"Tests: {used}; epochs by their logarithms. P-values are corrected after Holm over "
        f"{len(compared)} comparison{'s' if len(compared) > 1 else ''} of each kind, at {fixed(100 * ALPHA, 0)} %, "
        "and intervals of differences alike: one excludes 0 where its claim is decided, and only there. No claim is "
        "made about other validation images."
    ]


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
