"""Sentences on the claims that a board's data support. A loss is called higher or faster only after a passed test."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vsetune.report import wording
from vsetune.report.rows import ALPHA, Answer, Comparison, Leaderboard, Row
from vsetune.report.wording import difference, fixed, interval, signed


def headline(leaderboard: Leaderboard) -> list[str]:
    """One sentence per data set and network: the supported claims, or the seeds that an answer needs; collapsed
    baselines first."""
    return [*collapses(leaderboard), *(
        _headline(dataset, network, rows, leaderboard.baseline) for dataset, network, rows in leaderboard.groups()
        if not any(row.collapse for row in rows)
    )]


def collapses(leaderboard: Leaderboard) -> list[str]:
    """One sentence per data set and network whose baseline collapsed."""
    fallen = [
        (f"{network} on {dataset}", next((row for row in rows if row.collapse), None))
        for dataset, network, rows in leaderboard.groups()
    ]
    return [
        f"{place}: {wording.collapse(row).replace('the baseline', f'the baseline {leaderboard.baseline}', 1)}. Nothing "
        "is compared with it." for place, row in fallen if row is not None
    ]


def findings(leaderboard: Leaderboard) -> list[str]:
    """Two sentences per comparison with the baseline, then the tests used and the command for more seeds. Losses of a
    network with equal sentences share them."""
    compared = [row for row in leaderboard.rows if row.comparison is not None]
    said: dict[tuple[str, str, str], list[str]] = {}
    for row in compared:
        if row.comparison is not None:
            said.setdefault((row.dataset, row.network, _finding(row, row.comparison, leaderboard.baseline)), []).append(
                row.loss
            )
    lines = [f"{network} {', '.join(losses)} {finding}" for (_, network, finding), losses in said.items()]
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
        *_supported(compared, "height", ("is", "are", f"higher than {baseline}"), _gain),
        *_supported(compared, "epochs", ("is", "are", f"faster to the best of {baseline}"), _soonness),
    ]
    if supported:
        return f"{place}: the data support that {', and that '.join(supported)}."
    short = [row for row in compared if _answers(row) & {"too few seeds"}]
    if len(short) == len(compared):
        return f"{place}: {_too_few([row.comparison for row in compared if row.comparison], baseline)}"
    return f"{place}: the data do not yet separate any loss from {baseline}."


def _too_few(comparisons: Sequence[Comparison], baseline: str) -> str:
    """`no winner over lmh yet: each loss has 1 seed to compare. 1 more shows which is higher, ...`"""
    most = max(len(each.seeds) for each in comparisons)
    state = f"each loss has {_seeds(most)} to compare" if most else "each loss has only the seed that it was tuned on"
    needed = {"higher": comparisons[0].height_seeds, "faster": comparisons[0].epochs_seeds}
    more = [f"{count - most} more {'shows' if count - most == 1 else 'show'} which is {what}"
            for what, count in needed.items() if count > most]
    return f"no winner over {baseline} yet: {state}. {', '.join(more)}."


def _supported(
    rows: Sequence[Row], claim: str, words: tuple[str, str, str], amount: Callable[[Row], str]
) -> list[str]:
    """`lseh (+1.3 [0.8, 1.8] points) is higher than lmh`: all losses whose claim is supported; empty without any."""
    found = [row for row in rows if getattr(row.comparison, claim) == "supported"]
    if not found:
        return []
    one, several, rest = words
    limit = _within(found) if claim == "height" else ""
    verb = one if len(found) == 1 else several
    return [f"{', '.join(f'{row.loss} ({amount(row)})' for row in found)} {verb} {rest}{limit}"]


def _soonness(row: Row) -> str:
    return f"Difference {difference(row.difference)}"


def _gain(row: Row) -> str:
    return f"{gain(row)} points"


def gain(row: Row) -> str:
    """`+1.3 [0.8, 1.8]`: M-Recall above the baseline's, points."""
    if row.comparison is None or row.comparison.m_recall is None:
        return "–"
    return signed(row.comparison.m_recall, 1) + interval(row.comparison.m_recall_bounds, 1)


def _answers(row: Row) -> set[Answer]:
    return {row.comparison.height, row.comparison.epochs} if row.comparison else set()


def _finding(row: Row, comparison: Comparison, baseline: str) -> str:
    seeds = _seeds(len(comparison.seeds)) if comparison.seeds else "only the seeds that they were tuned on"
    return (
        f"against {baseline}, {seeds}: "
        f"{_on_height(row, comparison)} {_on_epochs(row, comparison, baseline)}"
    )


def _on_height(row: Row, comparison: Comparison) -> str:
    told = f"{_gain(row)} of M-Recall" if comparison.m_recall is not None else ""
    p_value, within = _p(comparison.height_p), _within([row])
    match comparison.height:
        case "supported":
            return f"the data support that it is higher{within}, {told}, {p_value}."
        case "contradicted":
            return f"the data do not support that it is higher but that it is lower{within}, {told}, {p_value}."
        case "undecided":
            return f"the data cannot yet tell whether it is higher, {told}, {p_value}."
        case "cut short":
            return "no claim is made about its height, since seeds were stopped at their target."
        case _:
            return f"whether it is higher takes {_seeds(comparison.height_seeds)}" + (f" ({told})." if told else ".")


def _on_epochs(row: Row, comparison: Comparison, baseline: str) -> str:
    counted = f"faster in {comparison.sooner}, slower in {comparison.later}"
    told = f"{counted}, Difference {difference(row.difference)}, {_p(comparison.epochs_p)}"
    match comparison.epochs:
        case "supported":
            return f"The data support that it is faster to the best of {baseline}: {told}."
        case "contradicted":
            return f"The data do not support that it is faster to the best of {baseline}: {told}."
        case "undecided":
            return f"The data cannot yet tell whether it is faster to the best of {baseline}: {told}."
        case "no yardstick":
            return f"No claim is made about epochs, since {baseline} was still rising when it ended."
        case _:
            return f"Whether it is faster to the best of {baseline} takes {_seeds(comparison.epochs_seeds)}."


def _method(compared: Sequence[Row]) -> list[str]:
    if not any(_answers(row) & {"supported", "contradicted", "undecided"} for row in compared):
        return []
    return [
        f"Tested over paired seeds: M-Recall by Student's t, epochs by signs; p after Holm, for {len(compared)} "
        f"comparison{'s' if len(compared) > 1 else ''} of each kind, at {fixed(100 * ALPHA, 0)} %; intervals are each "
        "for itself. Seeds were drawn anew, validation images were not: no claim is made about other images."
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
