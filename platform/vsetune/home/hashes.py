"""SHA-256 of bytes, files, streams and plain data. The values appear in stores and file names: they never change."""

from __future__ import annotations

import hashlib
import io
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

_AT_ONCE = 1 << 20


def sha256_hex(content: bytes | memoryview) -> str:
    """SHA-256 of the content as 64 hex digits."""
    return hashlib.sha256(content).hexdigest()


def sha256_of_pieces(pieces: Iterable[bytes]) -> str:
    """SHA-256 of the pieces one after the other, whatever their borders, as 64 hex digits."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def sha256_of_stream(stream: IO[bytes]) -> str:
    """SHA-256 of the rest of the stream. Raises the errors of its `read`."""
    return sha256_of_pieces(_blocks(stream, sys.maxsize))


def sha256_of_file(path: Path, *, first: int = sys.maxsize) -> str:
    """SHA-256 of the file, or of its first `first` bytes. OSError when it cannot be read."""
    with open(path, "rb") as stream:
        return sha256_of_pieces(_blocks(stream, first))


def fingerprint_of(plain: Mapping[str, Any]) -> str:
    """SHA-256 (first 16 hex digits) of JSON-able data, whatever the order of its keys."""
    return sha256_hex(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode())[:16]


class HashingReader(io.RawIOBase):
    """Passes on what is read from a stream. sha256: of all that has passed."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._digest = hashlib.sha256()

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        content = self._stream.read(size)
        self._digest.update(content)
        return content

    def drain(self) -> None:
        """Read to the end."""
        while self.read(_AT_ONCE):
            pass


class HashingWriter(io.RawIOBase):
    """Passes on what is written to a stream. sha256, written: of all bytes that have passed, and how many."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._digest = hashlib.sha256()
        self.written = 0

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self._stream.write(content)
        self._digest.update(content)
        self.written += len(content)
        return len(content)


def _blocks(stream: IO[bytes], size: int) -> Iterable[bytes]:
    while size > 0 and (block := stream.read(min(size, _AT_ONCE))):
        yield block
        size -= len(block)
