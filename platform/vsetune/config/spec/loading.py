"""Plain data to specs. Every problem of a file is reported at once, one line each."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from vsetune.config.spec.base import Problems, Spec, unknown_name, unusable_text
from vsetune.config.spec.yaml_files import dump_yaml, read_yaml
from vsetune.errors import ConfigError
from vsetune.storage.addresses import masked

__all__ = ["describe_problems", "dump_yaml", "load_spec", "parse_spec", "read_yaml"]

SpecT = TypeVar("SpecT", bound=Spec)

_LONGEST = 60
_TAGS = {"Word", "Mapping", "Default", "Range", "Choices"}
_SCALARS = {"bool", "int", "float", "str"}
_GENERATED = ("dict[", "literal[", "list[", "function-", "constrained-")


def load_spec(path: Path, spec: type[SpecT]) -> SpecT:
    """A spec from a YAML file. ConfigError lists every problem with its key."""
    return parse_spec(read_yaml(path), spec, where=str(path))


class Beside(Protocol):
    """Finds further problems of a file, given the places of values that are wrong by themselves. One line each."""

    def __call__(self, content: Mapping[str, Any], wrong: Sequence[tuple[int | str, ...]], *, where: str) -> list[str]:
        ...


def parse_spec(content: dict[str, Any], spec: type[SpecT], *, where: str, beside: Beside | None = None) -> SpecT:
    """A spec from plain data; `where` opens every line of the ConfigError. beside: called only if there is a problem.
    """
    unusable = list(_unusable_texts(content, where))
    if unusable:
        raise ConfigError(unusable)
    try:
        return spec.model_validate(content)
    except ValidationError as error:
        unions = _union_tags(_reachable(spec))
        problems = describe_problems(error, where=where, known=set(), places=places_in(spec), unions=unions)
        problems += _between_others(content, spec, error, where=where)
        if beside is not None:
            problems += beside(content, [item["loc"] for item in error.errors()], where=where)
        raise ConfigError(problems) from error


def _between_others(content: dict[str, Any], spec: type[Spec], error: ValidationError, *, where: str) -> list[str]:
    """Contradictions between values that are each valid, which pydantic checks only if all values are."""
    wrong = [item["loc"] for item in error.errors()]
    rest = None if () in wrong else spec.without_what_is_wrong(content, wrong)
    if rest is None:
        return []
    try:
        spec.model_validate(rest)
    except ValidationError as further:
        is_between = all(item["loc"] == () for item in further.errors())
        return describe_problems(further, where=where, known=set()) if is_between else []
    return []


def describe_problems(
    error: ValidationError, *, where: str, known: set[str] | Mapping[str, set[str]],
    places: Mapping[str, Sequence[Place]] | None = None, unions: frozenset[tuple[str | None, str]] = frozenset(),
) -> list[str]:
    """One line per problem: file, key, the value found, the value needed.

    known: keys to choose a "did you mean" from; a mapping has them by the first key of the path. places: of every key
    (`places_in`), used instead. unions: (field, branch) pairs; pydantic writes the branch of a union it took into the
    path, after the field (None: at its start).
    """
    lines, needs = [], dict[str, list[str]]()
    for item in error.errors():
        location = tuple(
            part for before, part in zip((None, *item["loc"]), item["loc"], strict=False)
            if (before, part) not in unions and not _is_branch(before, part)
        )
        if item["type"] == "extra_forbidden":  # its last part is the user's own text, whatever it looks like
            location = (*location[: len(location) - (location[-1:] == item["loc"][-1:])], item["loc"][-1])
        key = _key_path(location)
        prefix = f"{where}: {key}: " if key else f"{where}: "
        if item["type"] == "extra_forbidden":
            lines.append(prefix + (_advice(location, known) if places is None else advice(location, places)))
        elif item["type"] == "missing":
            lines.append(f"{prefix}missing, need a value")
        elif item["type"] == "value_error" and isinstance(item.get("ctx", {}).get("error"), Problems):
            lines += [prefix + line for line in item["ctx"]["error"].lines]
        elif item["type"] == "value_error":
            lines.append(prefix + item["msg"].removeprefix("Value error, "))
        elif item["type"].startswith("union_tag"):
            lines.append(_unknown_variant(item, where=where, key=key))
        else:
            got = f"{prefix}got {_short(item['input'])}, "  # of a union every branch adds its need
            lines.append(got)
            needs.setdefault(got, []).append(_need(item))
    lines = [line + _either(needs[line]) if line in needs else line for line in lines]
    return list(dict.fromkeys(map(_one_line, lines)))


def _either(needs: Sequence[str]) -> str:
    """The needs of all branches of a union, each once."""
    first, *others = dict.fromkeys(needs)
    last = [f" or {need.removeprefix('need ')}" for need in others[-1:]]
    return "".join((first, *(f", {need.removeprefix('need ')}" for need in others[:-1]), *last))


def _advice(location: tuple[int | str, ...], known: set[str] | Mapping[str, set[str]]) -> str:
    """Advice for an unknown key."""
    first, last = str(location[0]), str(location[-1])
    names = known if isinstance(known, set) else known.get(first, set())
    if last in names:
        return "unknown key here; " + ("remove it" if isinstance(known, set) else f"it is a key of {first}")
    close = difflib.get_close_matches(last, sorted(names), n=1)
    return f"unknown key; did you mean {close[0]}?" if close else "unknown key; remove it"


def _unusable_texts(content: Any, where: str) -> Iterator[str]:
    """A line for every key or text with characters that no name, path or database accepts."""
    pending: list[tuple[str, Any]] = [("", content)]
    while pending:
        key, value = pending.pop()
        if isinstance(value, Mapping):
            for name, inside in reversed([*value.items()]):
                if isinstance(name, str) and (problem := unusable_text(name)):
                    yield f"{where}: {key or 'a key'}: got the key {_short(name)} with {problem}"
                else:
                    pending.append((_key_path((key, str(name))) if key else _key_path((str(name),)), inside))
        elif isinstance(value, list | tuple):
            pending += [(f"{key}[{number}]", inside) for number, inside in reversed([*enumerate(value)])]
        elif isinstance(value, str) and (problem := unusable_text(value)):
            yield f"{where}: {key}: got {_short(value)} with {problem}"


def _unknown_variant(item: ErrorDetails, *, where: str, key: str) -> str:
    """The problem of a mapping whose `name`, `layout` or `extractor` selects nothing known."""
    context = item["ctx"]
    discriminator = context["discriminator"].strip("'")
    prefix = f"{where}: {key}.{discriminator}: " if key else f"{where}: {discriminator}: "
    if not isinstance(item["input"], Mapping) or "tag" not in context:
        return f"{prefix}missing, need a value"
    names = sorted(re.findall(r"'([^']+)'", context["expected_tags"]))
    got = item["input"].get(discriminator)
    if not isinstance(got, str):
        return f"{prefix}got {_short(got)}, need one of {', '.join(names)}"
    return prefix + unknown_name(got, names, discriminator)


def _need(item: ErrorDetails) -> str:
    context = item.get("ctx", {})
    for limit, sign in (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<")):
        if limit in context:
            return f"need a number {sign} {_number(context[limit])}"
    if item["type"] == "string_pattern_mismatch":
        return f"need a text that matches {context['pattern']}"
    if item["type"] in ("too_short", "too_long"):
        limit = "min_length" if item["type"] == "too_short" else "max_length"
        return f"need at {'least' if limit == 'min_length' else 'most'} {context[limit]}"
    if item["type"] == "string_too_long":
        return f"need at most {context['max_length']} characters"
    if item["type"] in ("model_type", "model_attributes_type"):
        return f"need a mapping of keys to values{_example(context.get('class_name', ''))}"
    if item["type"] == "dict_type":
        return "need a mapping of keys to values"
    need = item["msg"].replace("Input should be", "need")
    return need[0].lower() + need[1:]


def _number(limit: float) -> str:
    return str(limit) if isinstance(limit, int) else f"{limit:g}"


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


def _is_branch(before: int | str | None, part: int | str) -> bool:
    """Whether this part of a path names the branch of a union, which pydantic adds and no file contains."""
    if isinstance(part, int):
        return False
    return part in _TAGS or part.startswith(_GENERATED) or (isinstance(before, int) and part in _SCALARS)


def _key_path(location: tuple[int | str, ...]) -> str:
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
            continue
        part = part if len(part) <= _LONGEST else part[: _LONGEST - 3] + "..."
        path += f".{part}" if path else part
    return path


def _short(value: Any) -> str:
    """The value as Python would write it, cut short, without the password of a URL."""
    text = masked(_one_line(repr(value)))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _reachable(spec: type[Spec]) -> list[type[Spec]]:
    """A spec and every spec that its fields can hold, directly or indirectly."""
    found: list[type[Spec]] = []
    pending = [spec]
    while pending:
        current = pending.pop()
        if current not in found:
            found.append(current)
            pending += [part for field in current.model_fields.values() for part in specs_in(field.annotation)]
    return found


def _union_tags(specs: list[type[Spec]]) -> frozenset[tuple[str, str]]:
    """Parts that pydantic adds to the path of an error inside a union: (field, value that chose the branch)."""
    return frozenset(
        (name, str(branch.model_fields[field.discriminator].default))
        for spec in specs
        for name, field in spec.model_fields.items() if isinstance(field.discriminator, str)
        for branch in specs_in(field.annotation)
    )


Place = tuple[str, ...]
"""Keys from the top of a file down to a key; `[]` is any item of a list: ("losses", "[]", "fixed", "margin")."""

_ITEM = "[]"


def places_in(spec: type[Spec]) -> dict[str, list[Place]]:
    """Every key that a file of this spec may have, with all its possible places."""
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
    """Advice for the unknown key at the end of this path: the place where it belongs, or the closest known key."""
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
    """`losses[0].fixed.margin`: with the item numbers of the path at fault, as far as the two paths agree."""
    shared, text = _shared(_level(location), place), ""
    for number, part in enumerate(place):
        if part == _ITEM:
            text += f"[{location[number]}]" if number < shared else _ITEM
        else:
            text += f".{part}" if text else part
    return text
