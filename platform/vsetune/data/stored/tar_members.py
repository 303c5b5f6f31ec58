"""Members of tars from other people: the only place that reads tars, whatever their members are used for.

Python's `tarfile` reads every kind of header: long names, sparse files, base-256 sizes. Three of its habits would lose
members without a word, so `_headers` watches it: it ends without an error at a damaged header, at blocks of zeros with
more members behind them, and at the end of a file that was cut between two members.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, BinaryIO, cast

from vsetune.data.stored.plain_files import Flaw
from vsetune.errors import one_line
from vsetune.home.addresses import has_controls

_SKIP_AT_ONCE = 1 << 20
_HEADER_BYTES = 1 << 20
"""Limit for what tarfile reads at once, an extension header with long names: it allocates what a header declares."""

_OTHER_FILES = {
    b"\x1f\x8b": "compressed by gzip, need a plain tar; unpack it with `gzip -dc`",
    b"BZh": "compressed by bzip2, need a plain tar; unpack it with `bzip2 -dc`",
    b"\xfd7zXZ\0": "compressed by xz, need a plain tar; unpack it with `xz -dc`",
    b"\x28\xb5\x2f\xfd": "compressed by zstd, need a plain tar; unpack it with `zstd -dc`",
    b"\x04\x22\x4d\x18": "compressed by lz4, need a plain tar; unpack it with `lz4 -dc`",
    b"PK": "a zip archive, need a tar; unpack it and pack its files with `tar --sort=name`",
    b"PAR1": "a Parquet file, need a tar",
    b"version https://git-lfs": "a pointer of git-lfs, need the file itself; get it with `git lfs pull`",
    b"<": "a page of HTML or XML, need a tar; download it again",
}
"""What files that are no tar begin with, and what they are."""

_OF_TARS = (tarfile.TarError, ValueError, OverflowError, EOFError, KeyError, TypeError, RecursionError, MemoryError)
"""Exceptions that tarfile has been seen to raise on broken files; disk errors are raised by `storage`."""

Limit = Callable[[str], int | None]
"""Most bytes of the member of this name; None: not wanted, skipped."""


def tar_members(stream: BinaryIO, *, limit: Limit) -> Iterator[tuple[tarfile.TarInfo, bytes | None]]:
    """(header, content) of every member in order, folders and links too. Flaw for damage.

    The content is None for a member that is no regular file, that `limit` does not want, or that is larger than its
    limit. Bytes that a name cannot be decoded from stand as `\\xff` in it, so that other bytes are another name. Tars
    that were written one behind the other are read like one. The stream is read to its end: some streams verify their
    content only there.
    """
    source = _Source(stream)
    for tar, header in _headers(source):
        if has_controls(header.name):
            raise Flaw(f"the name of member {one_line(header.name)} has a control character; rename it")
        most = limit(header.name) if header.isreg() else None
        wanted = most is not None and header.size <= most
        yield header, source.content(tar, header) if wanted else None


@dataclass(frozen=True)
class FilePlace:
    """A file in an archive: size bytes from offset on."""

    name: str
    offset: int
    size: int


def file_places(stream: BinaryIO) -> Iterator[FilePlace]:
    """The regular files of any plain archive; folders and links are skipped. Flaw for a damaged or compressed archive.

    Reads only headers.
    """
    for _, member in _headers(_Source(stream)):
        if member.issparse():
            raise Flaw(f"member {one_line(member.name)} is sparse; pack it without `tar --sparse`")
        if member.isreg():
            yield FilePlace(member.name, member.offset_data, member.size)


class _Source:
    """A stream, perhaps one that cannot go back, as far as tarfile uses it to read. last: what it has read last."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._at, self._can_seek = stream, 0, stream.seekable()
        self.last = b""

    def tell(self) -> int:
        return self._at

    def seekable(self) -> bool:
        return False

    def seek(self, position: int) -> None:
        ahead = position - self._at
        if ahead < 0:
            raise Flaw(f"a header that leads back from byte {self._at:,} to {position:,}")
        if self._can_seek:
            self._stream.seek(ahead, 1)
            self._at = position
            return
        while ahead > 0 and (passed := len(self._stream.read(min(ahead, _SKIP_AT_ONCE)))):
            self._at += passed
            ahead -= passed

    def read(self, size: int) -> bytes:
        if not 0 <= size <= _HEADER_BYTES:
            raise Flaw(f"an extension header of {size:,} bytes, need at most {_HEADER_BYTES:,}")
        self.last = self._stream.read(size)
        self._at += len(self.last)
        return self.last

    def content(self, tar: tarfile.TarFile, header: tarfile.TarInfo) -> bytes:
        """Of the member whose header was read last."""
        if header.issparse():
            file = cast(IO[bytes], tar.extractfile(header))
            try:
                content = b"".join(iter(lambda: file.read(_SKIP_AT_ONCE), b""))
            except _OF_TARS as error:
                raise Flaw(f"cut short, or damaged, in the sparse member {one_line(header.name)}") from error
        else:
            content = self._stream.read(header.size)
            self._at += len(content)
        if len(content) < header.size:
            raise Flaw(
                f"cut short: member {one_line(header.name)} ends after {len(content):,} of {header.size:,} bytes"
            )
        return content


def _headers(source: _Source) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    try:
        with tarfile.open(
            fileobj=cast(IO[bytes], source), mode="r:", encoding="utf-8", errors="backslashreplace"
        ) as tar:
            has_ended = False
            while True:
                header = tar.next()
                if header is not None:
                    if header.size < 0:
                        raise Flaw(f"member {one_line(header.name)} has {header.size} bytes")
                    has_ended = False
                    yield tar, header
                    tar.members = []  # type: ignore[attr-defined]  # tarfile keeps all headers
                elif source.last.strip(b"\0"):
                    place = "behind its end" if has_ended else "where a member should begin"
                    raise Flaw(f"damaged: no header of a member at byte {tar.offset:,}, {place}")
                elif len(source.last) == tarfile.BLOCKSIZE:
                    has_ended = True
                    tar.offset += tarfile.BLOCKSIZE
                elif has_ended:
                    return
                else:
                    raise Flaw("cut short: ends without the mark of its end")
    except _OF_TARS as error:
        if source.tell() > tarfile.BLOCKSIZE:
            raise Flaw(f"damaged or cut short: {one_line(error)}") from error
        other = (kind for begin, kind in _OTHER_FILES.items() if source.last.startswith(begin))
        raise Flaw(next(other, f"no tar: {one_line(error)}")) from error
