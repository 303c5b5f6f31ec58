"""Boards as one self-contained HTML page: it makes no requests, and all user text is escaped."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from markupsafe import Markup

from vsetune.board import board_notes, charts, vega, wording
from vsetune.board import board_sentences as sentences
from vsetune.board.board_sentences import is_ahead, to_know
from vsetune.board.columns import COLUMNS, OF_SEVERAL, Column, columns_of
from vsetune.board.export import TEXTS, across_to_plain, finite_of, to_plain
from vsetune.board.page_templates import environment, render
from vsetune.board.rows import Boards, Leaderboard, Row, Shown, boards_of
from vsetune.board.shown_runs import ShownRuns
from vsetune.board.table_text import group_of, row_key, rows_by_key


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
    to_know: Sequence[str]
    notes: Sequence[str]


def to_html(
    shown: Shown, columns: Sequence[Column] = COLUMNS, *, runs: ShownRuns | None = None, live: Live | None = None
) -> str:
    """The whole page as text. It needs no network. Without JavaScript it shows tables and sentences, but no charts."""
    found = boards_of(shown)
    return render(
        "page.html.j2", title=wording.page_title(found.boards), is_several=found.is_several,
        parts=_parts(found, columns), baselines=list(dict.fromkeys(board.baseline for board in found.boards)),
        has_runs=runs is not None, has_curves=any(row.seeds for board in found.boards for row in board.rows),
        data=_in_script(page_data(found, columns, runs)), live=live, library=vega.chart_library(),
    )


def to_update(shown: Shown, columns: Sequence[Column] = COLUMNS, *, runs: ShownRuns | None = None) -> str:
    """The parts of a page that change with its boards, as JSON: `parts`, markup by name, and `data`. The parts
    `boards` and `behind` contain empty places for the parts that follow it."""
    found = boards_of(shown)
    macros, boards = _macros(), _shown_boards(found, columns)
    empty = {name: getattr(macros, macro)(boards, {}, found.is_several)
             for name, macro in (("boards", "shell"), ("behind", "behind"))}
    update = {"parts": _parts(found, columns) | empty, "data": page_data(found, columns, runs)}
    return json.dumps(update, allow_nan=False)


def _parts(found: Boards, columns: Sequence[Column]) -> dict[str, Markup]:
    """Markup by the name of its place; a place inside another comes after it."""
    macros, boards = _macros(), _shown_boards(found, columns)
    inner = {}
    for board in boards:
        inner[f"lead {board.place}"] = macros.lead(board)
        inner[f"table {board.place}"] = macros.table(board, wording.NOTHING)
        inner[f"notes {board.place}"] = macros.notes(board)
    across = {"across": macros.across(boards, found.studies, found.notes)} if found.is_several else {}
    lines = [line for board in boards for line in board.lines]
    every = (*(OF_SEVERAL if found.is_several else ()), *columns)
    configured = columns_of("configurations", every, [line.row for line in lines])
    return {
        **across, "filters": macros.filters(filters_of(found.boards)),
        "boards": macros.shell(boards, inner, found.is_several),
        "behind": macros.behind(boards, inner, found.is_several), **inner,
        "configurations": macros.configurations(configured, lines, wording.NOTHING),
    }


def _shown_boards(found: Boards, columns: Sequence[Column]) -> list[ShownBoard]:
    several = found.is_several
    return [
        ShownBoard(
            place=place, id=wording.board_id(board) if several else "",
            title=wording.board_title(board) if several else board.study, level=4 if several else 3,
            baseline=board.baseline, protocol=sentences.protocol_line(board),
            columns=columns_of("page", columns, board.rows), lines=_lines(board), is_alone=len(board.groups()) == 1,
            headline=sentences.headline(board), collapses=sentences.collapses(board),
            findings=sentences.findings(board), to_know=to_know(board), notes=board_notes.notes(board),
        )
        for place, board in enumerate(found.boards)
    ]


def _lines(board: Leaderboard) -> list[ShownLine]:
    letters, rows = board_notes.flag_marks(board), rows_by_key(board)
    firsts = {group_of(key): key for key in reversed(rows)}
    return [
        ShownLine(row, key, board_notes.marks(row, letters), is_ahead=is_ahead(row), is_first=key in firsts.values())
        for key, row in rows.items()
    ]


def _in_script(plain: Mapping[str, Any]) -> str:
    """JSON that is safe inside a script element, whatever user text it contains."""
    text = json.dumps(plain, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _macros() -> Any:
    return environment().get_template("page_parts.html.j2").module


def page_data(found: Boards, columns: Sequence[Column], runs: ShownRuns | None) -> dict[str, Any]:
    """`boards`: each as `to_plain` gives it, with the keys of its rows. `across`: the entries beside several boards in
    JSON, None for one alone. The scripts name the other entries."""
    boards, colours = found.boards, charts.loss_colours(*found.boards)
    plain = {
        "title": wording.page_title(boards),
        "boards": [
            {"board": to_plain(board), "keys": [row_key(row, board.number) for row in board.rows]} for board in boards
        ],
        "across": across_to_plain(found) if found.is_several else None,
        "rows": {
            key: {
                "data": row.dataset, "network": row.network, "loss": row.loss, "study": row.study, "tag": tags_of(row),
                "group": group_of(key), "board": place, "place": wording.board_title(board, row.dataset),
                "colour": colours[row.loss],
            }
            for place, board in enumerate(boards) for key, row in rows_by_key(board).items()
        },
        "texts": {kind: asdict(texts(found, columns)) for kind, texts in TEXTS.items()},
        "looks": {"palette": vega.PALETTE, "dashes": vega.DASHES, "shapes": vega.SHAPES, "theme": vega.theme()},
        "charts": _charts(found, runs), "runs": None if runs is None else runs.to_plain(boards),
    }
    finite: dict[str, Any] = finite_of(plain)
    return finite


def tags_of(row: Row) -> list[str]:
    """Words to filter by: the supported claims on a row, and its flags."""
    is_faster = row.comparison is not None and row.comparison.epochs_answer == "supported"
    claims = [name for name, holds in (("higher", is_ahead(row)), ("faster", is_faster)) if holds]
    return claims + [flag.replace("_", " ") for flag in row.flags]


def filters_of(boards: Sequence[Leaderboard]) -> list[dict[str, Any]]:
    """The filters of the rows, each with its values; losses with their colour and dashes."""
    rows, colours = [row for board in boards for row in board.rows], charts.loss_colours(*boards)
    run = {row.loss for row in rows}
    values: dict[str, list[str]] = {
        "data": [row.dataset for row in rows], "network": [row.network for row in rows],
        "loss": [loss for loss in colours if loss in run],
        "study": [row.study for row in rows], "tag": [tag for row in rows for tag in tags_of(row)],
    }
    return [
        {
            "name": name, "values": [
                {"name": value, **(_look(colours[value]) if name == "loss" else {})} for value in dict.fromkeys(of_name)
            ],
        }
        for name, of_name in values.items() if len(set(of_name)) > (0 if name == "tag" else 1)
    ]


def _look(index: int) -> dict[str, Any]:
    """Look of a loss: the number of its colour, and its dashes in SVG notation, empty for a solid line."""
    turn = vega.turn_of(index)
    return {"colour": index % vega.PALETTE, "dashes": " ".join(map(str, vega.DASHES[turn])) if turn else ""}


def _charts(found: Boards, runs: ShownRuns | None) -> dict[str, Any]:
    """The charts of all boards, in order."""
    boards, measured = found.boards, runs.measured if runs else {}
    heights = [charts.height_chart(board) for board in boards]
    tuning = [charts.tuning_charts(board) for board in boards]
    return {
        "curves": [chart for board in boards for chart in charts.curve_charts(board)],
        "heights": {
            "axes": {axis: title for chart in heights for axis, title in chart["axes"].items()},
            "points": [point for chart in heights for point in chart["points"]],
            "front": [key for chart in heights for key in chart["front"]],
        },
        "negatives": [chart for board in boards for chart in charts.negatives_charts(board, measured)],
        "seconds": [bar for board in boards for bar in charts.seconds_chart(board)],
        "tuning": {
            "notes": list(dict.fromkeys(note for chart in tuning for note in chart["notes"])),
            "series": [line for chart in tuning for line in chart["series"]],
        },
    }
