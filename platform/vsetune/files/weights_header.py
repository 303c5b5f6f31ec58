"""Whether a safetensors file is whole, from its header: its length in 8 bytes, JSON with the place of each tensor.

The library can check this too, but only for a local file that it maps; here a stream is enough, also from a bucket.
"""

from __future__ import annotations

import json
from typing import BinaryIO

_LONGEST_HEADER = 100_000_000
"""The limit of the safetensors library."""


def safetensors_flaw(stream: BinaryIO, size: int) -> str | None:
    """What is wrong with a file of `size` bytes, in a few words; None if it is whole. Reads the header only."""
    length = int.from_bytes(stream.read(8), "little")
    if size < 8 or length > size - 8:
        return f"cut short at {size:,} bytes"
    if length > _LONGEST_HEADER:
        return "no header of weights"
    try:
        header = json.loads(stream.read(length))
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        wanted = 8 + length + max(ends, default=0)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return "its header cannot be read"
    return None if size == wanted else f"{size:,} bytes, its header says {wanted:,}"
