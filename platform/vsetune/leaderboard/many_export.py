"""Boards of several studies for other programs: each as `export.py` writes it, with the notes and profiles over all.

The same functions take the board of one study and then give the same as `export.py`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from vsetune.leaderboard import wording
from vsetune.leaderboard.column import Column
from vsetune.leaderboard.columns import COLUMNS
from vsetune.leaderboard.export import (
    csv_head,
    csv_text,
    curves_to_csv,
    latex_text,
    markdown_text,
    markdown_words,
    to_json,
    to_plain,
)
from vsetune.leaderboard.latex_words import tex
from vsetune.leaderboard.many_studies import ManyBoards
from vsetune.leaderboard.rows import Leaderboard
from vsetune.leaderboard.table_text import TableText, TableTexts
from vsetune.leaderboard.time_profile import TimeProfile
from vsetune.leaderboard.tuning_table import WordTable, profile_table

Shown = Leaderboard | ManyBoards


def csv_texts(shown: Shown, columns: Sequence[Column] = COLUMNS) -> TableTexts:
    """One table; for several boards the first field is the board of the row."""
    if isinstance(shown, Leaderboard):
        return _alone(csv_text(shown, columns))
    boards = tuple(csv_text(board, columns, board_id=wording.board_id(board)) for board in shown.boards)
    return TableTexts(csv_head(columns, has_board=True), "", boards, "")


def markdown_texts(shown: Shown, columns: Sequence[Column] = COLUMNS) -> TableTexts:
    """Tables one below the other, then the profiles over all boards and the notes."""
    if isinstance(shown, Leaderboard):
        return _alone(markdown_text(shown, columns))
    boards = tuple(markdown_text(board, columns) for board in shown.boards)
    tables = "".join(f"\n{_markdown_table(table)}" for table in _profiles(shown))
    notes = "".join(["\n", *(f"- {markdown_words(note)}.\n" for note in shown.notes)]) if shown.notes else ""
    return TableTexts("", "\n", boards, tables + notes)


def latex_texts(shown: Shown, columns: Sequence[Column] = COLUMNS) -> TableTexts:
    """A `table` for each board and for each profile over all boards, then the notes."""
    if isinstance(shown, Leaderboard):
        return _alone(latex_text(shown, columns))
    boards = tuple(latex_text(board, columns) for board in shown.boards)
    tables = "".join(f"\n{_latex_table(table)}" for table in _profiles(shown))
    notes = "".join([
        "\n{\\footnotesize\n", *(f"\\noindent {tex(note)}.\\par\n" for note in shown.notes), "}\n",
    ]) if shown.notes else ""
    return TableTexts("", "\n", boards, tables + notes)


TEXTS: Mapping[str, Callable[[Shown, Sequence[Column]], TableTexts]] = {
    "csv": csv_texts, "md": markdown_texts, "tex": latex_texts,
}
"""Functions by file extension."""


def curves_of_boards(boards: Sequence[Leaderboard]) -> str:
    """One line per validation of every seed shown on any board, as `curves_to_csv` of each, with one header."""
    tables = [curves_to_csv(board).splitlines(keepends=True) for board in boards]
    heads = [lines[0] for lines in tables if len(lines) > 1]
    return "".join([*heads[:1], *(line for lines in tables for line in lines[1:])])


def shown_to_json(shown: Shown) -> str:
    """`to_json` of one study. For several: `boards`, each in that format, `notes`, and over all data sets `profile` by
    epochs and `seconds_profile` by seconds."""
    if isinstance(shown, Leaderboard):
        return to_json(shown)
    plain = {"boards": [to_plain(board) for board in shown.boards], **across_to_plain(shown)}
    return json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False)


def across_to_plain(found: ManyBoards) -> dict[str, Any]:
    """The entries that `shown_to_json` writes beside the boards."""
    return {
        "notes": list(found.notes), "profile": _profile_to_plain(found.profile),
        "seconds_profile": _profile_to_plain(found.seconds_profile),
    }


def _profile_to_plain(profile: TimeProfile | None) -> dict[str, Any] | None:
    if profile is None:
        return None
    plain = asdict(profile)
    for loss in plain["losses"]:
        loss["factors"] = [factor if math.isfinite(factor) else None for factor in loss["factors"]]
    return plain


def _alone(text: TableText) -> TableTexts:
    return TableTexts("", "", (text,), "")


def _profiles(found: ManyBoards) -> list[WordTable]:
    tables = (profile_table(each, found.boards[0].baseline) for each in (found.profile, found.seconds_profile))
    return [table for table in tables if table is not None]


def _markdown_table(table: WordTable) -> str:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(map(markdown_words, cells))} |\n"

    sides = f"| {' | '.join([':---', *['---:'] * (len(table.headings) - 1)])} |\n"
    notes = "".join(f"- {markdown_words(note)}\n" for note in table.notes)
    rows = "".join(map(line, table.rows))
    return f"**{markdown_words(table.title)}**\n\n{line(table.headings)}{sides}{rows}\n{notes}"


def _latex_table(table: WordTable) -> str:
    def line(cells: Sequence[str]) -> str:
        return " & ".join(map(tex, cells)) + r" \\"

    return "\n".join([
        r"\begin{table}", r"\centering", rf"\caption{{{tex(table.title)}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(table.headings) - 1)}}}", r"\toprule", line(table.headings), r"\midrule",
        *map(line, table.rows), r"\bottomrule", r"\end{tabular}",
        *(rf"\par\footnotesize {tex(note)}" for note in table.notes), r"\end{table}", "",
    ])
