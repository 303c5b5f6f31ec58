"""Displayed numbers and sentences of a leaderboard. Values are rounded here and not before."""

from __future__ import annotations

import math
import string
from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from vsetune.metrics.efficiency import SeedDifference
from vsetune.metrics.seed_statistics import MEAN_SEEDS, MEDIAN_SEEDS, Epochs, noise_tolerance
from vsetune.report.paper_table import PaperColumn, PaperTable, paper_table, plain_name, printed_words, table_names
from vsetune.report.rows import AT_RANGE_END, FLAGS, Bounds, Leaderboard, Row
from vsetune.report.search_budgets import LESS, MORE
from vsetune.report.selection import code_notes
from vsetune.report.time_profiles import pareto_front

NOTHING = "–"
_MOST_NAMED = 4
_LONGEST_STUDY_NAME = 100
_PROTOCOL_WORDS = {
    "split": "split", "images": "images", "captions": "captions", "validation_images": "images ranked",
    "reranking": "re-ranking", "batch_size": "batch size",
    "validate_every_steps": "steps between validations", "steps_per_epoch": "steps per epoch",
    "tie_rule": "ties", "data_fingerprint": "data",
}


def fixed(value: float | None, digits: int) -> str:
    """Rounded half away from zero, thousands in groups; a dash for None; minus as a real minus sign."""
    if value is None:
        return NOTHING
    if math.isinf(value):
        return "∞"
    rounded = Decimal(repr(float(value))).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    return f"{abs(rounded) if rounded == 0 else rounded:,f}".replace("-", "−")


def epochs(value: Epochs | None) -> str:
    if value is None:
        return NOTHING
    return f"> {fixed(value.value, 2)}" if value.censored else fixed(value.value, 2)


def epochs_to_target(row: Row) -> str:
    """`2.00 [1.50, 3.00]`, `> 4.00` as a bound."""
    return epochs(row.epochs_to_target) + interval(row.epochs_bounds, 2)


def recall(row: Row) -> str:
    """`72.3 ± 0.4 [71.8, 72.8]`: mean, standard deviation over seeds, interval of the mean, per cent."""
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
    """`−33.3 % [−40.1, −20.0]`, or `> −12.0 %` for a lower bound; no interval for few seeds."""
    if value is None:
        return NOTHING
    text = f"{'> ' if value.is_lower_bound else ''}{fixed(value.percent, 1)} %"
    return text + interval(None if value.low is None or value.high is None else (value.low, value.high), 1)


def collapse(row: Row) -> str:
    """`the baseline collapsed: its best M-Recall is 14.9 %, less than half of the 51.3 % of my_loss`, or empty."""
    told = row.collapse
    if told is None:
        return ""
    who = f" in {told.seeds} of {told.of_seeds} seeds" if told.of_seeds > 1 else ""
    state = f"the baseline collapsed{who}" if told.has_ended else f"the baseline has not learned anything yet{who}"
    if told.m_recall < told.other_m_recall / 2:
        return (
            f"{state}: its best M-Recall is {fixed(told.m_recall, 1)} %, less than half of the "
            f"{fixed(told.other_m_recall, 1)} % of {told.other}"
        )
    last, chance = fixed(told.last, 1), fixed(told.chance, 1)
    return f"{state}: its M-Recall is {last} % at the end, that of a random order {chance} %"


def trials(row: Row) -> str:
    """`12 (8 pruned, 1 failed)`: trials, and attempts that did not run to their end."""
    other = [f"{count} {status}" for status, count in row.counts.items() if status != "finished" and count]
    return f"{row.trials} ({', '.join(other)})" if other else str(row.trials)


def attempts(row: Row) -> str:
    """`4 finished, 2 pruned`."""
    return ", ".join(f"{count} {status}" for status, count in sorted(row.counts.items()) if count)


def seeds(row: Row) -> str:
    """`0 (searched, 61.5), 1, 2`: all seeds shown; a seed that searched with its own M-Recall."""
    shown = (
        f"{seed.seed} (searched, {fixed(seed.best_m_recall, 1)})" if seed.chose else str(seed.seed)
        for seed in row.seeds
    )
    return ", ".join(shown) or NOTHING


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


def notes(leaderboard: Leaderboard) -> list[str]:
    """Notes to read before quoting a number: resolution, intervals, and every flag that occurs."""
    lines = _resolution_notes(leaderboard)
    lines += _interval_notes(leaderboard)
    lines += [note for group in leaderboard.groups() if (note := _front_note(*group, leaderboard.baseline))]
    lines += _searching_note(leaderboard)
    lines += [_contenders_note(row) for row in leaderboard.rows if row.contenders]
    for flag, mark in flag_marks(leaderboard).items():
        rows = [row for row in leaderboard.rows if flag in row.flags]
        named = [row for row in rows if row.is_baseline] if flag.startswith("baseline_") else rows
        lines.append(f"({mark}) {', '.join(_name(row, flag) for row in named)}: {FLAGS[flag]}.")
        if flag == "baseline_rising":
            lines += [f"({mark}) {_longer(row)}" for row in rows if row.is_baseline]
        if flag == AT_RANGE_END:
            lines += [
                f"({mark}) {end.sentence(f'{row.network} {row.loss}')}" for row in rows for end in row.range_ends
            ]
        if flag == "not_comparable":
            lines += [f"({mark}) {row.network} {row.loss}: {row.not_comparable}." for row in rows]
        if flag == "cannot_draw":
            lines += [f"({mark}) {row.network} {row.loss}: {row.cannot_draw}." for row in rows]
    return [*lines, *code_notes(leaderboard.rows), *published_notes(leaderboard)]


def _front_note(dataset: str, network: str, rows: Sequence[Row], baseline: str) -> str:
    """A note on the Pareto front; empty if all its rows have the same M-Recall."""
    front = pareto_front(rows)
    if len({row.best_m_recall for row in front}) < 2:
        return ""
    told = ", ".join(
        f"{row.loss} ({epochs(row.epochs_to_target)} epochs to the best of {baseline}, M-Recall "
        f"{fixed(row.best_m_recall, 1)} %)" for row in front
    )
    place = f"{network} on {dataset}"
    return f"{place}, from the fastest to the highest (the Pareto front): {told}, as measured, not tested."


def _searching_note(leaderboard: Leaderboard) -> list[str]:
    """M-Recall of the seeds that searched, where the numbers exclude them."""
    left_out = [
        f"{row.network} {row.loss} {fixed(seed.best_m_recall, 1)} (seed {seed.seed}, best of {row.configurations})"
        for row in leaderboard.rows for seed in row.seeds if seed.chose and seed not in row.headline
    ]
    if not left_out:
        return []
    return [f"All numbers are of seeds that did not choose the configuration; those that did: {', '.join(left_out)}."]


def _contenders_note(row: Row) -> str:
    """`vsepp lseh, run again together with its winner: runner-up 61.0 ± 0.2 over the seeds 1, 2 ...`"""
    told = "; ".join(
        f"{each.role} {mean(each.best_m_recall, each.best_m_recall_std)} over the seeds "
        f"{', '.join(str(seed.seed) for seed in each.seeds)} (the winner {fixed(each.winner_m_recall, 1)})"
        for each in row.contenders
    )
    return f"{row.network} {row.loss}, run again together with its winner: {told}."


def _name(row: Row, flag: str) -> str:
    name = f"{row.network} {row.loss}"
    if flag == "chosen_by_itself":
        return f"{name} (best of {row.configurations})"
    if flag == "censored":
        told = [seed.epochs_to_target for seed in row.headline if seed.epochs_to_target is not None]
        return f"{name} ({sum(each.censored for each in told)} of {len(told)})"
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
        told = ", ".join(f"{row.network} {row.loss} {fixed(noise_tolerance(noise), 2)}" for row, noise in noisy)
        lines.append(
            "Epochs to level: to the earliest validation that noise cannot tell from the best, by at most 2.77 "
            f"deviations of one validation, in points: {told}."
        )
    return lines


def new_study_file(*words: str) -> str:
    """Name of a study file from these words, short enough for a study's name. The last word is not cut."""
    *first, last = words
    return f"{'_'.join(first)[:_LONGEST_STUDY_NAME - len(last) - 1]}_{last}.yaml"


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
    return [f"Epochs are known to the gap between validations, {shown}: smaller differences mean nothing."]


def published_notes(board: Leaderboard) -> list[str]:
    """A line for each table and group that share a cell. A table with all recalls contributes only their means."""
    tables = [table for table in map(paper_table, table_names()) if table.beside_boards]
    return [
        note for dataset, network, rows in board.groups() for table in tables
        for note in _notes(table, dataset, network, rows)
    ]


def _notes(table: PaperTable, dataset: str, network: str, rows: Sequence[Row]) -> list[str]:
    word = next((word for word, begins in table.data.items() if plain_name(dataset).startswith(begins)), None)
    printed_as = next((name for name, ours in table.networks.items() if ours == network), None)
    if word is None or printed_as is None:
        return []
    shown = {row.loss for row in rows}
    told = [
        f"{loss or column.loss} {_named(column)} {printed_words(values, column)}"
        for loss in table.rows_of_losses or ("",) for column in table.columns
        if _is_shown(table, column, loss, shown)
        and (values := table.printed(word, printed_as, loss or column.loss, column)) is not None
    ]
    if not told:
        return []
    split = {"val": "validation split", "test": "test split"}.get(table.split, table.split)
    where = f"{table.source}, {printed_as} on {word}, {split}"
    return [f"† Published, not measured here ({where}; other features and tuning): {'; '.join(told)}."]


def _is_shown(table: PaperTable, column: PaperColumn, loss: str, shown: set[str]) -> bool:
    words = [word for word in (loss or column.loss, column.against) if word]
    is_told = column.quantity == "mean_and_spread" if loss else True
    return is_told and all(table.losses[word] in shown for word in words)


def _named(column: PaperColumn) -> str:
    """The heading without the name of the loss, which precedes it, and with the name of the loss compared with."""
    if not column.loss:
        return f"{column.group} {column.heading}"
    heading = column.heading.removesuffix(f" {column.loss}")
    return heading if column.against in ("", column.loss) else f"{heading} (against {column.against})"
