"""The leaderboard for other programs: CSV, Markdown, LaTeX, JSON. CSV and JSON keep full precision."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from vsetune.report import wording
from vsetune.report.column import Column, columns_of
from vsetune.report.columns import COLUMNS
from vsetune.report.findings import collapses, findings, headline
from vsetune.report.rows import Leaderboard, Row


def to_csv(leaderboard: Leaderboard, columns: Sequence[Column] = COLUMNS) -> str:
    """One line per cell, the study first. Missing values are empty fields; seconds and per cent are not rounded."""
    return csv_text(leaderboard, columns).whole()


def csv_text(leaderboard: Leaderboard, columns: Sequence[Column] = COLUMNS, *, board_id: str = "") -> TableText:
    """`to_csv` in parts. board_id: of one of several boards, the first field of its rows; their common header is
    `csv_head`."""
    shown = columns_of("csv", columns, leaderboard.rows)
    first = [board_id] if board_id else []
    lines = {
        key: _csv_line([*first, row.study or leaderboard.study, *(column.value(row) for column in shown)])
        for key, row in rows_by_key(leaderboard).items()
    }
    return TableText("" if board_id else csv_head(columns, has_board=False), "", lines, "")


def csv_head(columns: Sequence[Column], *, has_board: bool) -> str:
    first = ["board", "study"] if has_board else ["study"]
    return _csv_line([*first, *(column.key for column in columns_of("csv", columns, ()))])


def curves_to_csv(leaderboard: Leaderboard) -> str:
    """One line per validation of every seed shown. chose: the seed searched; means exclude it if there are others."""
    return _csv([
        {
            "dataset": row.dataset, "network": row.network, "loss": row.loss, "seed": seed.seed, "trial": seed.trial,
            "chose": seed.chose, "epoch": epoch, "m_recall": recall, "study": row.study,
        }
        for row in leaderboard.rows for seed in row.seeds for epoch, recall in seed.curve
    ])


def to_json(leaderboard: Leaderboard) -> str:
    """The whole leaderboard, curves included, with the notes and the words for `Difference`. Valid JSON: no NaN."""
    return json.dumps(to_plain(leaderboard), indent=2, ensure_ascii=False, allow_nan=False)


def to_plain(leaderboard: Leaderboard) -> dict[str, Any]:
    """The content of `to_json` as plain data."""
    plain = asdict(leaderboard)
    for entry, row in zip(plain["rows"], leaderboard.rows, strict=True):
        entry["difference_shown"] = wording.difference(row.difference)
    plain["headline"] = headline(leaderboard)
    plain["findings"] = findings(leaderboard)
    plain["notes"] = wording.notes(leaderboard)
    finite: dict[str, Any] = finite_of(plain)
    return finite


def to_markdown(leaderboard: Leaderboard, columns: Sequence[Column] = COLUMNS) -> str:
    """A table for issues and wikis, rounded as on the screen, with notes below."""
    return markdown_text(leaderboard, columns).whole()


def markdown_text(leaderboard: Leaderboard, columns: Sequence[Column] = COLUMNS) -> TableText:
    """`to_markdown` in parts."""
    shown = columns_of("page", columns, leaderboard.rows)
    sides = " | ".join(":---" if column.kind == "text" else "---:" for column in shown)
    notes = [*findings(leaderboard), *wording.notes(leaderboard)]
    fallen = "".join(f"**{markdown_words(sentence)}**\n\n" for sentence in collapses(leaderboard))
    study, baseline = markdown_words(leaderboard.study), markdown_words(leaderboard.baseline)
    return TableText(
        f"{fallen}**{study}**: losses compared with {baseline}. "
        f"{markdown_words(wording.protocol_line(leaderboard))}\n\n"
        f"| {' | '.join(markdown_words(_heading(column)) for column in shown)} |\n| {sides} |\n", "",
        _lines(leaderboard, shown, lambda words: f"| {' | '.join(map(markdown_words, words))} |\n"),
        "".join(["\n", *(f"- {markdown_words(note)}\n" for note in notes)]) if notes else "",
    )


def to_latex(leaderboard: Leaderboard, columns: Sequence[Column] = COLUMNS) -> str:
    """A `table` for the booktabs package, rounded as on the screen, with notes below."""
    return latex_text(leaderboard, columns).whole()


def latex_text(leaderboard: Leaderboard, columns: Sequence[Column] = COLUMNS) -> TableText:
    """`to_latex` in parts."""
    shown = columns_of("latex", columns, leaderboard.rows)
    studies = "study" if len({row.study for row in leaderboard.rows}) == 1 else "studies"
    sides = "".join("l" if column.kind == "text" else "r" for column in shown)
    head = [
        r"% needs \usepackage{booktabs}", r"\begin{table}", r"\centering",
        rf"\caption{{{''.join(rf'{_bold_tex(sentence)} ' for sentence in collapses(leaderboard))}"
        rf"Losses compared with {tex(leaderboard.baseline)} in the {studies} {tex(leaderboard.study)}. "
        rf"{tex(wording.protocol_line(leaderboard))}}}",
        rf"\begin{{tabular}}{{{sides}}}", r"\toprule", " & ".join(tex(_heading(column)) for column in shown) + r" \\",
    ]
    tail = [r"\bottomrule", r"\end{tabular}"]
    tail += [rf"\par\footnotesize {tex(note)}" for note in [*findings(leaderboard), *wording.notes(leaderboard)]]
    lines = _lines(leaderboard, shown, lambda words: " & ".join(map(tex, words)) + " \\\\\n")
    return TableText("\n".join([*head, ""]), "\\midrule\n", lines, "\n".join([*tail, r"\end{table}", ""]))


def _bold_tex(text: str) -> str:
    return rf"\textbf{{{tex(text)}}}"


def _lines(
    leaderboard: Leaderboard, columns: Sequence[Column], line: Callable[[list[str]], str]
) -> dict[str, str]:
    letters = wording.flag_marks(leaderboard)
    return {
        key: line([_words(column, row, letters) for column in columns])
        for key, row in rows_by_key(leaderboard).items()
    }


def _words(column: Column, row: Row, letters: Mapping[str, str]) -> str:
    marked = column.part == "name" and row.flags
    return column.words(row) + (f" ({wording.marks(row, letters)})" if marked else "")


def _heading(column: Column) -> str:
    """The heading in sentence case, except after a unit such as s/epoch."""
    title = column.title
    return title[:1].upper() + title[1:] if title[1:2].isalpha() else title


def _csv_line(fields: Sequence[Any]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(fields)
    return buffer.getvalue()


def _csv(lines: Iterable[dict[str, Any]]) -> str:
    rows = list(lines)
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


_ESCAPED = {character: f"\\{character}" for character in "\\`*_[]<>|#~"}


def markdown_words(text: str) -> str:
    """The text with Markdown's special characters escaped."""
    return "".join(_ESCAPED.get(character, character) for character in text).replace("\n", " ")


def finite_of(plain: Any) -> Any:
    """The same data with non-finite numbers as null and mapping keys as text."""
    if isinstance(plain, dict):
        return {str(key): finite_of(value) for key, value in plain.items()}
    if isinstance(plain, list | tuple):
        return [finite_of(value) for value in plain]
    if isinstance(plain, float) and not math.isfinite(plain):
        return None
    return plain if isinstance(plain, str | int | float | bool | None) else str(plain)


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


def row_key(row: Row, number: int) -> str:
    """Key of a row, which does not depend on the other rows of its page. number: of its board among several of one data
    set."""
    return "\t".join([row.dataset, row.network, row.loss, *([str(number)] if number > 1 else [])])


def group_of(key: str) -> str:
    """The comparison of a row, from the key of the row."""
    dataset, network, _, *number = key.split("\t")
    return "\t".join([dataset, network, *number])


def rows_by_key(leaderboard: Leaderboard) -> dict[str, Row]:
    """Rows by their keys, in the order of the board."""
    return dict(in_order(leaderboard))


def in_order(leaderboard: Leaderboard) -> Iterable[tuple[str, Row]]:
    return ((row_key(row, leaderboard.number), row) for _, _, rows in leaderboard.groups() for row in rows)


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
