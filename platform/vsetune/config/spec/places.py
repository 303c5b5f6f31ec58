"""Where a key belongs that stands at the wrong place of a file, derived from the specs."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vsetune.config.spec.base import Spec

Place = tuple[str, ...]
"""Keys from the top of a file down to a key; `[]` is any item of a list: ("losses", "[]", "fixed", "margin")."""

_ITEM = "[]"


def places_in(spec: type[Spec]) -> dict[str, list[Place]]:
    """Every key that a file of this spec may have, with all places it may stand at."""
    found: dict[str, list[Place]] = {}
    for place in _walk(spec, ()):
        found.setdefault(place[-1], []).append(place)
    return found


def specs_in(annotation: Any) -> list[type[Spec]]:
    """The specs that a field of this type can hold."""
    if isinstance(annotation, type) and issubclass(annotation, Spec):
        return [annotation]
    return [spec for part in getattr(annotation, "__args__", ()) for spec in specs_in(part)]


def advice(location: Sequence[int | str], places: Mapping[str, Sequence[Place]]) -> str:
    """What to do with the unknown key at the end of this path: the place it belongs at, or the closest known key."""
    level, key = _level(location), str(location[-1])
    siblings = [name for name, of_name in places.items() if any(place[:-1] == level for place in of_name)]
    close = difflib.get_close_matches(key, sorted(siblings), n=1, cutoff=0.8 if key in places else 0.6)
    if key in places:
        elsewhere = _written(_nearest(level, places[key]), location)
        if close and close[0] != key:
            return f"unknown key here; did you mean {close[0]}, or {elsewhere}?"
        return f"unknown key here; it belongs at {elsewhere}"
    if close:
        return f"unknown key; did you mean {close[0]}?"
    close = difflib.get_close_matches(key, sorted(places), n=1)
    if close:
        return f"unknown key; did you mean {_written(_nearest(level, places[close[0]]), location)}?"
    return "unknown key; remove it"


def _walk(spec: type[Spec], above: Place) -> Iterator[Place]:
    within = spec.keys_within()
    for name, field in spec.model_fields.items():
        place = (*above, name)
        yield place
        yield from ((*place, key) for key in within.get(name, ()))
        inside = specs_in(field.annotation)
        below = (*place, _ITEM) if "list[" in str(field.annotation) else place
        for part in inside:
            yield from _walk(part, below)


def _level(location: Sequence[int | str]) -> Place:
    return tuple(_ITEM if isinstance(part, int) else part for part in location[:-1])


def _nearest(level: Place, places: Sequence[Place]) -> Place:
    return min(places, key=lambda place: (-_shared(level, place), len(place)))


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _written(place: Place, location: Sequence[int | str]) -> str:
    """`losses[0].fixed.margin`: with the numbers of the items that the path at fault goes through."""
    shared, text = _shared(_level(location), place), ""
    for number, part in enumerate(place):
        if part == _ITEM:
            text += f"[{location[number]}]" if number < shared else _ITEM
        else:
            text += f".{part}" if text else part
    return text
