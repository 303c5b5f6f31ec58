"""JSON from other people: strict, bounded in depth, with every error in one line."""

from __future__ import annotations

import json
from typing import Any

from vsetune.config.spec.foreign_text import one_line
from vsetune.errors import DataError

DEEPEST = 32
"""Limit for the nesting of lists and objects; ours are 5 deep."""


def parse_json(content: bytes | str, *, where: str, fix: str) -> Any:
    """The value. DataError `where: not JSON (...); fix` also for repeated keys, NaN and infinities."""
    try:
        plain = json.loads(content, object_pairs_hook=_without_doubles, parse_constant=_no_number)
    except RecursionError as error:
        raise DataError(f"{where}: not JSON as we write it (nested too deep); {fix}") from error
    except ValueError as error:
        raise DataError(f"{where}: not JSON ({one_line(error)}); {fix}") from error
    return plain


def parse_shallow_json(content: bytes | str, *, where: str, fix: str) -> Any:
    """`parse_json`, and DataError for nesting deeper than DEEPEST, or text that is not UTF-8: later readers may
    recurse."""
    plain = parse_json(content, where=where, fix=fix)
    if not is_text(_all_text(plain)):
        raise DataError(f"{where}: not JSON as we write it (half of a surrogate pair in a text); {fix}")
    level: list[Any] = [plain]
    for _ in range(DEEPEST):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return plain
    raise DataError(f"{where}: not JSON as we write it (nested deeper than {DEEPEST}); {fix}")


def is_text(value: object) -> bool:
    """Whether the value is a string that can be written as UTF-8: JSON may escape half of a surrogate pair."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


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
