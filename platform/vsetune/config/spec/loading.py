"""Plain data to specs. Every problem of a file is reported at once, one line each."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from vsetune.config.spec.base import Spec, shortened, unusable_text
from vsetune.config.spec.yaml_files import dump_yaml, read_yaml
from vsetune.errors import ConfigError, Message, Problem
from vsetune.home.addresses import masked

__all__ = ["describe_problems", "dump_yaml", "load_spec", "parse_spec", "read_yaml"]

SpecT = TypeVar("SpecT", bound=Spec)

Place = tuple[str, ...]
"""Keys from the top of a file down to a key; `[]` is any item of a list: ("losses", "[]", "fixed", "margin")."""

Places = Mapping[str, Sequence[Place]]
"""Every known key, with all its possible places."""

_ITEM = "[]"
_TAGS = {"Word", "Mapping", "Default", "Range", "Choices"}
_SCALARS = {"bool", "int", "float", "str"}
_GENERATED = ("dict[", "literal[", "list[", "function-", "constrained-")


def load_spec(path: Path, spec: type[SpecT]) -> SpecT:
    """A spec from a YAML file. ConfigError lists every problem with its key."""
    return parse_spec(read_yaml(path), spec, where=str(path))


def parse_spec(content: dict[str, Any], spec: type[SpecT], *, where: str) -> SpecT:
    """A spec from plain data; `where` opens every line of the ConfigError."""
    unusable = [_placed(problem, where, key) for key, problem in _unusable_texts(content)]
    if unusable:
        raise ConfigError([*unusable])
    try:
        return spec.model_validate(content)
    except ValidationError as error:
        raise ConfigError([*describe_problems(error, where=where, places=places_of([((), spec)]))]) from error


def describe_problems(error: ValidationError, *, where: str, places: Places | None = None) -> list[Problem]:
    """One line per problem: where, key, the value found, the value needed.

    places: see `places_of`; the known keys, from which an unknown one gets its advice. Fields of each problem: `key`,
    and those of its message.
    """
    found: dict[tuple[int | str, ...], list[Problem]] = {}
    needs: dict[tuple[tuple[int | str, ...], str], dict[str, None]] = {}
    for item in error.errors():
        location = _location(item)
        of_key = found.setdefault(location, [])
        if item["type"] == "extra_forbidden":
            of_key.append(advice(location, places or {}))
        elif item["type"] == "missing":
            of_key.append(Problem.of("VSE-C002", "missing, need a value"))
        elif item["type"] == "value_error":
            of_key += problems_in(item["ctx"]["error"])
        else:  # of a union, every branch adds its need
            needs.setdefault((location, _short(item["input"])), {})[_need(item)] = None
    for location in [place for place in found if _is_renamed(place, found)]:
        del found[location]
    for (location, got), of_value in needs.items():
        found[location].append(Problem.of("VSE-C003", "got {got}, need {need}", got=got, need=_either([*of_value])))
    lines = [_placed(each, where, _key_path(location)) for location, of_key in found.items() for each in of_key]
    return list(dict.fromkeys(lines))


def _is_renamed(location: tuple[int | str, ...], found: Mapping[tuple[int | str, ...], list[Problem]]) -> bool:
    """Whether the key is missing because an unknown one beside it is a misspelling of it: one mistake, told once."""
    hint = f"did you mean {location[-1]}?" if location else None
    beside = [each for place, of_key in found.items() if place[:-1] == location[:-1] for each in of_key]
    return [each.code for each in found[location]] == ["VSE-C002"] and any(
        each.code == "VSE-C001" and each.fields.get("hint") == hint for each in beside
    )


def problems_in(error: Exception) -> list[Problem]:
    """The problems that a validator raised as arguments of a ValueError."""
    return [
        each if isinstance(each, Problem) else Problem.of("VSE-C006", "{reason}", reason=each)
        for each in error.args or (type(error).__name__,)
    ]


def _placed(problem: Problem, where: str, key: str) -> Problem:
    """The problem in one line behind its place; its key becomes a field."""
    text = ": ".join(filter(None, (where, key, str(problem))))
    return Problem(" ".join(text.split()), problem.code, {"key": key, **problem.fields})


def _location(item: ErrorDetails) -> tuple[int | str, ...]:
    """The path to the wrong value, without the branches of unions, which pydantic adds and no file contains."""
    path = item["loc"]
    if item["type"] == "extra_forbidden":  # its last part is the user's own text, whatever it looks like
        path = path[:-1]
    location = tuple(
        part for before, part in zip((None, *path), path, strict=False)
        if isinstance(part, int)
        or not (part in _TAGS or part.startswith(_GENERATED) or (isinstance(before, int) and part in _SCALARS))
    )
    return (*location, item["loc"][-1]) if item["type"] == "extra_forbidden" else location


def _either(needs: Sequence[str]) -> str:
    """The needs of all branches of a union."""
    *others, last = needs
    return f"{', '.join(others)} or {last}" if others else last


_UNUSABLE = Message("VSE-C005", "got {got} with {flaw} in it; remove it")


def _unusable_texts(content: Any, above: tuple[int | str, ...] = ()) -> Iterator[tuple[str, Problem]]:
    """(key, problem) of every key or text with a character that no name, path or database accepts."""
    if isinstance(content, Mapping):
        for name, inside in content.items():
            if isinstance(name, str) and (flaw := unusable_text(name)):
                yield _key_path(above) or "a key", _UNUSABLE(got=f"the key {_short(name)}", flaw=flaw)
            else:
                yield from _unusable_texts(inside, (*above, str(name)))
    elif isinstance(content, list | tuple):
        for number, inside in enumerate(content):
            yield from _unusable_texts(inside, (*above, number))
    elif isinstance(content, str) and (flaw := unusable_text(content)):
        yield _key_path(above), _UNUSABLE(got=_short(content), flaw=flaw)


_LIMITS = {"ge": "a number >= {}", "gt": "a number > {}", "le": "a number <= {}", "lt": "a number < {}"}
_DOMAIN = "`default`, {low: ..., high: ...} or {choices: [..., ...]}"
_NEEDS = {
    "string_pattern_mismatch": "a text that matches {pattern}", "too_short": "at least {min_length}",
    "too_long": "at most {max_length}", "string_too_long": "at most {max_length} characters",
    "dict_type": "a mapping of keys to values",
}


def _need(item: ErrorDetails) -> str:
    """The value needed, such as `a number >= 0`."""
    context = item.get("ctx", {})
    for limit, need in _LIMITS.items():
        if limit in context:
            number = context[limit]
            return need.format(number if isinstance(number, int) else f"{number:g}")
    if item["loc"] and item["loc"][-1] in ("Default", "Range", "Choices"):
        return _DOMAIN
    if item["type"] in _NEEDS:
        return _NEEDS[item["type"]].format(**context)
    if item["type"] in ("model_type", "model_attributes_type"):
        return f"a mapping of keys to values{_example(context.get('class_name', ''))}"
    need = item["msg"].removeprefix("Input should be ")
    return need[0].lower() + need[1:] + _search_instead(_location(item), item["input"])


def _search_instead(location: Sequence[int | str], given: Any) -> str:
    """Where a setting of a trial is searched, if several values or a domain are given for it; else nothing."""
    if location[0] not in ("training", "network", "loss") or not isinstance(given, list | Mapping):
        return ""
    where = "search.training" if location[0] == "training" else f"`search` of the {location[0]}"
    return f"; to search it, move it to {where}, as {location[-1]}: {{choices: [..., ...]}}"


def _example(spec: str) -> str:
    """An example for a spec, by the name of its class: `, such as {model: ...}`."""
    pending: list[type[Spec]] = [Spec]
    while pending:
        current = pending.pop()
        pending += current.__subclasses__()
        if current.__name__ == spec and current.model_fields:
            key = "name" if "name" in current.model_fields else next(iter(current.model_fields))
            return f", such as {{{key}: ...}}"
    return ""


def _key_path(location: tuple[int | str, ...]) -> str:
    path = ""
    for part in location:
        if isinstance(part, int) or part == _ITEM:
            path += _ITEM if part == _ITEM else f"[{part}]"
            continue
        path += f".{shortened(part)}" if path else shortened(part)
    return path


def _short(value: Any) -> str:
    """The value as Python would write it, cut short, without the password of a URL."""
    return shortened(masked(" ".join(repr(value).split())))


def places_of(specs: Iterable[tuple[Place, type[Spec]]]) -> dict[str, list[Place]]:
    """Every key that plain data of these specs may have, with its possible places. specs: each with its own place."""
    found: dict[str, list[Place]] = {}
    for above, spec in specs:
        for place in _walk(spec, above):
            found.setdefault(place[-1], []).append(place)
    return found


def specs_in(annotation: Any) -> list[type[Spec]]:
    """The specs that a field of this type can hold."""
    if isinstance(annotation, type) and issubclass(annotation, Spec):
        return [annotation]
    return [spec for part in getattr(annotation, "__args__", ()) for spec in specs_in(part)]


def advice(location: Sequence[int | str], places: Places) -> Problem:
    """The unknown key at the end of this path, with the place where it belongs, or the closest known key."""
    level, key = tuple(_ITEM if isinstance(part, int) else part for part in location[:-1]), str(location[-1])

    def written(name: str) -> str:
        """The place of a known key nearest to this one: `losses[0].fixed.margin`, with the items of this path."""
        place = min(places[name], key=lambda place: (-_shared(level, place), len(place)))
        return _key_path((*location[: _shared(level, place)], *place[_shared(level, place) :]))

    siblings = [name for name, of_name in places.items() if any(place[:-1] == level for place in of_name)]
    near = [name for name, of_name in places.items() if any(not level or place[0] == level[0] for place in of_name)]
    sibling = _closest(key, siblings, cutoff=0.8 if key in places else 0.6)
    if key in places and sibling is not None and sibling != key:
        hint = f"did you mean {sibling}, or {written(key)}?"
    elif key in places:
        hint = f"it belongs at {written(key)}"
    elif sibling is not None:
        hint = f"did you mean {sibling}?"
    else:
        other = _closest(key, near, cutoff=0.6)
        hint = "remove it" if other is None else f"did you mean {written(other)}?"
    return Problem.of("VSE-C001", "unknown key; {hint}", hint=hint)


def _shared(one: Place, other: Place) -> int:
    """How many keys two places have in common, from the top."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _closest(key: str, known: Sequence[str], *, cutoff: float) -> str | None:
    """The one known key that has this key as a word, as learning_rate_step has step; otherwise the most similar."""
    with_word = [name for name in known if key in name.split("_") and name != key]
    if len(with_word) == 1:
        return with_word[0]
    return next(iter(difflib.get_close_matches(key, sorted(known), n=1, cutoff=cutoff)), None)


def _walk(spec: type[Spec], above: Place) -> Iterator[Place]:
    for name, field in spec.model_fields.items():
        place = (*above, name)
        yield place
        free = spec.free_keys.get(name, {})
        settings = {key for each in ([free] if isinstance(free, type) else free.values()) for key in each.model_fields}
        yield from ((*place, key) for key in sorted(settings - {"name"}))
        below = (*place, _ITEM) if "list[" in str(field.annotation) else place
        for part in specs_in(field.annotation):
            yield from _walk(part, below)
