"""Boards for other programs: CSV and JSON in full precision, Markdown and LaTeX rounded as on the screen."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from vsetune.board import wording
from vsetune.board.board_notes import flag_marks, marks, notes
from vsetune.board.board_sentences import collapses, findings, headline, protocol_line, to_know
from vsetune.board.columns import COLUMNS, Column, columns_of
from vsetune.board.rows import Boards, Leaderboard, Shown, boards_of
from vsetune.board.table_text import (
    NEEDS_BOOKTABS,
    TableText,
    TableTexts,
    csv_line,
    csv_of,
    latex_frame,
    latex_line,
    markdown_frame,
    markdown_line,
    markdown_words,
    rows_by_key,
    tex,
)


def csv_texts(shown: Shown, columns: Sequence[Column] = COLUMNS) -> TableTexts:
    """One line per cell, the study first; for several boards the board of the row before it. Missing values are empty
    fields; seconds and per cent are not rounded."""
    found = boards_of(shown)
    keys = ["study", *(column.key for column in columns_of("csv", columns, ()))]
    boards = tuple(
        TableText("", "", {
            key: csv_line([
                *([wording.board_id(board)] if found.is_several else []), row.study or board.study,
                *(column.of(row) for column in columns_of("csv", columns, board.rows)),
            ])
            for key, row in rows_by_key(board).items()
        }, "")
        for board in found.boards
    )
    return TableTexts(csv_line(["board", *keys] if found.is_several else keys), "", boards, "")


def markdown_texts(shown: Shown, columns: Sequence[Column] = COLUMNS) -> TableTexts:
    """Tables for issues and wikis one below the other, then the notes."""
    found = boards_of(shown)
    notes = "".join(["\n", *(f"- {markdown_words(note)}.\n" for note in found.notes)]) if found.notes else ""
    return TableTexts("", "\n", tuple(_markdown(board, columns) for board in found.boards), notes)


def latex_texts(shown: Shown, columns: Sequence[Column] = COLUMNS) -> TableTexts:
    """A `table` for the booktabs package for each board, then the notes."""
    found = boards_of(shown)
    notes = "".join(f"\\noindent {tex(note)}.\\par\n" for note in found.notes)
    tail = f"\n{{\\footnotesize\n{notes}}}\n" if notes else ""
    return TableTexts("", "\n", tuple(_latex(board, columns) for board in found.boards), tail)


TEXTS: Mapping[str, Callable[[Shown, Sequence[Column]], TableTexts]] = {
    "csv": csv_texts, "md": markdown_texts, "tex": latex_texts,
}
"""Functions by file extension."""


def to_csv(shown: Shown, columns: Sequence[Column] = COLUMNS) -> str:
    return csv_texts(shown, columns).whole()


def to_markdown(shown: Shown, columns: Sequence[Column] = COLUMNS) -> str:
    return markdown_texts(shown, columns).whole()


def to_latex(shown: Shown, columns: Sequence[Column] = COLUMNS) -> str:
    return latex_texts(shown, columns).whole()


def _markdown(board: Leaderboard, columns: Sequence[Column]) -> TableText:
    shown = columns_of("page", columns, board.rows)
    sides = [":---" if column.kind == "text" else "---:" for column in shown]
    collapsed = "".join(f"**{markdown_words(sentence)}**\n\n" for sentence in collapses(board))
    title = (
        f"{collapsed}**{markdown_words(board.study)}**: losses compared with {markdown_words(board.baseline)}. "
        f"{markdown_words(protocol_line(board))}"
    )
    head, tail = markdown_frame(title, [_heading(column) for column in shown], sides, [
        *findings(board), *(f"To know more: {each}." for each in to_know(board)), *notes(board),
    ])
    return TableText(head, "", _lines(board, shown, markdown_line), tail)


def _latex(board: Leaderboard, columns: Sequence[Column]) -> TableText:
    shown = columns_of("latex", columns, board.rows)
    studies = "study" if len({row.study for row in board.rows}) == 1 else "studies"
    collapsed = "".join(f"\\textbf{{{tex(sentence)}}} " for sentence in collapses(board))
    caption = (
        f"{collapsed}Losses compared with {tex(board.baseline)} in the {studies} {tex(board.study)}. "
        f"{tex(protocol_line(board))}"
    )
    sides = "".join("l" if column.kind == "text" else "r" for column in shown)
    head, tail = latex_frame(caption, sides, latex_line(map(_heading, shown)), [*findings(board), *notes(board)])
    return TableText(NEEDS_BOOKTABS + head, "\\midrule\n", _lines(board, shown, latex_line), tail)


def _lines(board: Leaderboard, columns: Sequence[Column], line: Callable[[list[str]], str]) -> dict[str, str]:
    letters = flag_marks(board)
    return {
        key: line([
            f"{column.words(row)} ({found})" if column.part == "name" and (found := marks(row, letters))
            else column.words(row) for column in columns
        ])
        for key, row in rows_by_key(board).items()
    }


def _heading(column: Column) -> str:
    """The heading in sentence case, except after a unit such as s/epoch."""
    title = column.title
    return title[:1].upper() + title[1:] if title[1:2].isalpha() else title


def curves_to_csv(shown: Shown) -> str:
    """One line per validation of every seed shown. chose: the seed searched; means exclude it if there are others."""
    return csv_of(
        {
            "dataset": row.dataset, "network": row.network, "loss": row.loss, "seed": seed.seed, "trial": seed.trial,
            "chose": seed.chose, "epoch": epoch, "m_recall": recall, "study": row.study,
        }
        for board in boards_of(shown).boards for row in board.rows for seed in row.seeds for epoch, recall in seed.curve
    )


def to_json(shown: Shown) -> str:
    """The board of one study, as `to_plain`. For several: `boards`, each in that format, and `notes`. Strict JSON, see
    `finite_of`."""
    found = boards_of(shown)
    boards = [to_plain(board) for board in found.boards]
    plain = {"boards": boards, **across_to_plain(found)} if found.is_several else boards[0]
    return json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False)


def to_plain(board: Leaderboard) -> dict[str, Any]:
    """The whole board, curves included, with its sentences, as plain data without numbers that are not finite."""
    plain = asdict(board)
    del plain["unfinished"]  # the sentences say it
    for entry, row in zip(plain["rows"], board.rows, strict=True):
        entry["difference_shown"], entry["recalls"] = wording.difference_of(row), row.recalls
    plain |= {"headline": headline(board), "findings": findings(board), "to_know": to_know(board)}
    finite: dict[str, Any] = finite_of(plain | {"notes": notes(board)})
    return finite


def across_to_plain(found: Boards) -> dict[str, Any]:
    """The entries that `to_json` writes beside several boards."""
    return {"notes": list(found.notes)}


def finite_of(plain: Any) -> Any:
    """The same data for strict JSON, with mapping keys as text. Infinite numbers are the texts "Infinity" and
    "-Infinity", which Python's `float`, JavaScript's `Number` and protobuf read as numbers; null is missing."""
    if isinstance(plain, dict):
        return {str(key): finite_of(value) for key, value in plain.items()}
    if isinstance(plain, list | tuple):
        return [finite_of(value) for value in plain]
    if isinstance(plain, float) and math.isinf(plain):
        return "Infinity" if plain > 0 else "-Infinity"
    if isinstance(plain, float) and math.isnan(plain):
        return None
    return plain if isinstance(plain, str | int | float | bool | None) else str(plain)
