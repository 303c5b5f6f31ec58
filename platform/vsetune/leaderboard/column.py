"""What a column of the leaderboard declares, and which of them a view shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from vsetune.leaderboard import wording
from vsetune.leaderboard.rows import Row

Value = str | int | float | None
View = Literal["terminal", "page", "configurations", "csv", "latex"]
"""`page` is the first table of the page, `configurations` its second one."""

EVERYWHERE: frozenset[View] = frozenset({"terminal", "page", "csv", "latex"})
CSV: frozenset[View] = frozenset({"csv"})


@dataclass(frozen=True, kw_only=True)
class Column:
    """One word or number of every row.

    key: its name in CSV. meaning: what it says, without a full stop. value: from a row in full precision, None where
    there is none; the page sorts by it. heading: for people, the key if empty; broken over lines where a table may
    break it. shown: the words for people; without it the value, rounded to `digits` where they are given.
    kind: text stands left, numbers right. unit: of the value. better: where there is a better. part: narrow terminals
    show results, epochs and costs in three tables, the `name` of the row and the marks of its flags in all of them, and
    what is equal in a `comparison` in the title. width: on the page, never broken (`brief`) or given room (`wide`).
    only_if_known: people see the column where some row has a value.
    """

    key: str
    meaning: str
    value: Callable[[Row], Value]
    heading: str = ""
    shown: Callable[[Row], str] | None = None
    digits: int | None = None
    kind: Literal["text", "number"] = "number"
    unit: str = ""
    better: Literal["higher", "lower"] | None = None
    part: Literal["comparison", "name", "result", "epochs", "cost"] = "result"
    width: Literal["", "brief", "wide"] = ""
    views: frozenset[View] = EVERYWHERE
    only_if_known: bool = False

    @property
    def broken_heading(self) -> str:
        """The heading, over several lines where it says so."""
        return self.heading or self.key.replace("_", " ")

    @property
    def title(self) -> str:
        """The heading in one line."""
        return self.broken_heading.replace("-\n", "-").replace("\n", " ")

    @property
    def explanation(self) -> str:
        """The meaning as sentences, with the unit where it does not name it, and the better direction."""
        unit = f", in {self.unit}" if self.unit and self.unit not in self.meaning.lower() else ""
        direction = f" {self.better.capitalize()} is better." if self.better else ""
        return f"{self.meaning}{unit}.{direction}"

    def words(self, row: Row) -> str:
        """What people read in the row."""
        if self.shown is not None:
            return self.shown(row)
        value = self.value(row)
        if value is None:
            return wording.NOTHING
        return str(value) if self.digits is None or isinstance(value, str) else wording.fixed(value, self.digits)

    def sort_key(self, row: Row) -> str:
        """The value as text in full precision; empty where there is none."""
        value = self.value(row)
        if value is None:
            return ""
        return value if isinstance(value, str) else repr(value)


def columns_of(view: View, columns: Sequence[Column], rows: Sequence[Row]) -> list[Column]:
    """Those that the view shows of these rows, in order. CSV has always the same."""
    return [
        column for column in columns
        if view in column.views
        and (view == "csv" or not column.only_if_known or any(column.value(row) is not None for row in rows))
    ]
