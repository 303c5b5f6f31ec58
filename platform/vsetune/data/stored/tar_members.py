"""Members of tars from other people: the only place that reads tars, whatever their members are used for.

Our shards are plain USTAR: regular files, one header block each. Python's tarfile also supports links, devices, sparse
files and extension headers, and allocates the memory that their headers declare; none of them belongs in a shard, so
`tar_members` refuses every header that is not of a regular file, and checks a size before it reads. Shards of other
software may have folders and extension headers (long names, times with fractions), which `tar_members` passes over if
asked to. Archives of images come from any tar program: `file_places` leaves their headers to tarfile, and reads nothing
else.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from vsetune.data.stored.plain_files import Flaw
from vsetune.errors import one_line

_BLOCK = tarfile.BLOCKSIZE
_SKIP_AT_ONCE = 1 << 20
_REGULAR = {tarfile.REGTYPE, tarfile.AREGTYPE}
_WITH_CONTENT = {
    tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.SOLARIS_XHDTYPE
}
"""Extension headers, whose content follows in blocks of its own."""
_EXTENSION_BYTES = 1 << 20
_PATH = re.compile(rb"(?:^|\n)[0-9]+ path=([^\n]*)\n")

_OF_TARS = (tarfile.TarError, ValueError, OverflowError, EOFError, KeyError, TypeError, RecursionError, MemoryError)
"""Exceptions that tarfile has been seen to raise on broken files; disk errors are raised by `storage`."""

Limit = Callable[[str], int | None]
"""Most bytes of the member of this name; None: not wanted, skipped."""


def tar_members(stream: BinaryIO, *, limit: Limit, extended: bool = False) -> Iterator[tuple[str, bytes]]:
    """(name, content) of the members that `limit` wants, in order. Flaw for damage.

    extended: use the names in extension headers, and pass over folders and links; without it they are damage. Bytes
    behind the end mark are read too: some streams verify their content only at their end.
    """
    long_name: str | None = None
    while True:
        block = stream.read(_BLOCK)
        if len(block) < _BLOCK:
            raise Flaw("cut short: ends without the mark of its end")
        if not block.strip(b"\0"):
            while stream.read(_SKIP_AT_ONCE):
                pass
            return
        header = _header(block)
        if extended and header.type not in _REGULAR:
            long_name = _extension(stream, header) or long_name
            continue
        name, size = _described(header, long_name)
        long_name = None
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


def _header(block: bytes) -> tarfile.TarInfo:
    try:
        return tarfile.TarInfo.frombuf(block, "utf-8", "replace")
    except (tarfile.HeaderError, ValueError, OverflowError) as error:
        raise Flaw(f"damaged member header: {one_line(error)}") from error


def _described(header: tarfile.TarInfo, long_name: str | None) -> tuple[str, int]:
    name = header.name if long_name is None else long_name
    if header.type not in _REGULAR or name.endswith("/"):
        raise Flaw(f"member {one_line(name)} is of type {one_line(header.type)}, need regular files only")
    if not name.isprintable() or header.size < 0:
        raise Flaw(f"damaged member header: name {one_line(name)}, {header.size} bytes")
    return name, header.size


def _extension(stream: BinaryIO, header: tarfile.TarInfo) -> str | None:
    """The name of the next member, if this header is one that gives it. Reads all that belongs to the header."""
    if header.type not in _WITH_CONTENT:
        return None  # a folder, link or device: nothing follows its header
    if not 0 <= header.size <= _EXTENSION_BYTES:
        raise Flaw(f"an extension header of {header.size:,} bytes, need at most {_EXTENSION_BYTES:,}")
    content = stream.read(header.size)
    if len(content) < header.size:
        raise Flaw("cut short in an extension header")
    _skip(stream, -header.size % _BLOCK, header.name)
    if header.type == tarfile.GNUTYPE_LONGNAME:
        return content.rstrip(b"\0").decode("utf-8", "replace")
    if header.type == tarfile.XHDTYPE and (found := _PATH.search(content)):
        return found[1].decode("utf-8", "replace")
    return None


def _skip(stream: BinaryIO, size: int, name: str) -> None:
    left = size
    while left > 0:
        passed = len(stream.read(min(left, _SKIP_AT_ONCE)))
        if not passed:
            raise Flaw(f"cut short: member {one_line(name)} ends {left:,} bytes early")
        left -= passed
