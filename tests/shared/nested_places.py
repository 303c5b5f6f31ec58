"""Places in nested dicts and lists, as fuzz tests change them."""

from __future__ import annotations

from typing import Any


def places(plain: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The keys that lead to every value inside."""
    inner = plain.items() if isinstance(plain, dict) else enumerate(plain) if isinstance(plain, list) else ()
    return [at, *(place for key, value in inner for place in places(value, (*at, key)))]


def put(plain: Any, place: tuple[Any, ...], value: Any, *, remove: bool = False) -> Any:
    """The same with another value at a place, or without it."""
    if not place:
        return value
    inner = plain
    for key in place[:-1]:
        inner = inner[key]
    if remove:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return plain
