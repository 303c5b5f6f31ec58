from __future__ import annotations

import hashlib
import io
from pathlib import Path

import pytest

from vsetune.home.hashes import (
    HashingReader,
    HashingWriter,
    fingerprint_of,
    sha256_hex,
    sha256_of_file,
    sha256_of_pieces,
)

CONTENT = bytes(range(256)) * 9000
EXPECTED = hashlib.sha256(CONTENT).hexdigest()


def test_every_way_to_the_hash_of_the_same_bytes_gives_the_same(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(CONTENT)
    assert sha256_hex(CONTENT) == sha256_hex(memoryview(CONTENT)) == EXPECTED
    assert sha256_of_pieces([CONTENT[:5], b"", CONTENT[5:]]) == EXPECTED
    assert sha256_of_file(tmp_path / "a") == EXPECTED
    reader, writer = HashingReader(io.BytesIO(CONTENT)), HashingWriter(io.BytesIO())
    assert reader.read(7) == CONTENT[:7]
    reader.drain()
    assert writer.write(CONTENT[:9]) + writer.write(CONTENT[9:]) == writer.written == len(CONTENT)
    assert reader.sha256 == writer.sha256 == EXPECTED


@pytest.mark.parametrize("first", [0, 1, 1 << 20, (1 << 20) + 1, len(CONTENT), len(CONTENT) + 1])
def test_the_hash_of_the_beginning_of_a_file(first: int, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(CONTENT)
    assert sha256_of_file(tmp_path / "a", first=first) == sha256_hex(CONTENT[:first])


def test_a_fingerprint_does_not_depend_on_the_order_of_keys() -> None:
    assert fingerprint_of({"a": 1, "b": {"d": 2, "c": "é"}}) == fingerprint_of({"b": {"c": "é", "d": 2}, "a": 1})
    assert fingerprint_of({"a": 1}) == sha256_hex(b'{"a":1}')[:16]
