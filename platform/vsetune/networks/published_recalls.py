"""Recalls that papers print for a network: `published.csv` in its folder; none of them was measured by us.

i2t is image to text. loss: one of our names, or `published` where the source quotes a result of the network's own
paper. Rows of lmh use the network's own learning rate and margin; rows with LMH2 in their source use those of LSEH,
with which some networks fail to train. Features, text towers and tuning are those of the paper, so only differences
within a source are comparable.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib.resources import files

from vsetune.config.component_specs import NetworkSpec
from vsetune.config.registry import name_of

_FILE = "published.csv"


@dataclass(frozen=True)
class PublishedRecalls:
    """One row of a table, per cent. split: `test`, `validation`, or the MS-COCO protocol `1K` or `5K`. source: paper
    and table."""

    network: str
    dataset: str
    split: str
    loss: str
    source: str
    i2t_r1: float
    i2t_r5: float
    i2t_r10: float
    t2i_r1: float
    t2i_r5: float
    t2i_r10: float


def published_recalls(spec: type[NetworkSpec]) -> list[PublishedRecalls]:
    """The rows of a network, in the order of the file; empty if the papers at hand print none."""
    file = files(spec.__module__.rpartition(".")[0]) / _FILE
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    network = name_of(spec)
    found = []
    for row in csv.DictReader(text.splitlines()):
        if row["network"] == network:
            words = {name: row[name] for name in ("network", "dataset", "split", "loss", "source")}
            recalls = {name: float(value) for name, value in row.items() if name not in words}
            found.append(PublishedRecalls(**words, **recalls))  # type: ignore[arg-type]
    return found
