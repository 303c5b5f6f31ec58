"""Where the batches of a trial are read from. It never changes a batch, so it is no part of what a result is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ReadingSource = Literal["auto", "bank", "stream"]


@dataclass(frozen=True)
class Reading:
    """source: `stream` reads the shards; `bank` the arrays that this node has made of them (`data/stored/banks.py`),
    as long as the disk has room; `auto` these arrays where they are small enough for memory and disk. bank_bytes: of
    all such arrays on a node together, for `auto`. device_share: of a GPU's memory that they may take too, 0 to 1.
    """

    source: ReadingSource
    bank_bytes: int = 0
    device_share: float = 0.0


STREAMED = Reading("stream")
"""From the shards, in order: for whoever looks at a data set once."""
