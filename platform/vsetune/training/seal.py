"""The last bytes of a checkpoint: the SHA-256 of all before them, so that no change to the file goes unnoticed.

torch finds the end of its archive from behind and passes over them.
"""

from __future__ import annotations

import re
from pathlib import Path

from vsetune.files.hashes import sha256_hex, sha256_of_file

_BEFORE, _AFTER = b"\nvsetune SHA-256 ", b"\n"
_SEAL = re.compile(re.escape(_BEFORE) + rb"([0-9a-f]{64})" + re.escape(_AFTER))
_LENGTH = len(_BEFORE) + 64 + len(_AFTER)


def seal_of(content: bytes | memoryview) -> bytes:
    """What to append to the content."""
    return _BEFORE + sha256_hex(content).encode() + _AFTER


def sealed_state(path: Path) -> bool | None:
    """True: as it was sealed; False: changed since; None: no seal at the end. OSError when it cannot be read."""
    size = path.stat().st_size
    with open(path, "rb") as stream:
        stream.seek(max(0, size - _LENGTH))
        found = _SEAL.fullmatch(stream.read(_LENGTH))
    if found is None:
        return None
    return sha256_of_file(path, first=size - _LENGTH) == found[1].decode()
