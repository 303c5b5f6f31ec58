"""Tables of papers that our runs can fill, one file each in `paper_tables/`; published values in `published/` there.

A file defines the rows, the columns, our number for each cell, and the row of the CSV with the paper's number. Nothing
in the CSVs was measured by us. A new table is a new file.
"""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from vsetune.board.rows import Leaderboard, Row
from vsetune.config.spec.base import did_you_mean
from vsetune.errors import UsageError

Quantity = Literal[
    "best_m_recall", "epochs_to_best", "epochs_to_target", "difference", "scored", "mean_and_spread", "not_recorded"
]
"""best_m_recall ... difference: from a row of a board, over its seeds, `against` a baseline. scored: mean over its
seeds of a summary value, by `keys`. mean_and_spread: mean and standard deviation over several keys."""

_FOLDER = "paper_tables"


@dataclass(frozen=True)
class PaperColumn:
    """group: text above the heading. loss, against: the paper's words; loss is empty where the row names the loss, and
    against without a baseline. keys: of a summary, without `test_` or `best_`; a `*` at the end matches the name of one
    encoder. metrics: of the CSV, in printed order. digits: after the decimal point. scale: factor from our number to
    the paper's. reason: why nothing is measured."""

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
    """split: of the CSV; `val` is our validation split, all others are our test split. heads: headings of the columns
    that name a row. networks, losses: our name by the paper's word. data: prefixes of our names by the paper's word, in
    lower-case letters and digits only. rows_of_losses: one row for each of these losses; empty: one row per network.
    average: the network of the CSV that is a mean over the others; empty without one. variant: of the CSV, for columns
    without `against`. beside_boards: boards with the same losses quote the table."""

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
        """Prefix of summary keys that were scored on the split of the table."""
        return "best_" if self.split == "val" else "test_"

    def printed(self, data: str, network: str, loss: str, column: PaperColumn) -> tuple[str, ...] | None:
        """The paper's values in this cell, digit for digit; None for an empty cell. data, network, loss: its words."""
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
        entry.name.removesuffix(".toml") for entry in (files("vsetune.board") / _FOLDER).iterdir()
        if entry.name.endswith(".toml")
    ))


@cache
def paper_table(name: str) -> PaperTable:
    """The table of this name. Raises UsageError for an unknown name, with the known ones."""
    names = table_names()
    if name not in names:
        raise unknown(name, names, "table")
    plain = tomllib.loads(_text(f"{name}.toml"))
    plain["data"] = _with_tuples(plain["data"])
    columns = tuple(PaperColumn(**_with_tuples(column)) for column in plain.pop("columns"))
    return PaperTable(name=name, columns=columns, **_with_tuples(plain))


def unknown(name: str, known: Sequence[str], kind: str) -> UsageError:
    """The error for a name of a table, or for a word of it, that is not known."""
    hint = did_you_mean(name, known)
    return UsageError(
        "VSE-B007", "leaderboard table: no {kind} is called {name}; {hint}need one of {known}", kind=kind, name=name,
        hint=hint, known=", ".join(known),
    )


@cache
def published_values(file: str) -> Mapping[tuple[str, ...], str]:
    """Printed values by (table, data set, split, network, loss, variant, direction, metric)."""
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
    return (files("vsetune.board") / _FOLDER).joinpath(*path.split("/")).read_text(encoding="utf-8")


def _with_tuples(plain: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in plain.items()}


def published_notes(board: Leaderboard) -> list[str]:
    """A line for each table and group that share a cell. A table with all recalls contributes only their means."""
    tables = [table for table in map(paper_table, table_names()) if table.beside_boards]
    return [
        note for dataset, network, rows in board.groups() for table in tables
        for note in _notes(table, dataset, network, rows)
    ]


def _notes(table: PaperTable, dataset: str, network: str, rows: Sequence[Row]) -> list[str]:
    word = next((word for word, begins in table.data.items() if plain_name(dataset).startswith(begins)), None)
    printed_as = next((name for name, ours in table.networks.items() if ours == network), None)
    if word is None or printed_as is None:
        return []
    shown = {row.loss for row in rows}
    quoted = [
        f"{loss or column.loss} {_named(column)} {printed_words(values, column)}"
        for loss in table.rows_of_losses or ("",) for column in table.columns
        if _is_shown(table, column, loss, shown)
        and (values := table.printed(word, printed_as, loss or column.loss, column)) is not None
    ]
    if not quoted:
        return []
    split = {"val": "validation split", "test": "test split"}.get(table.split, table.split)
    where = f"{table.source}, {printed_as} on {word}, {split}"
    return [f"† Published, not measured here ({where}; other features and tuning): {'; '.join(quoted)}."]


def _is_shown(table: PaperTable, column: PaperColumn, loss: str, shown: set[str]) -> bool:
    words = [word for word in (loss or column.loss, column.against) if word]
    is_quoted = column.quantity == "mean_and_spread" if loss else True
    return is_quoted and all(table.losses[word] in shown for word in words)


def _named(column: PaperColumn) -> str:
    """The heading without the name of the loss, which precedes it, and with the name of the loss compared with."""
    if not column.loss:
        return f"{column.group} {column.heading}"
    heading = column.heading.removesuffix(f" {column.loss}")
    return heading if column.against in ("", column.loss) else f"{heading} (against {column.against})"
