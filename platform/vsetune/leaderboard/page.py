"""The leaderboard as one self-contained HTML page: no request leaves it, everything written by people is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined

from vsetune.leaderboard import charts, wording
from vsetune.leaderboard.column import Column, columns_of
from vsetune.leaderboard.columns import COLUMNS
from vsetune.leaderboard.findings import findings, headline, is_ahead
from vsetune.leaderboard.rows import Leaderboard, Row


@dataclass(frozen=True)
class _Line:
    """A row as the table shows it. is_ahead: supported to get higher than the baseline. is_first: of its data set and
    network."""

    row: Row
    marks: str
    is_ahead: bool
    is_first: bool


def to_html(leaderboard: Leaderboard, columns: Sequence[Column] = COLUMNS) -> str:
    """The whole page as text. Needs no network, works without JavaScript (then without sorting and tooltips)."""
    environment = Environment(
        loader=PackageLoader("vsetune.leaderboard", "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )
    colours, letters = charts.loss_colours(leaderboard), wording.flag_marks(leaderboard)
    lines = [
        _Line(row, wording.marks(row, letters), is_ahead=is_ahead(row), is_first=row is rows[0])
        for _, _, rows in leaderboard.groups() for row in rows
    ]
    return environment.get_template("page.html.j2").render(
        leaderboard=leaderboard, columns=columns_of("page", columns, leaderboard.rows),
        configuration_columns=columns_of("configurations", columns, leaderboard.rows), lines=lines,
        headline=headline(leaderboard), findings=findings(leaderboard), protocol=wording.protocol_line(leaderboard),
        notes=wording.notes(leaderboard), panels=charts.panels(leaderboard), chart=charts,
        legend=[(loss, index % charts.PALETTE, index >= charts.PALETTE) for loss, index in colours.items()],
    )
