"""Members of a tar that other people wrote, as a stream.

Our shards are plain USTAR: regular files, one header block each. Python's tarfile also knows links, devices, sparse
files and extension headers, and takes the memory their headers ask for; none of them belongs into a shard, so a header
that is not of a regular file is refused here, and a size is looked at before anything is read.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from typing import BinaryIO

from vsetune.data.stored.flaws import Flaw
from vsetune.data.stored.foreign_text import one_line

_BLOCK = tarfile.BLOCKSIZE
_SKIP_AT_ONCE = 1 << 20
_REGULAR = {tarfile.REGTYPE, tarfile.AREGTYPE}

Limit = Callable[[str], int | None]
"""Most bytes of the member of this name; None: not wanted, passed over."""


def tar_members(stream: BinaryIO, *, limit: Limit) -> Iterator[tuple[str, bytes]]:
    """(name, content) of the members that `limit` wants, in order. Flaw for damage."""
    while True:
        block = stream.read(_BLOCK)
        if len(block) < _BLOCK:
            raise Flaw("cut short: ends without the mark of its end")
        if not block.strip(b"\0"):
            return
        name, size = _described(block)
        most = limit(name)
        padding = -size % _BLOCK
        if most is None:
            _skip(stream, size + padding, name)
            continue
        if size > most:
            raise Flaw(f"member {name} has {size:,} bytes, need at most {most:,}")
        content = stream.read(size)
        if len(content) < size:
            raise Flaw(f"cut short: member {name} ends after {len(content):,} of {size:,} bytes")
        _skip(stream, padding, name)
        yield name, content


def _described(block: bytes) -> tuple[str, int]:
    try:
        header = tarfile.TarInfo.frombuf(block, "utf-8", "replace")
    except (tarfile.HeaderError, ValueError, OverflowError) as error:
        raise Flaw(f"damaged member header: {one_line(error)}") from error
    name = one_line(header.name)
    if header.type not in _REGULAR or header.name.endswith("/"):
        raise Flaw(f"member {name} is of type {one_line(header.type)}, need regular files only")
    if not header.name.isprintable() or header.size < 0:
        raise Flaw(f"damaged member header: name {name}, {header.size} bytes")
    return header.name, header.size


def _skip(stream: BinaryIO, size: int, name: str) -> None:
    left = size
    while left > 0:
        passed = len(stream.read(min(left, _SKIP_AT_ONCE)))
        if not passed:
            raise Flaw(f"cut short: member {one_line(name)} ends {left:,} bytes early")
        left -= passed
