"""A table for terminals of any width: nothing is cut off, and columns that do not fit continue below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Column, Table
from rich.text import Text

_NARROWEST = 30
"""Smallest width, in characters, of a broken column of sentences, and of names beside other columns."""
_GAP = 2


class FittingTable:
    """Rows under headings; the first column names them and is repeated in every part. Columns without words are left
    out; one with overflow "fold" contains sentences. sections: the numbers of rows that have a line above them."""

    def __init__(
        self, columns: Sequence[Column | str], rows: Sequence[Sequence[str]], *, title: str = "",
        sections: Sequence[int] = (),
    ) -> None:
        self._columns = [Column(each) if isinstance(each, str) else each for each in columns]
        self._rows, self._title, self._sections = rows, title, sections

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._title:
            yield Text(self._title, style="italic")
        width = options.max_width
        for place, part in enumerate(self._parts(width)):
            if place:
                yield Text()
            yield self._table(part, may_break=self._taken(part, width) > width, breaks_names=self._breaks_names(width))

    def _parts(self, width: int) -> Iterator[list[int]]:
        """The columns of each table, by number."""
        part = [0]
        for number in range(1, len(self._columns)):
            if not any(row[number] for row in self._rows):
                continue
            if self._taken([*part, number], width) > width and len(part) > 1:
                yield part
                part = [0]
            part.append(number)
        yield part

    def _taken(self, numbers: Sequence[int], width: int) -> int:
        names = min(self._width(0), _of_names(width)) + _GAP
        return names + sum(self._width(number) + _GAP for number in numbers if number) - _GAP

    def _breaks_names(self, width: int) -> bool:
        return len(self._columns) > 1 and self._width(0) > _of_names(width)

    def _width(self, number: int) -> int:
        column = self._columns[number]
        words = [str(column.header), *(row[number] for row in self._rows)]
        longest = max(cell_len(line) for word in words for line in word.splitlines() or [""])
        return min(longest, _NARROWEST) if column.overflow == "fold" else longest

    def _table(self, numbers: Sequence[int], *, may_break: bool, breaks_names: bool) -> Table:
        """may_break: every cell may be broken over lines, because the terminal is narrower than one. breaks_names:
        names may, so that other columns have room."""
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
        for number in numbers:
            column = self._columns[number]
            table.add_column(
                Text(str(column.header)), justify=column.justify, overflow="fold",
                no_wrap=not may_break and column.overflow != "fold" and (number > 0 or not breaks_names),
            )
        for place, row in enumerate(self._rows):
            if place in self._sections:
                table.add_section()
            table.add_row(*(Text(row[number]) for number in numbers))
        return table


def _of_names(width: int) -> int:
    """The largest width of names in a terminal where other columns stand beside them."""
    return max(_NARROWEST, width - _NARROWEST - _GAP)
