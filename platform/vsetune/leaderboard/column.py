"""Declaration of a leaderboard column, and the columns that a view shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from vsetune.leaderboard import wording
from vsetune.leaderboard.rows import Row

Value = str | int | float | None
View = Literal["terminal", "page", "configurations", "csv", "latex"]
"""`page` is the first table of the page, `configurations` the second."""

EVERYWHERE: frozenset[View] = frozenset({"terminal", "page", "csv", "latex"})
CSV: frozenset[View] = frozenset({"csv"})


@dataclass(frozen=True, kw_only=True)
class Column:
    """One word or number of every row.

    key: its name in CSV. meaning: a description, without a full stop. value: from a row in full precision, None where
    there is none; the page sorts by it. heading: the displayed heading, the key if empty; line breaks mark where a
    table may break it. shown: the displayed text; without it the value, rounded to `digits` where they are given.
    kind: text is aligned left, numbers right. unit: of the value. better: the better direction, if there is one. part:
    narrow terminals show results, epochs and costs in three tables. The `name` of the row and the marks of its flags
    appear in all three, the values shared by a `comparison` in the title. width: on the page, never broken (`brief`) or
    given room (`wide`). only_if_known: the column is displayed only if some row has a value; CSV always has it.
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
        """The heading with its line breaks."""
        return self.heading or self.key.replace("_", " ")

    @property
    def title(self) -> str:
        """The heading in one line."""
        return self.broken_heading.replace("-\n", "-").replace("\n", " ")

    @property
    def explanation(self) -> str:
        """The meaning as sentences, with the unit unless the meaning names it, and the better direction."""
        unit = f", in {self.unit}" if self.unit and self.unit not in self.meaning.lower() else ""
        direction = f" {self.better.capitalize()} is better." if self.better else ""
        return f"{self.meaning}{unit}.{direction}"

    def words(self, row: Row) -> str:
        """The displayed text of the row."""
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
    """The columns that the view shows for these rows, in order. CSV always has the same columns."""
    return [
        column for column in columns
        if view in column.views
        and (view == "csv" or not column.only_if_known or any(column.value(row) is not None for row in rows))
    ]
