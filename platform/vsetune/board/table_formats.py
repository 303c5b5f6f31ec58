"""A filled table of a paper as Markdown, CSV, LaTeX for booktabs, or in a terminal."""

from __future__ import annotations

import itertools
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from vsetune.board.table_filling import Cell, FilledTable, Line
from vsetune.board.table_text import (
    NEEDS_BOOKTABS,
    csv_of,
    latex_frame,
    latex_line,
    markdown_frame,
    markdown_line,
    tex,
)

PUBLISHED = "published"


def to_markdown(filled: FilledTable) -> str:
    """A table in GitHub's dialect, with its notes as a list."""
    marks, table = marks_of(filled), filled.table
    heads = [*table.heads, "from", *(f"{each.group}: {each.heading}" if each.group else each.heading
                                     for each in table.columns)]
    sides = ["---"] * (len(table.heads) + 1) + ["---:"] * len(table.columns)
    title = f"**{_pipe(table.title)}** ({_pipe(table.source)})"
    head, tail = markdown_frame(title, heads, sides, notes_of(filled, marks), _pipe)
    lines = []
    for block in filled.blocks:
        lines.append(markdown_line([f"**{block.title}**", *[""] * (len(heads) - 1)], _pipe))
        lines += [markdown_line(_cells(line, marks), _pipe) for line in block.lines]
    return "".join([head, *lines, tail])


def to_csv(filled: FilledTable) -> str:
    """One line per cell, in full precision. second: the second number of a cell with two. reason: why the cell is
    empty, or its caveats."""
    heads = [head.lower() for head in filled.table.heads]
    return csv_of(
        {
            "table": filled.table.name, "data": block.data, "our_data": block.ours,
            **dict(zip(heads, line.names, strict=True)),
            "group": column.group, "column": column.heading, "source": line.source,
            "seeds": line.seeds or "", "value": cell.values[0] if cell.values else "",
            "second": cell.values[1] if len(cell.values) > 1 else "", "reason": "; ".join(cell.notes),
        }
        for block in filled.blocks for line in block.lines
        for column, cell in zip(filled.table.columns, line.cells, strict=True) if cell.words
    )


def to_latex(filled: FilledTable) -> str:
    r"""A `table` for booktabs, with each group of columns under a \cmidrule as in papers, and the notes below."""
    marks, table = marks_of(filled), filled.table
    heads = len(table.heads) + 1
    above = _latex_groups(filled, heads) if any(column.group for column in table.columns) else ""
    head, tail = latex_frame(
        f"{tex(table.title)} ({tex(table.source)}), measured and published.", "l" * heads + "r" * len(table.columns),
        above + latex_line([*table.heads, "from", *(column.heading for column in table.columns)]),
        notes_of(filled, marks),
    )
    lines = []
    for block in filled.blocks:
        title = rf"\multicolumn{{{heads + len(table.columns)}}}{{c}}{{{tex(block.title)}}} \\"
        lines.append(f"\\midrule\n{title}\n\\midrule\n")
        lines += [latex_line(_cells(line, marks)) for line in block.lines]
    return "".join([NEEDS_BOOKTABS, head, *lines, tail])


FORMATS: Mapping[str, Callable[[FilledTable], str]] = {"markdown": to_markdown, "csv": to_csv, "latex": to_latex}


def marks_of(filled: FilledTable) -> dict[str, str]:
    """A letter for each note of a measured cell, in the order of the notes."""
    texts = dict.fromkeys(
        note for block in filled.blocks for line in block.lines if line.source != PUBLISHED for cell in line.cells
        for note in cell.notes
    )
    letters = itertools.chain(string.ascii_lowercase, map("".join, itertools.product(string.ascii_lowercase, repeat=2)))
    return dict(zip(texts, letters, strict=False))


def marked(cell: Cell, marks: Mapping[str, str]) -> str:
    letters = [marks[note] for note in cell.notes if note in marks]
    return f"{cell.words} [{','.join(letters)}]" if letters else cell.words


def notes_of(filled: FilledTable, marks: Mapping[str, str]) -> list[str]:
    return [*filled.notes, *(f"[{letter}] {note}." for note, letter in marks.items())]


def source_of(line: Line) -> str:
    """`published`, or `measured, 5 seeds`."""
    if line.source == PUBLISHED or not line.seeds:
        return line.source
    return f"measured, {line.seeds} seed{'s' if line.seeds > 1 else ''}"


def _pipe(text: str) -> str:
    """The text with bars and double stars escaped, unless it is set in bold."""
    return text.replace("|", r"\|").replace("**", r"\*\*") if not text.startswith("**") else text


def _cells(line: Line, marks: Mapping[str, str]) -> list[str]:
    return [*line.names, source_of(line), *(marked(cell, marks) for cell in line.cells)]


def _latex_groups(filled: FilledTable, heads: int) -> str:
    words, rules, place = [""] * heads, [], heads + 1
    for group, columns in itertools.groupby(filled.table.columns, key=lambda column: column.group):
        count = len(list(columns))
        words.append(rf"\multicolumn{{{count}}}{{c}}{{{tex(group)}}}")
        rules += [rf"\cmidrule(lr){{{place}-{place + count - 1}}}"] if group else []
        place += count
    return f"{' & '.join(words)} \\\\\n{''.join(rules)}\n"


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
