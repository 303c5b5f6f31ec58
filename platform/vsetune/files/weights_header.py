"""Whether a safetensors file is whole, from its header: its length in 8 bytes, JSON with the place of each tensor.

The library says so too, of a local file that it maps; here a stream is enough, which may come from a bucket.
"""

from __future__ import annotations

import json
from typing import BinaryIO

_LONGEST_HEADER = 100_000_000
"""As the library has it."""


def safetensors_flaw(stream: BinaryIO, size: int) -> str | None:
    """What is wrong with a file of so many bytes, in a few words; None where it is whole. Reads its header alone."""
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
