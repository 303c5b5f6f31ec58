"""Tables as text: Markdown, LaTeX for booktabs, CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vsetune.board.rows import Leaderboard, Row


@dataclass(frozen=True)
class TableText:
    """lines: of every row, by `row_key`. before_group: text before the rows of every comparison. The parts follow each
    other without separators."""

    head: str
    before_group: str
    lines: Mapping[str, str]
    tail: str

    def whole(self) -> str:
        """The table with all rows in order. A new comparison begins where data set or network changes."""
        parts, group = [self.head], None
        for key, line in self.lines.items():
            if group_of(key) != group:
                group = group_of(key)
                parts.append(self.before_group)
            parts.append(line)
        return "".join([*parts, self.tail])


@dataclass(frozen=True)
class TableTexts:
    """The tables of a page's boards, with the text before, between and after them. The page leaves out a board without
    rows."""

    head: str
    between: str
    boards: tuple[TableText, ...]
    tail: str

    def whole(self) -> str:
        return self.head + self.between.join(board.whole() for board in self.boards) + self.tail


def row_key(row: Row, number: int) -> str:
    """Key of a row, which does not depend on the other rows of its page. number: of its board among several of one data
    set."""
    return "\t".join([row.dataset, row.network, row.loss, *([str(number)] if number > 1 else [])])


def group_of(key: str) -> str:
    """The comparison of a row, from the key of the row."""
    dataset, network, _, *number = key.split("\t")
    return "\t".join([dataset, network, *number])


def rows_by_key(board: Leaderboard) -> dict[str, Row]:
    """Rows by their keys, one comparison after the other."""
    return {row_key(row, board.number): row for _, _, rows in board.groups() for row in rows}


def csv_line(fields: Sequence[Any]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(fields)
    return buffer.getvalue()


def csv_of(lines: Iterable[Mapping[str, Any]]) -> str:
    """A header from the keys of the first line, and the lines."""
    rows = list(lines)
    return "".join([csv_line(list(rows[0]) if rows else []), *(csv_line(list(row.values())) for row in rows)])


_ESCAPED = {character: f"\\{character}" for character in "\\`*_[]<>|#~"}


def markdown_words(text: str) -> str:
    """The text with Markdown's special characters escaped."""
    return "".join(_ESCAPED.get(character, character) for character in text).replace("\n", " ")


def markdown_line(cells: Iterable[str], escape: Callable[[str], str] = markdown_words) -> str:
    return f"| {' | '.join(map(escape, cells))} |\n"


def markdown_frame(
    title: str, heads: Sequence[str], sides: Sequence[str], notes: Sequence[str],
    escape: Callable[[str], str] = markdown_words,
) -> tuple[str, str]:
    """Text before and after the lines of a table. title: in Markdown. sides: `:---` left, `---:` right."""
    head = f"{title}\n\n{markdown_line(heads, escape)}{markdown_line(sides, str)}"
    return head, "".join(["\n", *(f"- {escape(note)}\n" for note in notes)]) if notes else ""


NEEDS_BOOKTABS = "% needs \\usepackage{booktabs}\n"
_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$", "±": r"$\pm$", "−": "$-$",
    "–": "--", "∞": r"$\infty$",
}
_HYPHEN_BEFORE_ANOTHER = re.compile("-(?=-)")
"""LaTeX sets two hyphens as a dash, so that a command with --options could not be copied from the typeset text."""


def tex(text: str) -> str:
    """The text with LaTeX's special characters escaped and the signs of our tables as LaTeX commands."""
    parts = _HYPHEN_BEFORE_ANOTHER.split(text)
    return "-{}".join("".join(_LATEX.get(character, character) for character in part) for part in parts)


def latex_line(cells: Iterable[str]) -> str:
    return " & ".join(map(tex, cells)) + " \\\\\n"


def latex_frame(caption: str, sides: str, head: str, notes: Sequence[str]) -> tuple[str, str]:
    r"""Text before and after the lines of a `table`. caption, head: in LaTeX; the head ends its line."""
    before = f"\\begin{{table}}\n\\centering\n\\caption{{{caption}}}\n\\begin{{tabular}}{{{sides}}}\n\\toprule\n{head}"
    after = ["\\bottomrule\n\\end{tabular}\n", *(f"\\par\\footnotesize {tex(note)}\n" for note in notes)]
    return before, "".join([*after, "\\end{table}\n"])
