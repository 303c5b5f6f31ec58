"""The leaderboard as one self-contained HTML page: no request leaves it, everything written by people is escaped.

The markup is made here. The scripts in `templates/` sort, filter and draw what they find in the page's own data; they
compute nothing. A served page asks for the same parts and data again and puts them in place (`to_update`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from vsetune.leaderboard import charts, wording
from vsetune.leaderboard.chart_library import packed_library
from vsetune.leaderboard.column import Column, columns_of
from vsetune.leaderboard.columns import COLUMNS
from vsetune.leaderboard.export import csv_text, finite_of, latex_text, markdown_text, to_plain
from vsetune.leaderboard.findings import findings, headline, is_ahead
from vsetune.leaderboard.rows import Leaderboard, Row
from vsetune.leaderboard.shown_runs import ShownRuns
from vsetune.leaderboard.table_text import group_of, row_key, rows_by_key
from vsetune.leaderboard.tuning_charts import profile_chart, tuning_charts

PARTS = ("lead", "filters", "table", "notes", "configurations")
"""Blocks of the template that an update brings anew."""
_SCRIPTS = (
    "page_state.js", "page_table.js", "page_drawing.js", "page_charts.js", "page_runs.js", "page_downloads.js",
    "page_live.js", "page.js",
)


@dataclass(frozen=True)
class Live:
    """Of a served page. updates: where its parts and data are asked for again. tag: of the update that it is as new as.
    boards: name and address of every board served, this one included; empty for one alone."""

    updates: str
    tag: str
    boards: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class _Line:
    """A row as the table shows it. is_ahead: supported to get higher than the baseline. is_first: of its comparison."""

    row: Row
    key: str
    marks: str
    is_ahead: bool
    is_first: bool


def to_html(
    leaderboard: Leaderboard, columns: Sequence[Column] = COLUMNS, *, runs: ShownRuns | None = None,
    live: Live | None = None, more_notes: Sequence[str] = (),
) -> str:
    """The whole page as text. Needs no network; without JavaScript it has its tables and sentences, no charts.

    more_notes: on what stands side by side here, and what does not.
    """
    return _template().render(
        _context(leaderboard, columns, runs, more_notes), data=_in_script(_data(leaderboard, columns, runs)), live=live,
        scripts=[_text(name) for name in _SCRIPTS], library=packed_library(), style=_text("page.css"),
    )


def to_update(
    leaderboard: Leaderboard, columns: Sequence[Column] = COLUMNS, *, runs: ShownRuns | None = None,
    more_notes: Sequence[str] = (),
) -> str:
    """What of a page changes with its board, as JSON: `parts`, markup by name, and `data`."""
    template = _template()
    context = template.new_context(_context(leaderboard, columns, runs, more_notes) | {"live": None})
    parts = {name: "".join(template.blocks[name](context)) for name in PARTS}
    return json.dumps({"parts": parts, "data": _data(leaderboard, columns, runs)}, allow_nan=False)


def tags_of(row: Row) -> list[str]:
    """Words to filter by: what the data support of a row, and what to know before quoting it."""
    told = [("higher", is_ahead(row)), ("sooner", row.comparison is not None and row.comparison.epochs == "supported")]
    return [name for name, holds in told if holds] + [flag.replace("_", " ") for flag in row.flags]


def _context(
    leaderboard: Leaderboard, columns: Sequence[Column], runs: ShownRuns | None, more_notes: Sequence[str]
) -> dict[str, Any]:
    letters = wording.flag_marks(leaderboard)
    firsts = {group_of(key): key for key in reversed(rows_by_key(leaderboard))}
    lines = [
        _Line(row, key, wording.marks(row, letters), is_ahead=is_ahead(row), is_first=key in firsts.values())
        for key, row in rows_by_key(leaderboard).items()
    ]
    return {
        "leaderboard": leaderboard, "lines": lines, "headline": headline(leaderboard),
        "columns": columns_of("page", columns, leaderboard.rows),
        "configuration_columns": columns_of("configurations", columns, leaderboard.rows),
        "findings": findings(leaderboard), "protocol": wording.protocol_line(leaderboard),
        "notes": [*more_notes, *wording.notes(leaderboard)], "filters": _filters(leaderboard),
        "has_runs": runs is not None, "has_curves": any(row.seeds for row in leaderboard.rows),
        "nothing": wording.NOTHING,
    }


def _filters(leaderboard: Leaderboard) -> list[dict[str, Any]]:
    """What rows can be chosen by: of each, its values with the colour of a loss."""
    rows, colours = leaderboard.rows, charts.loss_colours(leaderboard)
    values: dict[str, list[str]] = {
        "data": [row.dataset for row in rows], "network": [row.network for row in rows],
        "loss": [loss for loss in colours if any(row.loss == loss for row in rows)],
        "tag": [tag for row in rows for tag in tags_of(row)],
    }
    return [
        {
            "name": name, "values": [
                {"name": value, "colour": colours[value] % charts.PALETTE, "dashed": colours[value] >= charts.PALETTE}
                if name == "loss" else {"name": value} for value in dict.fromkeys(of_name)
            ],
        }
        for name, of_name in values.items() if len(set(of_name)) > (0 if name == "tag" else 1)
    ]


def _data(leaderboard: Leaderboard, columns: Sequence[Column], runs: ShownRuns | None) -> dict[str, Any]:
    """All that the scripts read: what `to_json` gives, in which rows stand by their keys, texts and charts."""
    colours = charts.loss_colours(leaderboard)
    texts = {"csv": csv_text, "md": markdown_text, "tex": latex_text}
    plain = {
        "board": to_plain(leaderboard), "keys": [row_key(row) for row in leaderboard.rows],
        "rows": {
            key: {
                "data": row.dataset, "network": row.network, "loss": row.loss, "tag": tags_of(row),
                "group": group_of(key), "colour": colours[row.loss],
            }
            for key, row in rows_by_key(leaderboard).items()
        },
        "texts": {
            kind: {"head": text.head, "before_group": text.before_group, "lines": text.lines, "tail": text.tail}
            for kind, text in ((kind, of_kind(leaderboard, columns)) for kind, of_kind in texts.items())
        },
        "palette": charts.PALETTE,
        "charts": {
            "curves": charts.curve_charts(leaderboard), "heights": charts.height_chart(leaderboard),
            "negatives": charts.negatives_charts(leaderboard, runs.measured if runs else {}),
            "seconds": charts.seconds_chart(leaderboard), "tuning": tuning_charts(leaderboard),
            "profiles": profile_chart(leaderboard),
        },
        "runs": None if runs is None else runs.to_plain(leaderboard),
    }
    finite: dict[str, Any] = finite_of(plain)
    return finite


def _in_script(plain: dict[str, Any]) -> str:
    """JSON that may stand inside a script element, whatever people wrote."""
    text = json.dumps(plain, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("vsetune.leaderboard", "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2")


@cache
def _text(name: str) -> str:
    return (resources.files("vsetune.leaderboard") / "templates" / name).read_text(encoding="utf-8")
