"""A table as text that can be put together from some of its rows: the page gives away what it shows, as it shows it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from vsetune.leaderboard.rows import Leaderboard, Row


@dataclass(frozen=True)
class TableTexts:
    """Of a page's boards, with what stands before, between and after them. A board without any row is left out."""

    head: str
    between: str
    boards: tuple[TableText, ...]
    tail: str

    def whole(self) -> str:
        return self.head + self.between.join(board.whole() for board in self.boards) + self.tail


@dataclass(frozen=True)
class TableText:
    """lines: of every row, by `row_key`. before_group: stands before the rows of every comparison. Each of them ends
    where the next begins."""

    head: str
    before_group: str
    lines: Mapping[str, str]
    tail: str

    def whole(self) -> str:
        """With all its rows, which stand in order; a comparison begins where data set or network change."""
        parts, group = [self.head], None
        for key, line in self.lines.items():
            if group_of(key) != group:
                group = group_of(key)
                parts.append(self.before_group)
            parts.append(line)
        return "".join([*parts, self.tail])


def row_key(row: Row, number: int) -> str:
    """Names a row, whatever else comes to stand on its page. number: of its board, of several of one data set."""
    return "\t".join([row.dataset, row.network, row.loss, *([str(number)] if number > 1 else [])])


def group_of(key: str) -> str:
    """The comparison of a row by its key."""
    dataset, network, _, *number = key.split("\t")
    return "\t".join([dataset, network, *number])


def rows_by_key(leaderboard: Leaderboard) -> dict[str, Row]:
    """In the order of the board."""
    return dict(in_order(leaderboard))


def in_order(leaderboard: Leaderboard) -> Iterable[tuple[str, Row]]:
    return ((row_key(row, leaderboard.number), row) for _, _, rows in leaderboard.groups() for row in rows)
