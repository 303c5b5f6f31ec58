"""The leaderboard as one self-contained HTML page: no request leaves it, everything written by people is escaped."""

from __future__ import annotations

from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined

from vsetune.leaderboard import charts, wording
from vsetune.leaderboard.rows import Leaderboard, Row
from vsetune.leaderboard.terminal import COLUMNS, TEXT_COLUMNS, cells


@dataclass(frozen=True)
class _Cell:
    """shown: words. sort: what the column sorts by; an empty string stands below every number."""

    shown: str
    sort: str


@dataclass(frozen=True)
class _Line:
    """A row as the table shows it. is_first: the first of its data set and network."""

    row: Row
    cells: list[_Cell]
    marks: str
    is_top: bool
    is_first: bool


def to_html(leaderboard: Leaderboard) -> str:
    """The whole page as text. Needs no network, works without JavaScript (then without sorting and tooltips)."""
    environment = Environment(
        loader=PackageLoader("vsetune.leaderboard", "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )
    colours, letters = charts.loss_colours(leaderboard), wording.flag_marks(leaderboard)
    lines = [
        _Line(row, _cells(row), wording.marks(row, letters), is_top=row is wording.top(rows), is_first=row is rows[0])
        for _, _, rows in leaderboard.groups() for row in rows
    ]
    return environment.get_template("page.html.j2").render(
        leaderboard=leaderboard, columns=COLUMNS, text_columns=TEXT_COLUMNS, lines=lines,
        headline=wording.headline(leaderboard), protocol=wording.protocol_line(leaderboard),
        notes=wording.notes(leaderboard), panels=charts.panels(leaderboard), chart=charts,
        legend=[(loss, index % charts.PALETTE, index >= charts.PALETTE) for loss, index in colours.items()],
        wording=wording,
    )


def _cells(row: Row) -> list[_Cell]:
    target, gap = row.epochs_to_target, row.difference
    numbers = (
        row.best_m_recall, row.epochs_to_best, target.value if target else None, gap.percent if gap else None,
        row.seconds_per_epoch, row.cost.device_seconds, row.trials, len(row.headline),
    )
    words = cells(row)
    texts = [_Cell(word, word) for word in words[:TEXT_COLUMNS]]
    pairs = zip(words[TEXT_COLUMNS:], numbers, strict=True)
    filled = texts + [_Cell(word, "" if number is None else repr(number)) for word, number in pairs]
    filled[COLUMNS.index("trials")] = _Cell(str(row.trials), str(row.trials))  # by status: in the second table
    return filled
