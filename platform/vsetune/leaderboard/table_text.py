"""A table as text in parts, so that the page can export only the rows that it shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from vsetune.leaderboard.rows import Leaderboard, Row


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
