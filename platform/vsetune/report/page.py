"""Boards as one self-contained HTML page: it makes no requests, and all user text is escaped."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vsetune.metrics.best_of_k import ExpectedBest
from vsetune.report import charts, wording
from vsetune.report.column import Column, columns_of
from vsetune.report.columns import COLUMNS, OF_SEVERAL
from vsetune.report.export import finite_of, group_of, in_order, rows_by_key, to_plain
from vsetune.report.findings import collapses, findings, headline, is_ahead
from vsetune.report.many_studies import TEXTS, ManyBoards, across_to_plain
from vsetune.report.profile_charts import packed_library, profile_chart
from vsetune.report.rows import Leaderboard, Row
from vsetune.report.shown_runs import ShownRuns
from vsetune.report.terminal import tuning_table

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
        loader=PackageLoader("vsetune.report", "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )


@cache
def _macros() -> Any:
    return _environment().get_template("page_parts.html.j2").module


@cache
def _text(name: str) -> str:
    return (resources.files("vsetune.report") / "templates" / name).read_text(encoding="utf-8")


def page_data(shown: Leaderboard | ManyBoards, columns: Sequence[Column], runs: ShownRuns | None) -> dict[str, Any]:
    """`boards`: each as `to_plain` gives it, with the keys of its rows. `across`: the entries beside several boards in
    JSON, None for one alone. The scripts name the other entries."""
    boards = shown.boards if isinstance(shown, ManyBoards) else (shown,)
    colours = charts.loss_colours(*boards)
    plain = {
        "title": wording.page_title(boards),
        "boards": [{"board": to_plain(board), "keys": [key for _, key in _in_row_order(board)]} for board in boards],
        "across": across_to_plain(shown) if isinstance(shown, ManyBoards) else None,
        "rows": {
            key: {
                "data": row.dataset, "network": row.network, "loss": row.loss, "study": row.study, "tag": tags_of(row),
                "group": group_of(key), "board": place, "place": wording.board_title(board, row.dataset),
                "colour": colours[row.loss],
            }
            for place, board in enumerate(boards) for key, row in rows_by_key(board).items()
        },
        "texts": {
            kind: {
                "head": texts.head, "between": texts.between, "tail": texts.tail, "boards": [
                    {"head": text.head, "before_group": text.before_group, "lines": text.lines, "tail": text.tail}
                    for text in texts.boards
                ],
            }
            for kind, texts in ((kind, of_kind(shown, columns)) for kind, of_kind in TEXTS.items())
        },
        "looks": {"palette": charts.PALETTE, "dashes": charts.DASHES, "shapes": charts.SHAPES},
        "charts": _charts(shown, boards, runs),
        "runs": None if runs is None else runs.to_plain(boards),
    }
    finite: dict[str, Any] = finite_of(plain)
    return finite


def tags_of(row: Row) -> list[str]:
    """Words to filter by: the supported claims on a row, and its flags."""
    told = [("higher", is_ahead(row)), ("faster", row.comparison is not None and row.comparison.epochs == "supported")]
    return [name for name, holds in told if holds] + [flag.replace("_", " ") for flag in row.flags]


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
    turn = charts.turn_of(index)
    return {"colour": index % charts.PALETTE, "dashes": " ".join(map(str, charts.DASHES[turn])) if turn else ""}


def _in_row_order(board: Leaderboard) -> list[tuple[Row, str]]:
    keys = {id(row): key for key, row in rows_by_key(board).items()}
    return [(row, keys[id(row)]) for row in board.rows]


def _charts(
    shown: Leaderboard | ManyBoards, boards: Sequence[Leaderboard], runs: ShownRuns | None
) -> dict[str, Any]:
    """The charts of all boards, in order."""
    measured = runs.measured if runs else {}
    heights = [charts.height_chart(board) for board in boards]
    tuning = [tuning_charts(board) for board in boards]
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
        "profiles": _profiles(shown, boards),
    }


def _profiles(shown: Leaderboard | ManyBoards, boards: Sequence[Leaderboard]) -> dict[str, Any]:
    """Profile charts over all data sets, and over the networks of each board with several."""
    is_several = isinstance(shown, ManyBoards)
    told = [("all data sets", boards[0].baseline, profile) for profile in (shown.profile, shown.seconds_profile)]
    of_boards = [
        (wording.board_title(board), board.baseline, profile)
        for board in boards for profile in (board.profile, board.seconds_profile)
    ]
    found = [
        chart | {"where": where if is_several else ""}
        for where, baseline, profile in (*told, *(of_boards if is_several else ()))
        if (chart := profile_chart(profile, baseline)) is not None
    ]
    notes = [
        note if len(found) == 1 or not note.startswith("Not in it") else f"{_name(chart)}: {note}"
        for chart in found for note in chart["notes"]
    ]
    return {"notes": list(dict.fromkeys(notes)), "charts": found}


def _name(chart: dict[str, Any]) -> str:
    return f"{chart['where'] or 'profile'} by {chart['unit']}"


def tuning_charts(leaderboard: Leaderboard) -> dict[str, Any]:
    """Expected best M-Recall of every search after fewer trials and fewer epochs."""
    table = tuning_table(leaderboard)
    if table is None:
        return {"notes": [], "series": []}
    shown = [
        (key, row) for key, row in in_order(leaderboard)
        if row.tuning is not None and row.tuning.trials > 1 and row.not_comparable is None
    ]
    rest = [f"{row.network} {row.loss}" for row in leaderboard.rows if row.tuning is None]
    why = "no search of several configurations for M-Recall"
    return {
        "notes": [*table.notes, *([f"Not in it, {why}: {', '.join(rest)}."] if rest else [])],
        "series": [_searched(key, row) for key, row in shown],
    }


def _searched(key: str, row: Row) -> dict[str, Any]:
    tuning = row.tuning
    assert tuning is not None
    return {
        "key": key, "trials": _points(row, tuning.after_trials, "trials", 0),
        "epochs": _points(row, tuning.after_epochs, "epochs", 1),
    }


def _points(row: Row, curve: Sequence[ExpectedBest], unit: str, digits: int) -> list[dict[str, Any]]:
    return [
        {
            "epoch": each.at, "mean": each.mean, "low": each.low, "high": each.high,
            "words": f"{row.loss}: {wording.fixed(each.mean, 1)} ({wording.fixed(each.low, 1)}–"
                     f"{wording.fixed(each.high, 1)}) after {wording.fixed(each.at, digits)} {unit}",
        }
        for each in curve
    ]
