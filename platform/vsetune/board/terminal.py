"""The leaderboard in a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vsetune.board.board_notes import CAVEATS, caveats, flag_marks, marks, notes
from vsetune.board.board_sentences import collapses, findings, headline, is_ahead, more, protocol_line, to_know
from vsetune.board.columns import BY_IMPORTANCE, COLUMNS, LEGEND, Column, columns_of
from vsetune.board.rows import Leaderboard, Row

_UNLIMITED = 10_000


@dataclass(frozen=True)
class LeaderboardView:
    """A table for every network with the columns that fit, a legend, and what the data support. columns: those chosen
    are all shown. is_over: as of `render_table`."""

    leaderboard: Leaderboard
    columns: Sequence[Column]
    is_over: bool

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        board = self.leaderboard
        collapsed = collapses(board)
        for sentence in collapsed:
            yield Text(sentence, style="bold red")
        yield Text(f"{board.study}: losses compared with {board.baseline}", style="bold")
        columns, gap = _fitting(board, self.columns, console, options)
        for dataset, network, rows in board.groups():
            yield Text(f"\n{network} on {dataset}", style="bold")
            yield _table(board, rows, columns, gap)
        yield Text("\n".join([*LEGEND, *caveats(board)]), style="dim")
        so_far = [sentence for sentence in headline(board) if sentence not in collapsed]
        steps = (("To know", to_know(board)), ("More", more(board))) if self.is_over else ()
        for title, lines in (("So far", so_far), *steps):
            if lines:
                yield _entry(title, lines)


def render_table(
    leaderboard: Leaderboard, columns: Sequence[Column] = COLUMNS, *, is_over: bool = True
) -> LeaderboardView:
    """A renderable for a rich console: a table for every network, a legend, conclusions and next steps. is_over: False
    leaves out next steps, as of a study that runs."""
    return LeaderboardView(leaderboard, columns, is_over)


def render_notes(board: Leaderboard) -> Group:
    """A renderable for a rich console: protocol, findings, notes, and what the columns mean."""
    parts = {
        "Protocol": [protocol_line(board)], "What the data support": findings(board), "Notes": notes(board),
        "Columns": [f"{each.title}: {each.explanation}" for each in columns_of("terminal", COLUMNS, board.rows)],
    }
    shown: list[Text | Padding] = [Text(f"{board.study}: losses compared with {board.baseline}", style="bold")]
    for title, lines in parts.items():
        if lines:
            shown += [Text(f"\n{title}", style="bold"), *(Padding(Text(line), (0, 0, 0, 2)) for line in lines)]
    return Group(*shown)


def _fitting(
    board: Leaderboard, columns: Sequence[Column], console: Console, options: ConsoleOptions
) -> tuple[list[Column], int]:
    """The columns for this width, and the blanks between two. The least important ones are left out, the blanks before
    those that fit 80 columns."""
    known = [column for column in columns_of("terminal", columns, board.rows) if column.part != "comparison"]
    if any(column.is_chosen for column in known):
        return known, 2
    order = {key: place for place, key in enumerate(BY_IMPORTANCE)}
    by_importance = sorted(known, key=lambda column: order.get(column.key, len(order)))
    core = sum(order.get(column.key, len(order)) < _CORE for column in known)
    wide = options.update(max_width=_UNLIMITED)

    def fits(count: int, gap: int) -> bool:
        table = _table(board, board.rows, _ordered(by_importance[:count], known), gap)
        return Measurement.get(console, wide, table).maximum <= options.max_width

    tried = [*((count, 2) for count in range(len(known), core - 1, -1)), *((count, 1) for count in range(core, 1, -1))]
    count, gap = next(((count, gap) for count, gap in tried if fits(count, gap)), (2, 1))
    return _ordered(by_importance[:count], known), gap


_CORE = 8


def _ordered(columns: Sequence[Column], known: Sequence[Column]) -> list[Column]:
    return [column for column in known if column in columns]


def _table(leaderboard: Leaderboard, rows: Sequence[Row], columns: Sequence[Column], gap: int) -> Table:
    letters = {flag: letter for flag, letter in flag_marks(leaderboard).items() if flag in CAVEATS}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, gap - 1, 0, 0))
    for column in columns:
        side: JustifyMethod = "left" if column.kind == "text" else "right"
        table.add_column(Text(column.broken_heading), justify=side, overflow="fold")
    for row in rows:
        style = "bold" if is_ahead(row) else "dim" if row.not_comparable else ""
        table.add_row(*(_words(column, row, letters) for column in columns), style=style)
    return table


def _entry(title: str, lines: Sequence[str]) -> Table:
    """`So far   text`, with the text of all lines beside the title."""
    entry = Table.grid(padding=(0, 2, 0, 0))
    entry.add_column(width=7)
    entry.add_column()
    entry.add_row(Text(title, style="bold"), Text("\n".join(lines)))
    return entry


def _words(column: Column, row: Row, letters: Mapping[str, str]) -> Text:
    words = Text(_broken(column.words(row)))
    found = marks(row, letters) if column.part == "name" else ""
    if found:
        words.append(f" ({found})", style="dim")
    return words


def _broken(word: str) -> str:
    """Text with intervals and counts on the lines below their number."""
    number, bracket, rest = word.partition(" (")
    return f"{number}\n{rest[:-1].replace(', ', chr(10))}" if bracket else word.replace(" [", "\n[")
