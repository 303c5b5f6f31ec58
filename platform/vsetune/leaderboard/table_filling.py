"""A paper's table, filled from recorded runs, with the paper's values in a separate line below ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from vsetune.errors import UsageError
from vsetune.leaderboard.many_studies import StudyAttempts, build_many
from vsetune.leaderboard.paper_table import PaperColumn, PaperTable, plain_name, printed_words
from vsetune.leaderboard.rows import Row
from vsetune.leaderboard.selection import dataset_of
from vsetune.leaderboard.table_cells import Cell, Summaries, average, measured, missing

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
    unknown = [name for name in names if name not in words]
    if unknown:
        raise UsageError(
            f"leaderboard table: --as {unknown[0]}: no word of {table.name}, need one of {', '.join(sorted(words))}"
        )

    for word in table.data:
        if word in names and not plain_name(names[word]):
            raise UsageError(f"leaderboard table: --as {word}={names[word]}: need a name with letters or digits")

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
            notes += [f"{name}: no run of {absent} {where}." for absent in _absent(table, lines) if name]
    notes.append(
        f"Published: as printed in {table.source}, none of it measured here. Features, text towers and tuning are the "
        "paper's, so compare differences within a source, not across."
    )
    return FilledTable(table, tuple(blocks), tuple(notes))


def _absent(table: PaperTable, lines: Sequence[Line]) -> list[str]:
    """Our names of the networks without a measured line, joined in one string; empty where all have one."""
    shown = {line.names[0] for line in lines if line.source == "measured"}
    absent = [ours for network, ours in table.networks.items() if network not in shown]
    return [", ".join(absent)] if absent else []


def _runs(table: PaperTable, studies: Sequence[StudyAttempts]) -> _Runs:
    wanted = [table.losses[word] for word in dict.fromkeys(column.against for column in table.columns) if word]
    boards = {}
    for baseline in wanted or [next(iter(table.losses.values()))]:
        rows: dict[tuple[str, str, str], tuple[Row, Row | None]] = {}
        for board in build_many(studies, baseline=baseline).boards:
            for dataset, network, group in board.groups():
                yardstick = next((row for row in group if row.is_baseline), None)
                for row in group:
                    key = (dataset, network, row.loss)
                    if key not in rows or (rows[key][0].not_comparable and not row.not_comparable):
                        rows[key] = (row, yardstick)
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
            published = _published(table, word, network, loss)
            if published is not None:
                yield published
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


def _published(table: PaperTable, data: str, network: str, loss: str) -> Line | None:
    printed = [table.printed(data, network, loss or column.loss, column) for column in table.columns]
    if not any(printed):
        return None
    cells = _printed_cells(table, printed, missing("the paper's cell is empty"))
    return Line((network, loss) if loss else (network,), "published", cells)


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
    if any(printed):
        yield Line(names, "published", _printed_cells(table, printed, blank))


def _printed_cells(
    table: PaperTable, printed: Sequence[tuple[str, ...] | None], empty: Cell
) -> tuple[Cell, ...]:
    return tuple(
        empty if values is None else Cell(printed_words(values, column), tuple(map(float, values)))
        for values, column in zip(printed, table.columns, strict=True)
    )
