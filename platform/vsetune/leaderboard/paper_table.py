"""Tables of papers that runs of ours can fill, a file each in `paper_tables/`; published values in `published/` there.

A file says what stands where: rows, columns, which of our numbers is the paper's, and which row of the CSV. Nothing in
the CSVs was measured by us. A new table is a new file.
"""

from __future__ import annotations

import csv
import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from vsetune.errors import UsageError

Quantity = Literal[
    "best_m_recall", "epochs_to_best", "epochs_to_target", "difference", "scored", "mean_and_spread", "not_recorded"
]
"""best_m_recall ... difference: of a row of a board, over its seeds, `against` a baseline. scored: of the summaries of
its seeds by `keys`, the mean. mean_and_spread: mean of several of them, and their deviation from it."""

_FOLDER = "paper_tables"


@dataclass(frozen=True)
class PaperColumn:
    """group: above the heading. loss, against: the paper's words, empty where the row says the loss. keys: of a
    summary, without `test_` or `best_`; a `*` at the end stands for one encoder's name. metrics: of the CSV, in the
    order in which they are printed. digits: after the point. scale: of our number to the paper's. reason: why nothing
    is measured."""

    heading: str
    quantity: Quantity
    metrics: tuple[str, ...]
    group: str = ""
    loss: str = ""
    against: str = ""
    direction: str = "both"
    keys: tuple[str, ...] = ()
    digits: int = 1
    scale: float = 1.0
    reason: str = ""


@dataclass(frozen=True)
class PaperTable:
    """split: of the CSV; `val` is our validation split, all others are our test split. heads: the headings of what
    names a row. networks, losses: the paper's word and what it is called here. data: the paper's word and how our names
    of it begin, in small letters and digits alone. rows_of_losses: a row for each of these; empty: one row per network.
    average: the network of the CSV that is a mean over the others; empty without one. variant: of the CSV, of columns
    without `against`. beside_boards: boards of the same losses quote it."""

    name: str
    title: str
    source: str
    published: str
    table: str
    split: str
    heads: tuple[str, ...]
    data: Mapping[str, tuple[str, ...]]
    networks: Mapping[str, str]
    losses: Mapping[str, str]
    columns: tuple[PaperColumn, ...]
    rows_of_losses: tuple[str, ...] = ()
    average: str = ""
    variant: str = ""
    beside_boards: bool = False
    notes: tuple[str, ...] = ()

    @property
    def prefix(self) -> str:
        """Of the keys of a summary that were scored on its split."""
        return "best_" if self.split == "val" else "test_"

    def printed(self, data: str, network: str, loss: str, column: PaperColumn) -> tuple[str, ...] | None:
        """What the paper prints in this cell, digit for digit; None for an empty one. data, network, loss: its words.
        """
        variant = f"vs_{column.against}" if column.against else self.variant
        values = published_values(self.published)
        found = [
            values.get((self.table, data, self.split, network, loss, variant, column.direction, metric))
            for metric in column.metrics
        ]
        known = tuple(value for value in found if value is not None)
        return known if len(known) == len(found) else None


@cache
def table_names() -> tuple[str, ...]:
    return tuple(sorted(
        entry.name.removesuffix(".toml") for entry in (files("vsetune.leaderboard") / _FOLDER).iterdir()
        if entry.name.endswith(".toml")
    ))


@cache
def paper_table(name: str) -> PaperTable:
    """UsageError, with the names that there are, for an unknown one."""
    names = table_names()
    if name not in names:
        near = difflib.get_close_matches(name, names, 1)
        hint = f"did you mean {near[0]}?" if near else f"need one of {', '.join(names)}"
        raise UsageError(f"leaderboard table: got {name}, {hint}")
    plain = tomllib.loads(_text(f"{name}.toml"))
    plain["data"] = _with_tuples(plain["data"])
    columns = tuple(PaperColumn(**_with_tuples(column)) for column in plain.pop("columns"))
    return PaperTable(name=name, columns=columns, **_with_tuples(plain))


@cache
def published_values(file: str) -> Mapping[tuple[str, ...], str]:
    """By (table, data set, split, network, loss, variant, direction, metric), as printed."""
    rows = csv.DictReader(_text(f"published/{file}").splitlines())
    keys = ("table", "dataset", "split", "network", "loss", "variant", "direction", "metric")
    return {tuple(row[key] for key in keys): row["value"] for row in rows}


def plain_name(data: str) -> str:
    """`MS-COCO` as `mscoco`."""
    return re.sub(r"[^a-z0-9]", "", data.lower())


def printed_words(values: tuple[str, ...], column: PaperColumn) -> str:
    """The values of a published cell, with the digits of the paper."""
    shown = [value.replace("-", "−") for value in values]
    match column.quantity:
        case "difference":
            return f"{shown[0]} ({shown[1]}%)"
        case "mean_and_spread":
            return f"{shown[0]} (±{shown[1]})"
    return shown[0]


def _text(path: str) -> str:
    return (files("vsetune.leaderboard") / _FOLDER).joinpath(*path.split("/")).read_text(encoding="utf-8")


def _with_tuples(plain: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in plain.items()}
