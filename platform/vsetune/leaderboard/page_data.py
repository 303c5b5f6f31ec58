"""Data for the scripts of the page: boards as in JSON, rows by their keys, texts to save, and charts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vsetune.leaderboard import charts, wording
from vsetune.leaderboard.column import Column
from vsetune.leaderboard.export import finite_of, to_plain
from vsetune.leaderboard.findings import is_ahead
from vsetune.leaderboard.many_export import TEXTS, across_to_plain
from vsetune.leaderboard.many_studies import ManyBoards
from vsetune.leaderboard.profile_charts import profile_chart
from vsetune.leaderboard.rows import Leaderboard, Row
from vsetune.leaderboard.shown_runs import ShownRuns
from vsetune.leaderboard.table_text import group_of, in_order, rows_by_key
from vsetune.leaderboard.tuning_table import tuning_table
from vsetune.metrics.best_of_k import ExpectedBest


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
    told = [("higher", is_ahead(row)), ("sooner", row.comparison is not None and row.comparison.epochs == "supported")]
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
