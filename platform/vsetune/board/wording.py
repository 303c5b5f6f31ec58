"""Numbers and short words of a leaderboard as displayed. Values are rounded here and not before."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from vsetune.board.rows import Bounds, Comparison, Leaderboard, Pick, Row, TargetShare
from vsetune.board.seed_results import SeedResult
from vsetune.metrics.best_of_k import ExpectedBest
from vsetune.metrics.efficiency import SeedDifference, is_near_chance
from vsetune.metrics.repeated_searches import collapse_bound
from vsetune.metrics.seed_statistics import Epochs

NOTHING = "–"
_MOST_NAMED = 4
_LONGEST_STUDY_NAME = 100


def fixed(value: float | None, digits: int) -> str:
    """Rounded half away from zero, thousands in groups; a dash for None; minus as a real minus sign."""
    if value is None:
        return NOTHING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    rounded = Decimal(repr(float(value))).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    return f"{abs(rounded) if rounded == 0 else rounded:,f}".replace("-", "−")


def counted(number: int, what: str) -> str:
    """`1 seed`, `3 seeds`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def epochs(value: Epochs | None) -> str:
    if value is None:
        return NOTHING
    return f"> {fixed(value.value, 2)}" if value.censored else fixed(value.value, 2)


def epochs_to_target(row: Row) -> str:
    """`2.00 [1.50, 3.00]`, `> 4.00` as a bound."""
    return epochs(row.epochs_to_target) + interval(row.epochs_bounds, 2)


def recall(row: Row) -> str:
    """`72.3 ± 0.4 [71.8, 72.8]`: mean, standard deviation over seeds or searches, interval of the mean, per cent."""
    return mean(row.best_m_recall, row.best_m_recall_std) + interval(row.m_recall_bounds, 1)


def mean(value: float | None, deviation: float | None) -> str:
    text = fixed(value, 1)
    return text if deviation is None else f"{text} ± {fixed(deviation, 1)}"


def interval(bounds: Bounds | None, digits: int) -> str:
    """` [71.8, 72.8]`; empty without one."""
    return "" if bounds is None else f" [{fixed(bounds[0], digits)}, {fixed(bounds[1], digits)}]"


def signed(value: float, digits: int) -> str:
    text = fixed(value, digits)
    return f"+{text}" if value > 0 and any(digit in text for digit in "123456789") else text


def difference(value: SeedDifference | None) -> str:
    """`−33.3 % [−40.1, −20.0]`, or `> 12.0 %` for a lower bound; no interval for few seeds."""
    if value is None:
        return NOTHING
    if value.percent is None:
        return _not_reached(round(value.censored_share * value.pairs), value.pairs)
    text = f"{'> ' if value.is_lower_bound else ''}{fixed(value.percent, 1)} %"
    return text + interval(None if value.low is None or value.high is None else (value.low, value.high), 1)


def _not_reached(missed: int, seeds: int) -> str:
    """`not reached`, or `not reached (2 of 9 seeds)`."""
    return "not reached" if missed == seeds else f"not reached ({missed} of {seeds} seeds)"


def difference_of(row: Row) -> str:
    """Difference in words; a dash where the row makes no comparison that it could belong to."""
    found = row.comparison
    means_nothing = found is not None and (found.m_recall is None or found.answers & {"one search", "search failed"})
    return NOTHING if means_nothing else difference(row.difference)


def gain(row: Row) -> str:
    """`+1.3 [0.8, 1.8]`: M-Recall above the baseline's, points."""
    if row.comparison is None or row.comparison.m_recall is None:
        return "–"
    return signed(row.comparison.m_recall, 1) + interval(row.comparison.m_recall_bounds, 1)


def pace(comparison: Comparison | None) -> str:
    """`−12.0 % [−25.1, 3.0]`: epochs to the target beyond the baseline's, see `share_of_epochs`."""
    if comparison is None:
        return NOTHING
    return share_of_epochs(comparison.epochs) + interval(comparison.epochs_bounds, 1)


def share_of_epochs(to_share: TargetShare) -> str:
    """`−12.0 %`; `> +12.0 %` if seeds of the loss never reach the target, `< −12.0 %` if seeds of the baseline never
    do; `not reached` where that leaves no number that says anything."""
    if to_share.percent is not None:
        mark = "> " if to_share.missed else "< " if to_share.baseline_missed else ""
        return f"{mark}{signed(to_share.percent, 1)} %"
    if to_share.missed:
        return _not_reached(to_share.missed, to_share.seeds)
    if to_share.baseline_missed:
        return f"not reached by the baseline ({to_share.baseline_missed} of {to_share.baseline_seeds} seeds)"
    return NOTHING


def collapse(row: Row) -> str:
    """`the baseline collapsed: its best M-Recall is 14.9 %, less than half of the 51.3 % of my_loss`, or empty."""
    found = row.collapse
    if found is None:
        return ""
    share = f" in {found.seeds} of {found.of_seeds} seeds" if found.of_seeds > 1 else ""
    state = f"the baseline {'collapsed' if found.has_ended else 'has not learned anything yet'}{share}"
    if is_near_chance(found.last, found.chance):
        last, chance = fixed(found.last, 1), fixed(found.chance, 1)
        return f"{state}: its M-Recall is {last} % at the end, that of a random order {chance} %"
    return (
        f"{state}: its best M-Recall is {fixed(found.m_recall, 1)} %, less than half of the "
        f"{fixed(found.other_m_recall, 1)} % of {found.other}"
    )


def trials(row: Row) -> str:
    """`12 (8 pruned, 1 failed)`: trials, and attempts that did not run to their end."""
    other = [f"{count} {status}" for status, count in row.counts.items() if status != "finished" and count]
    return f"{row.trials} ({', '.join(other)})" if other else str(row.trials)


def attempts(row: Row) -> str:
    """`4 finished, 2 pruned`."""
    return ", ".join(f"{count} {status}" for status, count in sorted(row.counts.items()) if count)


def collapsed(row: Row) -> str:
    """`1 of 9 seeds collapsed; of more seeds up to 43 % may (95 % bound)`, or empty."""
    if not row.collapsed_seeds:
        return ""
    seeds = len(row.headline)
    bound = fixed(100 * collapse_bound(row.collapsed_seeds, seeds), 0)
    found = f"{row.collapsed_seeds} of {counted(seeds, 'seed')} collapsed"
    return f"{found}; of more seeds up to {bound} % may (95 % bound)"


def seeds(row: Row) -> str:
    """`0 (searched, 61.5), 1, 2 (diverged)`: all seeds shown; a seed that searched with its own M-Recall. Several
    searches are divided by semicolons."""
    of_searches = (", ".join(map(_seed, row.seeds_of(pick))) for pick in row.repeats)
    return "; ".join(words for words in of_searches if words) or NOTHING


def _seed(seed: SeedResult) -> str:
    if seed.chose:
        return f"{seed.seed} (searched, {fixed(seed.best_m_recall, 1)})"
    return f"{seed.seed} (diverged)" if seed.diverged else str(seed.seed)


def expected_best(each: ExpectedBest) -> str:
    """`58.1 (55.0–60.2)`: in parentheses, because square brackets mark intervals on boards."""
    return f"{fixed(each.mean, 1)} ({fixed(each.low, 1)}–{fixed(each.high, 1)})"


def search_name(row: Row, pick: Pick) -> str:
    """`lseh`, or `lseh, search 2` where there are several."""
    return row.loss if len(row.repeats) == 1 else f"{row.loss}, search {pick.repeat}"


def configurations(row: Row) -> str:
    """The winner's hyperparameters; of several searches each, with its mean: `61.3: loss.margin = 0.2; 60.9: ...`"""
    picks = [pick for pick in row.repeats if pick.seeds]
    if len(row.repeats) == 1 or not picks:
        return configuration(row.configuration) if row.seeds else NOTHING
    return "; ".join(f"{fixed(pick.best_m_recall, 1)}: {configuration(pick.configuration)}" for pick in picks)


def configuration(plain: Mapping[str, Any]) -> str:
    shown = (f"{key} = {value:.4g}" if isinstance(value, float) else f"{key} = {value}" for key, value in plain.items())
    return ", ".join(shown) or "defaults"


def page_title(boards: Sequence[Leaderboard]) -> str:
    """Names of the studies shown, or their number if there are more than four."""
    studies = dict.fromkeys(row.study for board in boards for row in board.rows)
    if len(boards) == 1 and len(studies) < 2:
        return boards[0].study
    return " + ".join(studies) if len(studies) <= _MOST_NAMED else f"{len(studies)} studies"


def board_id(board: Leaderboard) -> str:
    """Name of one of several boards in addresses and files: its data set, with a number after the first board."""
    return board.rows[0].dataset if board.number == 1 else f"{board.rows[0].dataset}.{board.number}"


def board_title(board: Leaderboard, dataset: str = "") -> str:
    """Title of one of several boards. dataset: replaces the data set of its first row."""
    name = dataset or board.rows[0].dataset
    if board.number == 1:
        return name
    return f"{name}, other conditions" + (f" ({board.number})" if board.number > 2 else "")


def new_study_file(*words: str) -> str:
    """Name of a study file from these words, short enough for a study's name. The last word is not cut."""
    *first, last = words
    return f"{'_'.join(first)[:_LONGEST_STUDY_NAME - len(last) - 1]}_{last}.yaml"
