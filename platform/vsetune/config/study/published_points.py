"""Hyperparameters from papers, as configurations to begin a search with: one table per file in `published/`.

Columns: network, loss (empty: any), data_set, source, then settings by dotted name; empty where the table gives no
value. None of the values was measured by us. A table is named by its file, `lseh_table2`, or, for the rows of one data
set only, `lseh_table2.coco`.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from vsetune.config.spec.base import known_name

_FOLDER = "published"
_KEYS = ("network", "loss", "data_set", "source")


@dataclass(frozen=True)
class PublishedPoint:
    """settings: by dotted name, as printed. source: paper, table and row."""

    network: str
    loss: str
    data_set: str
    source: str
    settings: Mapping[str, float]


@cache
def tables() -> Mapping[str, tuple[PublishedPoint, ...]]:
    """Every table and its parts by data set, under their names."""
    found: dict[str, tuple[PublishedPoint, ...]] = {}
    for file in sorted(files(__package__).joinpath(_FOLDER).iterdir(), key=lambda each: each.name):
        name, _, kind = file.name.rpartition(".")
        if kind != "csv":
            continue
        found[name] = tuple(map(_point, csv.DictReader(file.read_text(encoding="utf-8").splitlines())))
        for data_set in dict.fromkeys(point.data_set for point in found[name]):
            found[f"{name}.{data_set}"] = tuple(point for point in found[name] if point.data_set == data_set)
    return found


def known_table(name: str) -> str:
    """`name` if there is such a table; otherwise a ValueError that lists all tables."""
    return known_name(name, tables(), "table of published settings")


def _point(row: Mapping[str, str]) -> PublishedPoint:
    settings = {name: float(value) for name, value in row.items() if name not in _KEYS and value}
    return PublishedPoint(row["network"], row["loss"], row["data_set"], row["source"], settings)
