"""A table as text that can be put together from some of its rows: the page gives away what it shows, as it shows it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from vsetune.leaderboard.rows import Leaderboard, Row


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


def row_key(row: Row) -> str:
    """Names a row within its board, whatever else comes to stand there."""
    return f"{row.dataset}\t{row.network}\t{row.loss}"


def group_of(key: str) -> str:
    """The comparison of a row by its key."""
    return key.rpartition("\t")[0]


def rows_by_key(leaderboard: Leaderboard) -> dict[str, Row]:
    """In the order of the board."""
    return dict(in_order(leaderboard))


def in_order(leaderboard: Leaderboard) -> Iterable[tuple[str, Row]]:
    return ((row_key(row), row) for _, _, rows in leaderboard.groups() for row in rows)
