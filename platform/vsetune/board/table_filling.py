"""A paper's table, filled from recorded runs, with the paper's values in a separate line below ours."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from vsetune.board import wording
from vsetune.board.board_notes import FLAGS
from vsetune.board.many_studies import StudyAttempts, build_many
from vsetune.board.paper_table import PaperColumn, PaperTable, plain_name, printed_words, unknown
from vsetune.board.rows import Row
from vsetune.board.selection import dataset_of
from vsetune.errors import UsageError

_NOTED = (
    "baseline_rising", "incomplete", "seed_failed", "seed_collapsed", "chosen_by_itself", "stopped_at_target",
    "censored",
)
"""Flags that become notes below a table that contains their row."""
Summaries = Mapping[tuple[str, str], Mapping[str, float]]
"""Summary of the latest attempt by (study, trial)."""


@dataclass(frozen=True)
class Cell:
    """words: the text shown. values: in full precision, as many as the paper prints here. notes: caveats, or for an
    empty cell the reason. counts: it may enter an average."""

    words: str
    values: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()
    counts: bool = False


def missing(reason: str) -> Cell:
    return Cell(wording.NOTHING, notes=(reason,))


def measured(
    column: PaperColumn, row: Row, baseline: Row | None, summaries: Summaries, *, prefix: str
) -> Cell:
    """row: the loss of the cell; baseline: of the column, None where the column has none or it was not run."""
    if row.not_comparable is not None:
        return missing(f"{row.loss} of {row.network}: {row.not_comparable}")
    if not row.seeds:
        return missing(f"{row.loss} of {row.network}: {FLAGS['no_result']}")
    notes = tuple(f"{row.network} {row.loss}: {FLAGS[flag]}" for flag in _NOTED if flag in row.flags)
    match column.quantity:
        case "best_m_recall" if row.best_m_recall is not None:
            return Cell(_fixed(row.best_m_recall, column), (row.best_m_recall,), notes)
        case "epochs_to_best" if row.epochs_to_best is not None:
            return Cell(_fixed(row.epochs_to_best, column), (row.epochs_to_best,), notes)
        case "epochs_to_target" if row.epochs_to_target is not None:
            bound, value = "> " if row.epochs_to_target.censored else "", row.epochs_to_target.value
            return Cell(bound + _fixed(value, column), (value,), notes)
        case "difference" if row.difference is not None and baseline is not None:
            return _difference(row, baseline, column, notes)
        case "scored" | "mean_and_spread":
            return _scored(column, row, summaries, prefix, notes)
    if row.collapse is not None:
        return missing(f"{row.network}: {wording.collapse(row)}")
    if baseline is None:
        return missing(f"{row.network}: {column.against} was not run together with {row.loss}")
    return missing(f"{row.loss} of {row.network} shares no seed with {baseline.loss}")


def average(cells: Sequence[Cell]) -> Cell:
    """Mean of the Differences of several networks, as in the paper, without lower bounds and rising baselines."""
    known = [cell.values for cell in cells if cell.counts]
    if len(known) < 2:
        return missing("an average takes two networks whose baseline can be compared with and whose target was reached")
    epochs, percent = (statistics.fmean(values) for values in zip(*known, strict=True))
    return Cell(_difference_words(epochs, percent, 1), (epochs, percent), (f"average over {len(known)} networks",))


def _difference(row: Row, baseline: Row, column: PaperColumn, notes: tuple[str, ...]) -> Cell:
    """Median difference in epochs and median Difference in per cent, over the pairs of seeds."""
    needed = {seed.seed: seed.epochs_to_best for seed in baseline.headline}
    apart = [
        seed.epochs_to_target.value - needed[seed.seed] for seed in row.headline
        if seed.epochs_to_target is not None and seed.seed in needed
    ]
    if row.difference is None or not apart:
        return missing(f"{row.loss} of {row.network} shares no seed with {baseline.loss}")
    if row.difference.percent is None:
        return replace(missing(f"{row.loss} of {row.network}: {FLAGS['censored']}"), words="not reached")
    epochs, percent = statistics.median(apart), row.difference.percent
    bound = "> " if row.difference.is_lower_bound else ""
    counts = not bound and "baseline_rising" not in row.flags
    return Cell(bound + _difference_words(epochs, percent, column.digits), (epochs, percent), notes, counts)


def _difference_words(epochs: float, percent: float, digits: int) -> str:
    return f"{wording.fixed(epochs, digits)} ({wording.fixed(percent, 1)}%)"


def _scored(
    column: PaperColumn, row: Row, summaries: Summaries, prefix: str, notes: tuple[str, ...]
) -> Cell:
    found = []
    for key in column.keys:
        values = [_value(summaries.get((row.study, seed.trial), {}), prefix + key) for seed in row.headline]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            where = "test" if prefix == "test_" else "validation"
            return missing(
                f"{row.loss} of {row.network}: {len(values) - len(known)} of {len(values)} seeds have no {key} of the "
                f"{where} split, or by several encoders"
            )
        found.append(column.scale * statistics.fmean(known))
    if column.quantity == "scored":
        return Cell(_fixed(found[0], column), (found[0],), notes)
    mean, spread = statistics.fmean(found), statistics.pstdev(found)
    return Cell(f"{_fixed(mean, column)} (±{_fixed(spread, column)})", (mean, spread), notes)


def _value(summary: Mapping[str, float], key: str) -> float | None:
    """The finite number of a key, None without one. A key ending in `*` matches by prefix; None for several matches."""
    if not key.endswith("*"):
        value = summary.get(key)
    else:
        found = [number for name, number in summary.items() if name.startswith(key[:-1])]
        value = found[0] if len(found) == 1 else None
    return value if value is not None and math.isfinite(value) else None


def _fixed(value: float, column: PaperColumn) -> str:
    return wording.fixed(value, column.digits)


Source = Literal["measured", "published"]


@dataclass(frozen=True)
class Line:
    """names: of the row, as many as the table has heads. seeds: largest number of seeds behind a measured cell, 0 in a
    published line and where nothing was measured."""

    names: tuple[str, ...]
    source: Source
    cells: tuple[Cell, ...]
    seeds: int = 0


@dataclass(frozen=True)
class Block:
    """All lines of one data set, each measured line above the published line of the same row. data: the paper's name of
    the data set, or ours where the paper has none. ours: the data set measured, empty where nothing was."""

    data: str
    ours: str
    lines: tuple[Line, ...]

    @property
    def title(self) -> str:
        """`Flickr30K (measured on flickr30k-lite0)`: names the data set measured where it differs from the paper's."""
        return f"{self.data} (measured on {self.ours})" if self.ours not in ("", self.data) else self.data


@dataclass(frozen=True)
class FilledTable:
    table: PaperTable
    blocks: tuple[Block, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Runs:
    """boards: by baseline, then by (data set, network, loss), the row and its baseline row; all under our names."""

    boards: Mapping[str, Mapping[tuple[str, str, str], tuple[Row, Row | None]]]
    summaries: Summaries
    data: tuple[str, ...]


def renamed(table: PaperTable, names: Mapping[str, str]) -> PaperTable:
    """The table with other names of our data sets, networks and losses. names: by the paper's words.

    Raises UsageError for a word that the table lacks, and for a data set name without letters or digits.
    """
    words = {*table.data, *table.networks, *table.losses}
    strange = [name for name in names if name not in words]
    if strange:
        raise unknown(strange[0], sorted(words), f"word of {table.name}")
    for word in table.data:
        if word in names and not plain_name(names[word]):
            raise UsageError(
                "VSE-B008", "leaderboard table: --as {word}={name}: need a name with letters or digits", word=word,
                name=names[word],
            )

    def of(mapping: Mapping[str, str]) -> dict[str, str]:
        return {word: names.get(word, ours) for word, ours in mapping.items()}

    data = {word: (plain_name(names[word]),) if word in names else ours for word, ours in table.data.items()}
    return replace(table, data=data, networks=of(table.networks), losses=of(table.losses))


def fill(table: PaperTable, studies: Sequence[StudyAttempts]) -> FilledTable:
    """The filled table: data sets of the paper first, then others of the studies. Empty cells and notes give reasons
    for missing values."""
    runs = _runs(table, studies)
    where = f"in {', '.join(study.name for study in studies)}"
    found = {
        name: next((word for word, begins in table.data.items() if plain_name(name).startswith(begins)), name)
        for name in runs.data
    }
    blocks, notes = [], list(table.notes)
    for word in dict.fromkeys((*table.data, *found.values())):
        names = [name for name, its_word in found.items() if its_word == word]
        notes += [] if names else [f"{word}: no run of it {where}."]
        for name in names or [""]:
            lines = tuple(_lines(table, word, name, runs))
            blocks += [Block(word, name, lines)] if lines else []
            measured_networks = {line.names[0] for line in lines if line.source == "measured"}
            absent = ", ".join(ours for network, ours in table.networks.items() if network not in measured_networks)
            notes += [f"{name}: no run of {absent} {where}."] if absent and name else []
    notes.append(
        f"Published: as printed in {table.source}, none of it measured here. Features, text towers and tuning are the "
        "paper's, so compare differences within a source, not across."
    )
    return FilledTable(table, tuple(blocks), tuple(notes))


def _runs(table: PaperTable, studies: Sequence[StudyAttempts]) -> _Runs:
    wanted = [table.losses[word] for word in dict.fromkeys(column.against for column in table.columns) if word]
    boards = {}
    for baseline in wanted or [next(iter(table.losses.values()))]:
        rows: dict[tuple[str, str, str], tuple[Row, Row | None]] = {}
        for board in build_many(studies, baseline=baseline).boards:
            for dataset, network, group in board.groups():
                reference = next((row for row in group if row.is_baseline), None)
                for row in group:
                    key = (dataset, network, row.loss)
                    if key not in rows or (rows[key][0].not_comparable and not row.not_comparable):
                        rows[key] = (row, reference)
        boards[baseline] = rows
    latest = sorted((each for study in studies for each in study.attempts), key=lambda each: each.start.number)
    return _Runs(
        boards, {(each.start.study, each.start.trial): each.summary for each in latest},
        tuple(dict.fromkeys(dataset_of(each) for study in studies for each in study.attempts)),
    )


def _lines(table: PaperTable, word: str, data: str, runs: _Runs) -> Iterator[Line]:
    """word: the paper's name of the data set; data: ours, empty where nothing ran on it."""
    averaged = []
    ran = {(row_data, row_network) for rows in runs.boards.values() for row_data, row_network, _ in rows}
    for network, our_network in table.networks.items():
        for loss in table.rows_of_losses or ("",):
            names = (network, loss) if loss else (network,)
            cells, seeds = [], [0]
            for column in table.columns:
                cell, row = _measured(table, column, loss or column.loss, data, our_network, runs)
                cells.append(cell)
                seeds += [len(row.headline)] if row is not None else []
            averaged.append(cells)
            if (data, our_network) in ran:
                yield Line(names, "measured", tuple(cells), max(seeds))
            printed = [table.printed(word, network, loss or column.loss, column) for column in table.columns]
            yield from _published(table, names, printed, missing("the paper's cell is empty"))
    if table.average:
        yield from _averages(table, word, averaged)


def _measured(
    table: PaperTable, column: PaperColumn, loss: str, data: str, network: str, runs: _Runs
) -> tuple[Cell, Row | None]:
    if column.quantity == "not_recorded":
        return missing(column.reason), None
    rows = runs.boards[table.losses[column.against]] if column.against else next(iter(runs.boards.values()))
    row, baseline = rows.get((data, network, table.losses[loss]), (None, None))
    if row is None:
        return missing(f"{loss}: no run of {table.losses[loss]} with {network} on {data}"), None
    return measured(column, row, baseline, runs.summaries, prefix=table.prefix), row


def _published(
    table: PaperTable, names: tuple[str, ...], printed: Sequence[tuple[str, ...] | None], empty: Cell
) -> Iterator[Line]:
    """The line of the paper's values; none where it prints nothing."""
    if any(printed):
        yield Line(names, "published", tuple(
            empty if values is None else Cell(printed_words(values, column), tuple(map(float, values)))
            for values, column in zip(printed, table.columns, strict=True)
        ))


def _averages(table: PaperTable, data: str, lines: Sequence[Sequence[Cell]]) -> Iterator[Line]:
    """Average lines, with values in the Difference columns only."""
    blank, names = Cell(""), ("Average", *("" for _ in table.heads[1:]))
    means = tuple(
        average([line[place] for line in lines]) if column.quantity == "difference" else blank
        for place, column in enumerate(table.columns)
    )
    if any(line[place].values for line in lines for place in range(len(table.columns))):
        yield Line(names, "measured", means)
    printed = [
        table.printed(data, table.average, column.loss, column) if column.quantity == "difference" else None
        for column in table.columns
    ]
    yield from _published(table, names, printed, blank)
