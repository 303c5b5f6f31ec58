"""A filled table of a paper in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from vsetune.leaderboard.table_filling import FilledTable
from vsetune.leaderboard.table_formats import PUBLISHED, marked, marks_of, notes_of, source_of

_UNLIMITED = 10_000


@dataclass(frozen=True)
class TableView:
    """One table where it fits, with the groups above the column headings; in a narrow terminal a table per group."""

    filled: FilledTable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        filled, columns = self.filled, range(len(self.filled.table.columns))
        yield Text(f"{filled.table.title} ({filled.table.source})", style="bold")
        whole = self._table(columns, is_whole=True)
        if Measurement.get(console, options.update(max_width=_UNLIMITED), whole).maximum <= options.max_width:
            yield whole
        else:
            groups = [filled.table.columns[number].group for number in columns]
            alone = [number for number in columns if not groups[number]]
            for group in dict.fromkeys(filter(None, groups)) or [""]:
                yield Text(f"\n{group}", style="bold")
                yield self._table([*alone, *(n for n in columns if groups[n] == group and group)], is_whole=False)
        yield Text("\n".join(notes_of(filled, marks_of(filled))), style="dim")

    def _table(self, numbers: Sequence[int], *, is_whole: bool) -> Table:
        filled, marks = self.filled, marks_of(self.filled)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        for heading in (*filled.table.heads, "from"):
            table.add_column(Text(heading), overflow="fold")
        for number in numbers:
            column = filled.table.columns[number]
            above = f"{column.group}\n" if column.group and is_whole else ""
            heading = column.heading if is_whole else column.heading.replace(" ", "\n")
            table.add_column(Text(f"{above}{heading}"), justify="right", no_wrap=not is_whole)
        for block in filled.blocks:
            table.add_row(Text(block.title, style="bold"), *[""] * (len(filled.table.heads) + len(numbers)))
            for line in block.lines:
                cells = [*line.names, source_of(line), *(marked(line.cells[number], marks) for number in numbers)]
                table.add_row(*map(Text, cells), style="dim" if line.source == PUBLISHED else "")
            table.add_section()
        return table


def to_terminal(filled: FilledTable) -> TableView:
    """A renderable for a rich console."""
    return TableView(filled)
