"""The leaderboard in a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from vsetune.report.board_sentences import collapses, findings, flag_marks, is_ahead, marks, notes, protocol_line
from vsetune.report.columns import COLUMNS, Column, columns_of
from vsetune.report.rows import Leaderboard, Row
from vsetune.report.table_text import WordTable, profile_table, tuning_table

_UNLIMITED = 10_000
_NAMES = ("data", "network", "loss")


@dataclass(frozen=True)
class LeaderboardView:
    """One table where it fits; in a narrow terminal tables of results, epochs and costs for every network."""

    leaderboard: Leaderboard
    columns: Sequence[Column]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        board = self.leaderboard
        columns = columns_of("terminal", self.columns, board.rows)
        for sentence in collapses(board):
            yield Text(sentence, style="bold red")
        yield Text(f"{board.study}: losses compared with {board.baseline}", style="bold")
        whole = _table(board, [rows for _, _, rows in board.groups()], columns)
        needed = Measurement.get(console, options.update(max_width=_UNLIMITED), whole).maximum
        if needed <= options.max_width:
            yield whole
        else:
            for dataset, network, rows in board.groups():
                yield Text(f"\n{network} on {dataset}", style="bold")
                for part in ("result", "epochs", "cost"):
                    yield _table(board, [rows], [column for column in columns if column.part in ("name", part)])
        yield Text("\n".join([protocol_line(board), *findings(board), *notes(board)]), style="dim")
        profiles = (profile_table(each, board.baseline) for each in board.profiles)
        for words in (tuning_table(board), *profiles):
            if words is not None:
                yield render_words(words)


def render_table(leaderboard: Leaderboard, columns: Sequence[Column] = COLUMNS) -> LeaderboardView:
    """A renderable for a rich console: tables, with notes on protocol, resolution and flags below."""
    return LeaderboardView(leaderboard, columns)


def _table(leaderboard: Leaderboard, groups: Sequence[tuple[Row, ...]], columns: Sequence[Column]) -> Table:
    letters = flag_marks(leaderboard)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in columns:
        side: JustifyMethod = "left" if column.kind == "text" else "right"
        table.add_column(Text(column.broken_heading), justify=side, overflow="fold")
    for rows in groups:
        for row in rows:
            words = [_words(column, row, letters) for column in columns]
            table.add_row(*words, style="bold" if is_ahead(row) else "")
        table.add_section()
    return table


def render_words(words: WordTable) -> Group:
    """The table with its title and notes."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for heading in words.headings:
        table.add_column(Text(heading), justify="left" if heading in _NAMES else "right", overflow="fold")
    for row in words.rows:
        table.add_row(*(Text(_broken(cell)) for cell in row))
    return Group(Text(f"\n{words.title}", style="bold"), table, Text("\n".join(words.notes), style="dim"))


def _words(column: Column, row: Row, letters: Mapping[str, str]) -> Text:
    words = Text(_broken(column.words(row)))
    if column.part == "name" and row.flags:
        words.append(f" ({marks(row, letters)})", style="dim")
    return words


def _broken(word: str) -> str:
    """Text with intervals and counts on the lines below their number."""
    number, bracket, rest = word.partition(" (")
    return f"{number}\n{rest[:-1].replace(', ', chr(10))}" if bracket else word.replace(" [", "\n[")
