"""Members of tars from other people: the only place that reads tars, whatever their members are used for.

Our shards are plain USTAR: regular files, one header block each. Python's tarfile also supports links, devices, sparse
files and extension headers, and allocates the memory that their headers declare; none of them belongs in a shard, so
`tar_members` refuses every header that is not of a regular file, and checks a size before it reads. Archives of images
come from any tar program, with long names in extension headers: `file_places` leaves their headers to tarfile, and
reads nothing else.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from vsetune.data.stored.plain_files import Flaw
from vsetune.errors import one_line

_BLOCK = tarfile.BLOCKSIZE
_SKIP_AT_ONCE = 1 << 20
_REGULAR = {tarfile.REGTYPE, tarfile.AREGTYPE}

_OF_TARS = (tarfile.TarError, ValueError, OverflowError, EOFError, KeyError, TypeError, RecursionError, MemoryError)
"""Exceptions that tarfile has been seen to raise on broken files; disk errors are raised by `storage`."""

Limit = Callable[[str], int | None]
"""Most bytes of the member of this name; None: not wanted, skipped."""


def tar_members(stream: BinaryIO, *, limit: Limit) -> Iterator[tuple[str, bytes]]:
    """(name, content) of the members that `limit` wants, in order. Flaw for damage.

    Bytes behind the end mark are read too: some streams verify their content only at their end.
    """
    while True:
        block = stream.read(_BLOCK)
        if len(block) < _BLOCK:
            raise Flaw("cut short: ends without the mark of its end")
        if not block.strip(b"\0"):
            while stream.read(_SKIP_AT_ONCE):
                pass
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


@dataclass(frozen=True)
class FilePlace:
    """A file in an archive: size bytes from offset on."""

    name: str
    offset: int
    size: int


def file_places(stream: BinaryIO) -> Iterator[FilePlace]:
    """The regular files of any plain archive; folders and links are skipped. Flaw for a damaged or compressed archive.

    Reads only headers: a last file that is cut short is not noticed.
    """
    try:
        with tarfile.open(fileobj=stream, mode="r:") as tar:
            for member in tar:
                if not member.isfile():
                    continue
                if member.issparse() or member.size < 0:
                    raise Flaw(f"member {one_line(member.name)} is sparse, or of an impossible size")
                yield FilePlace(member.name, member.offset_data, member.size)
    except _OF_TARS as error:
        raise Flaw(one_line(error)) from error


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
