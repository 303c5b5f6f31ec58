"""Declaration of a leaderboard column, and the columns of CSV with the evidence behind displayed numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from vsetune.report import wording
from vsetune.report.rows import Bounds, Comparison, Row

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


def _end(bounds: Bounds | None, index: Literal[0, 1]) -> float | None:
    return None if bounds is None else bounds[index]


def _of_comparison(
    key: str, meaning: str, value: Callable[[Comparison], Value], *, unit: str = "",
    kind: Literal["text", "number"] = "number",
) -> Column:
    return Column(
        key=key, meaning=meaning, unit=unit, kind=kind, views=CSV,
        value=lambda row: None if row.comparison is None else value(row.comparison),
    )


OF_HEIGHT: tuple[Column, ...] = (
    Column(
        key="best_m_recall_low", unit="per cent", views=CSV,
        meaning="Lower end of the 95 % interval of best_m_recall; empty for fewer than two seeds that chose nothing",
        value=lambda row: _end(row.m_recall_bounds, 0),
    ),
    Column(
        key="best_m_recall_high", unit="per cent", views=CSV, meaning="Upper end of that interval",
        value=lambda row: _end(row.m_recall_bounds, 1),
    ),
)
OF_GAIN: tuple[Column, ...] = (
    _of_comparison(
        "m_recall_gain_low", "Lower end of the 95 % interval of m_recall_gain; empty for one seed",
        lambda each: _end(each.m_recall_bounds, 0), unit="points",
    ),
    _of_comparison(
        "m_recall_gain_high", "Upper end of that interval", lambda each: _end(each.m_recall_bounds, 1), unit="points",
    ),
    _of_comparison(
        "m_recall_gain_p", "P-value of m_recall_gain being chance (paired t, Holm over the board)",
        lambda each: each.height_p,
    ),
    _of_comparison(
        "gets_higher", "What the data support of the claim that the loss is higher than the baseline",
        lambda each: each.height, kind="text",
    ),
    _of_comparison(
        "improvement", "Share of the seeds, 0 to 1, in which the loss is higher than the baseline, ties by half",
        lambda each: each.improvement,
    ),
    _of_comparison(
        "improvement_low", "Lower end of the 95 % interval of the probability that a seed is higher",
        lambda each: _end(each.improvement_bounds, 0),
    ),
    _of_comparison(
        "improvement_high", "Upper end of that interval", lambda each: _end(each.improvement_bounds, 1),
    ),
)
OF_EPOCHS: tuple[Column, ...] = (
    Column(
        key="curve_noise", unit="points", views=CSV,
        meaning="Standard deviation of one validation around the smooth course of its curve; empty for short curves",
        value=lambda row: row.noise,
    ),
    Column(
        key="epochs_to_target_low", unit="epochs", views=CSV,
        meaning="Lower end of the 95 % interval of epochs_to_target; empty for fewer than five seeds",
        value=lambda row: _end(row.epochs_bounds, 0),
    ),
    Column(
        key="epochs_to_target_high", unit="epochs", views=CSV,
        meaning="Upper end of that interval; inf where seeds that never got there leave it open",
        value=lambda row: _end(row.epochs_bounds, 1),
    ),
)
OF_SIGNS: tuple[Column, ...] = (
    _of_comparison("seeds_sooner", "Seeds that reach the target faster than the baseline", lambda each: each.sooner),
    _of_comparison("seeds_later", "Seeds that reach it later, or never", lambda each: each.later),
    _of_comparison(
        "epochs_p", "P-value of seeds_sooner against seeds_later being chance (signs, Holm over the board)",
        lambda each: each.epochs_p,
    ),
    _of_comparison(
        "is_sooner", "What the data support of the claim that the loss is faster to the baseline's best",
        lambda each: each.epochs, kind="text",
    ),
)
