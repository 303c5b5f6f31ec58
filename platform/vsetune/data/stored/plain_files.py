"""JSON and `.npy` files from other people: strict, bounded, with every error in one line."""

from __future__ import annotations

import codecs
import json
import math
import os
import re
import stat
import struct
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np

from vsetune.data.stored import storage
from vsetune.errors import DataError, Message, one_line

_NO_JSON = Message("VSE-D010", "{where}: not JSON as we write it ({reason}); {fix}")

DEEPEST = 32
"""Limit for the nesting of lists and objects; ours are 5 deep."""


def parse_json(content: bytes | str, *, where: str, fix: str) -> Any:
    """The value. DataError `where: not JSON (...); fix` also for repeated keys, NaN and infinities."""
    try:
        plain = json.loads(content, object_pairs_hook=_without_doubles, parse_constant=_no_number)
    except RecursionError as error:
        raise DataError(_NO_JSON(where=where, reason="nested too deep", fix=fix)) from error
    except ValueError as error:
        raise DataError(_NO_JSON(where=where, reason=one_line(error), fix=fix)) from error
    return plain


def parse_shallow_json(content: bytes | str, *, where: str, fix: str) -> Any:
    """`parse_json`, and DataError for nesting deeper than DEEPEST, or text that is not UTF-8: later readers may
    recurse."""
    plain = parse_json(content, where=where, fix=fix)
    if not is_text(_all_text(plain)):
        raise DataError(_NO_JSON(where=where, reason="half of a surrogate pair in a text", fix=fix))
    level: list[Any] = [plain]
    for _ in range(DEEPEST):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return plain
    raise DataError(_NO_JSON(where=where, reason=f"nested deeper than {DEEPEST}", fix=fix))


def is_text(value: object) -> bool:
    """Whether the value is a string that can be written as UTF-8: JSON may escape half of a surrogate pair."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def utf8_text(content: bytes) -> str:
    """The text of a file, without a byte order mark. Flaw, as `is UTF-16`, for other encodings."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise Flaw("is UTF-16, need UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        found = content[error.start]
        raise Flaw(f"is not UTF-8 (latin-1?): byte {found:#04x} at {error.start:,}") from error


def caption_text(text: str) -> str:
    """A caption without surrounding blanks, and without the byte order marks that files leave in it."""
    return text.replace("\ufeff", "").strip()


def caption_line(text: str) -> str:
    """A `caption_text` as one line: every run of blanks and of what ends lines, U+2028 and U+0085 too, is one space."""
    return " ".join(caption_text(text).split())


def composed(name: str) -> str:
    """A name as names are compared: without blanks around it, in one form of Unicode (NFC). A Mac writes an accent as a
    sign of its own."""
    return unicodedata.normalize("NFC", name.strip())


def _all_text(plain: Any) -> str:
    try:
        return json.dumps(plain, ensure_ascii=False)
    except RecursionError:  # it is nested too deep, which the caller reports
        return ""


def _inside(value: Any) -> list[Any]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [each for each in inner if isinstance(each, (dict, list))]


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        double = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"key {double!r} stands there twice")
    return found


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


HEADER_BYTES = 16 << 10
"""More than the length of any header."""
_MAGIC = b"\x93NUMPY"
_HEADER = re.compile(r"\{((?:'(?:descr|fortran_order|shape)':(?:'[^']*'|True|False|\([0-9L,]*\)),?){3})\}")
_ENTRY = re.compile(r"'(descr|fortran_order|shape)':('[^']*'|True|False|\([0-9L,]*\))")
_PLAIN = re.compile(r"[<>|=]?(?:b1|[iu][1248]|f[248])")
_MOST_AXES = 8
_MOST_ENTRIES = 1 << 48
"""Also for a shape without entries: numpy multiplies the other sides."""


def array_from_bytes(content: bytes) -> np.ndarray:
    """The array in these bytes, read-only, not copied. Flaw when they are not an array."""
    dtype, shape, is_fortran, offset = _header(content[:HEADER_BYTES])
    _require_size(dtype, shape, len(content) - offset)
    flat: np.ndarray = np.frombuffer(content, dtype, count=math.prod(shape), offset=offset)
    return flat.reshape(shape, order="F" if is_fortran else "C")


def mapped_array(path: Path) -> np.ndarray:
    """The array of a regular local file, mapped read-only; an array without entries is not mapped.

    Flaw when the file is not an array; FileNotFoundError, DataError and StorageError when it cannot be opened.
    """
    if not storage.exists(str(path)):
        raise FileNotFoundError(path)
    stream, size = storage.open_sized(str(path))
    with stream:
        dtype, shape, is_fortran, offset = _header(stream.read(HEADER_BYTES))
        _require_size(dtype, shape, size - offset)
        if not math.prod(shape):
            return np.empty(shape, dtype)
        return np.memmap(path, dtype, "r", offset, shape, "F" if is_fortran else "C")


def is_regular(path: Path) -> bool:
    """Whether the path is a regular file, perhaps through links."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def _header(start: bytes) -> tuple[np.dtype, tuple[int, ...], bool, int]:
    """(dtype, shape, Fortran order, offset of the data)."""
    version = tuple(start[6:8])
    if start[:6] != _MAGIC or version not in {(1, 0), (2, 0)}:
        raise Flaw("no .npy array of format 1 or 2")
    size_of_length = 2 if version == (1, 0) else 4
    begin = 8 + size_of_length
    if len(start) < begin:
        raise Flaw("cut short in the header")
    end = begin + struct.unpack("<H" if size_of_length == 2 else "<I", start[8:begin])[0]
    if end > len(start):
        raise Flaw("cut short in the header, or a header that is too long")
    found = _HEADER.fullmatch("".join(start[begin:end].decode("latin-1").split()))
    entries = dict(_ENTRY.findall(found[1])) if found else {}
    if len(entries) != 3 or not entries["shape"].startswith("(") or entries["fortran_order"] not in {"True", "False"}:
        raise Flaw("a header that numpy does not write, or of objects; pickles are refused")
    kind = entries["descr"].strip("'")
    if not _PLAIN.fullmatch(kind):
        raise Flaw(f"entries of type {kind[:20]!r}, need plain numbers; pickles are refused")
    return np.dtype(kind), _shape(entries["shape"]), entries["fortran_order"] == "True", end


def _shape(text: str) -> tuple[int, ...]:
    sides = [side.removesuffix("L") for side in text.strip("()").split(",") if side]
    if len(sides) > _MOST_AXES or not all(side.isdecimal() and len(side) < 16 for side in sides):
        raise Flaw(f"an impossible shape {text[:40]}")
    return tuple(map(int, sides))


def _require_size(dtype: np.dtype, shape: tuple[int, ...], found: int) -> None:
    need = math.prod(shape) * dtype.itemsize
    if need != found or math.prod(max(1, side) for side in shape) > _MOST_ENTRIES:
        raise Flaw(f"its header says {str(shape)[:80]} {dtype}, {need:,} bytes, there are {found:,}")


class Flaw(Exception):
    """A reason without a place. The caller that knows the place makes a DataError of it; none leaves `vsetune.data`."""
