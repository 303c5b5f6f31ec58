"""Boards as one self-contained HTML page: it makes no requests, and all user text is escaped.

The markup is made here. The scripts in `templates/` sort, filter and plot the page's own data (`page_data.py`); they
compute nothing. A served page requests the same parts and data again and puts them in place (`to_update`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vsetune.leaderboard import wording
from vsetune.leaderboard.chart_library import packed_library
from vsetune.leaderboard.column import Column, columns_of
from vsetune.leaderboard.columns import COLUMNS, OF_SEVERAL
from vsetune.leaderboard.findings import collapses, findings, headline, is_ahead
from vsetune.leaderboard.many_studies import ManyBoards
from vsetune.leaderboard.page_data import filters_of, page_data
from vsetune.leaderboard.rows import Leaderboard, Row
from vsetune.leaderboard.shown_runs import ShownRuns
from vsetune.leaderboard.table_text import group_of, rows_by_key

Shown = Leaderboard | ManyBoards
"""The board of one study, or the boards of several."""
_SCRIPTS = (
    "page_state.js", "page_table.js", "page_drawing.js", "page_charts.js", "page_runs.js", "page_downloads.js",
    "page_live.js", "page.js",
)


@dataclass(frozen=True)
class Live:
    """Settings of a served page. updates: address of its updates. tag: of the update that it already contains. boards:
    name and address of every board served, this one included; empty for one alone."""

    updates: str
    tag: str
    boards: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class ShownLine:
    """A row as the table shows it. is_ahead: the data support a higher M-Recall than the baseline's. is_first: it is
    the first row of its comparison."""

    row: Row
    key: str
    marks: str
    is_ahead: bool
    is_first: bool


@dataclass(frozen=True)
class ShownBoard:
    """A board as its part of the page shows it. place: index on the page, from 0. id: its name in addresses; empty for
    one alone. level: of the headings of its notes. is_alone: the board has one network on one data set, which the
    headline names, so the table need not. collapses: the sentences of the headline on collapsed baselines."""

    place: int
    id: str
    title: str
    level: int
    baseline: str
    protocol: str
    columns: Sequence[Column]
    lines: Sequence[ShownLine]
    is_alone: bool
    headline: Sequence[str]
    collapses: Sequence[str]
    findings: Sequence[str]
    notes: Sequence[str]


def to_html(
    shown: Shown, columns: Sequence[Column] = COLUMNS, *, runs: ShownRuns | None = None, live: Live | None = None
) -> str:
    """The whole page as text. It needs no network. Without JavaScript it shows tables and sentences, but no charts."""
    boards, parts = boards_of(shown), _parts(shown, columns)
    return _environment().get_template("page.html.j2").render(
        title=wording.page_title(boards), is_several=isinstance(shown, ManyBoards), parts=parts,
        baselines=list(dict.fromkeys(board.baseline for board in boards)), has_runs=runs is not None,
        has_curves=any(row.seeds for board in boards for row in board.rows),
        data=_in_script(page_data(shown, columns, runs)), live=live, scripts=[_text(name) for name in _SCRIPTS],
        library=packed_library(), style=_text("page.css"),
    )


def to_update(shown: Shown, columns: Sequence[Column] = COLUMNS, *, runs: ShownRuns | None = None) -> str:
    """The parts of a page that change with its boards, as JSON: `parts`, markup by name, and `data`. The part `boards`
    contains empty places for the parts that follow it."""
    parts = _parts(shown, columns)
    boards = _macros().shell(_shown_boards(shown, columns), {}, isinstance(shown, ManyBoards))
    return json.dumps({"parts": parts | {"boards": boards}, "data": page_data(shown, columns, runs)}, allow_nan=False)


def _parts(shown: Shown, columns: Sequence[Column]) -> dict[str, Markup]:
    """Markup by the name of its place; a place inside another comes after it."""
    macros, boards = _macros(), _shown_boards(shown, columns)
    is_several = isinstance(shown, ManyBoards)
    inner = {}
    for board in boards:
        inner[f"lead {board.place}"] = macros.lead(board)
        inner[f"table {board.place}"] = macros.table(board, wording.NOTHING)
        inner[f"notes {board.place}"] = macros.notes(board)
    across = {"across": macros.across(boards, shown.studies, shown.notes)} if isinstance(shown, ManyBoards) else {}
    lines = [line for board in boards for line in board.lines]
    every = (*(OF_SEVERAL if is_several else ()), *columns)
    configured = columns_of("configurations", every, [line.row for line in lines])
    return {
        **across, "filters": macros.filters(filters_of(boards_of(shown))),
        "boards": macros.shell(boards, inner, is_several), **inner,
        "configurations": macros.configurations(configured, lines, wording.NOTHING),
    }


def boards_of(shown: Shown) -> Sequence[Leaderboard]:
    """All boards shown; one board alone gives a sequence of one."""
    return shown.boards if isinstance(shown, ManyBoards) else (shown,)


def _shown_boards(shown: Shown, columns: Sequence[Column]) -> list[ShownBoard]:
    is_several = isinstance(shown, ManyBoards)
    return [
        ShownBoard(
            place=place, id=wording.board_id(board) if is_several else "",
            title=wording.board_title(board) if is_several else board.study, level=4 if is_several else 3,
            baseline=board.baseline, protocol=wording.protocol_line(board),
            columns=columns_of("page", columns, board.rows), lines=_lines(board), is_alone=len(board.groups()) == 1,
            headline=headline(board), collapses=collapses(board),
            findings=findings(board), notes=wording.notes(board),
        )
        for place, board in enumerate(boards_of(shown))
    ]


def _lines(board: Leaderboard) -> list[ShownLine]:
    letters, rows = wording.flag_marks(board), rows_by_key(board)
    firsts = {group_of(key): key for key in reversed(rows)}
    return [
        ShownLine(row, key, wording.marks(row, letters), is_ahead=is_ahead(row), is_first=key in firsts.values())
        for key, row in rows.items()
    ]


def _in_script(plain: Mapping[str, Any]) -> str:
    """JSON that is safe inside a script element, whatever user text it contains."""
    text = json.dumps(plain, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("vsetune.leaderboard", "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )


@cache
def _macros() -> Any:
    return _environment().get_template("page_parts.html.j2").module


@cache
def _text(name: str) -> str:
    return (resources.files("vsetune.leaderboard") / "templates" / name).read_text(encoding="utf-8")
