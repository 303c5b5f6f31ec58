"""Source of a trial's batches. It never changes a batch, so it is not part of the identity of a result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ReadingSource = Literal["auto", "bank", "stream"]


@dataclass(frozen=True)
class Reading:
    """source: `stream` reads the shards; `bank` reads the arrays that this node has made of them
    (`data/stored/banks.py`), as long as the disk has room; `auto` reads these arrays if they are small enough for
    memory and disk. bank_bytes: limit for all such arrays on a node together, for `auto`. device_share: share of a
    GPU's memory that they may also take, 0 to 1."""

    source: ReadingSource
    bank_bytes: int = 0
    device_share: float = 0.0


STREAMED = Reading("stream")
"""From the shards, in order: for code that reads a data set once."""
