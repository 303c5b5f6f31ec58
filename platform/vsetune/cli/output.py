"""Output: results to stdout, everything else to stderr; values as in study files, tables for any width, bars."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Column, Table
from rich.text import Text

from vsetune.config.spec.base import Choices, Domain
from vsetune.config.study.cells import Cell
from vsetune.errors import Message, Problem
from vsetune.home.addresses import masked

BAD_VALUE = Message("VSE-X002", "{option}: got {got}, need {need}.")

if TYPE_CHECKING:
    from vsetune.data.progress import ProgressSink
    from vsetune.training.validation import Report


results = Console(markup=False, emoji=False, highlight=False)
stderr = Console(stderr=True, markup=False, emoji=False, highlight=False)
_ENDLESS = re.compile(r"(\S{300})\S{200,}(\S{100})")


def inform(text: str) -> None:
    """Prints one line on stderr as it is: not wrapped, not coloured, with its brackets; only secrets become `***`."""
    stderr.print(masked(text), soft_wrap=True)


def complain(kind: str, problem: str, *, to: Console = stderr) -> None:
    """Prints a problem in one line, with the code of its message: `error VSE-C012: text`.

    kind: `error`, `failed` or `warning`. A very long word is shortened to its ends.
    """
    line = _ENDLESS.sub(r"\1...\2", " ".join(masked(coded(problem)).split()))
    colour = "yellow" if kind == "warning" else "red"
    to.print(Text.assemble((kind, colour), " ", line), soft_wrap=True)


def coded(problem: str) -> str:
    """The problem with its code in front: `VSE-C012: text`; unchanged if it has none."""
    code = as_problem(problem).code
    return f"{code}: {problem}" if code else problem


def as_problem(text: str) -> Problem:
    """The text itself if it is a problem, else a problem without a code."""
    return text if isinstance(text, Problem) else Problem(text)


def counted(number: int, one: str, several: str) -> str:
    """`1 study`, `2 studies`."""
    return f"{number} {one if number == 1 else several}"


@contextmanager
def interruptible(advice: str) -> Iterator[None]:
    """Ctrl-C ends the command with exit code 130 and prints how to continue."""
    try:
        yield
    except BaseException as error:
        if not is_interrupt(error):
            raise
        inform(f"interrupted; {advice}")
        raise typer.Exit(130) from None


def is_interrupt(error: BaseException) -> bool:
    """Whether it is Ctrl-C, or Python's RuntimeError of a class in whose making it fell, as while Ray is imported."""
    return isinstance(error, KeyboardInterrupt) or isinstance(error.__cause__, KeyboardInterrupt)


def print_json(plain: Any) -> None:
    """Machine-readable results, one JSON document on stdout."""
    print_plainly(json.dumps(plain, indent=2, ensure_ascii=False))


def print_plainly(text: str) -> None:
    """A long text on stdout as it is; rich would measure every word of it."""
    results.file.write(f"{text}\n")
    results.file.flush()


def domain_text(domain: Domain) -> str:
    """`[0.05, 0.4]`, `[200, 20000] log`, `{a, b}`."""
    if isinstance(domain, Choices):
        return "{" + ", ".join(value_text(choice) for choice in domain.choices) + "}"
    return f"[{domain.low:g}, {domain.high:g}]" + (" log" if domain.log else "")


def searched_text(cell: Cell) -> str:
    """The searched settings of a cell: `loss.margin [0.05, 0.4], loss.sharpness [4, 64] log if loss.decay linear`."""
    found = []
    for name, domain in cell.domains.items():
        ways = [" and ".join(f"{other} {value_text(value)}" for other, value in way.items())
                for way in cell.conditions.get(name, [])]
        found.append(f"{name} {domain_text(domain)}" + (f" if {' or '.join(ways)}" if ways else ""))
    return ", ".join(found) or "nothing (fixed)"


def value_text(value: Any) -> str:
    """A value as a study file writes it."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(value_text, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {value_text(each)}' for key, each in value.items())}}}"
    return f"{value:g}" if isinstance(value, float) else str(value)


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


@contextmanager
def scoring(names: Sequence[str]) -> Iterator[list[Report | None]]:
    """One report for each network: bars that appear with its first scored block; fast networks never show any."""
    from vsetune.data.terminal_progress import terminal_progress

    with terminal_progress(stderr) as progress:
        yield [_bar(progress, name) for name in names]


def recall_table(title: str, rows: Sequence[tuple[str, dict[str, float]]], *, of: str) -> Table:
    """Recalls in per cent; a row called `ensemble` stands out. of: header of the names."""
    keys = [*(f"{way}_r{k}" for way in ("i2t", "t2i") for k in (1, 5, 10)), "m_recall"]
    headers = [*(f"{way}\nR@{k}" for way in ("I2T", "T2I") for k in (1, 5, 10)), "M-Recall"]
    made = Table(
        Column(of, overflow="fold"), *(Column(header, justify="right", no_wrap=True) for header in headers),
        title=title, title_justify="left",
    )
    for name, numbers in rows:
        style = "bold" if name == "ensemble" else ""
        made.add_row(name, *(f"{numbers[key]:.1f}" for key in keys), style=style)
    return made


def _bar(progress: ProgressSink, name: str) -> Report:
    last = 0

    def report(done: int, total: int) -> None:
        nonlocal last
        if last == 0:
            progress.stage(f"{name}, pairs", total)
        progress.advance(done - last)
        last = done

    return report
