"""What the spec of a plugin component must declare, checked when it is loaded. One line per problem."""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MultipleOf
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from vsetune.config.components.catalogue import name_of
from vsetune.config.spec.base import Name, Spec, tunables
from vsetune.errors import ConfigError

_NAME = TypeAdapter(Name)
_SUM = "sum"


def problems_of(spec: type[Spec], file: Path, *, key: str, facts: Sequence[str]) -> list[str]:
    """Everything a spec lacks, each with file, line and fix. file: the `spec.py` that defines it. key: field of its
    name.

    facts: class attributes that the spec must have beside its fields, such as `equation`; a spec without facts may have
    required fields.
    """
    lines = _lines(file, spec.__name__)
    found = _problems(spec, key, facts)
    return [f"plugins: {file}:{lines.get(field, lines[''])}: {problem}" for field, problem in found]


def line_of(file: Path, name: str) -> int:
    """The line at which a class of a file starts."""
    return _lines(file, name)[""]


def _problems(spec: type[Spec], key: str, facts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(field or "", problem)"""
    yield from _name_problems(spec, key)
    if not (vars(spec).get("__doc__") or "").strip():
        yield "", f"{spec.__name__} has no docstring; say in a sentence what it is, `list` and `show` print it"
    for fact in facts:
        if not str(getattr(spec, fact, "")).strip():
            yield "", f"{spec.__name__} declares no {fact}; write `{fact}: ClassVar[str] = \"...\"`"
    stopped = getattr(spec, "stop_gradient", "")
    if not isinstance(stopped, str | property):
        yield "stop_gradient", f"stop_gradient is {stopped}, need a sentence that says what is a constant, and why"
    own = [name for name in spec.model_fields if name != key and not _is_ours(spec, name)]
    try:
        ranges = dict(tunables(spec))
    except ValueError as error:
        yield str(error).partition(":")[0], str(error)
        return
    for name in own:
        yield from _field_problems(name, spec.model_fields[name], is_tunable=name in ranges)
    if not facts and any(field.is_required() for field in spec.model_fields.values()):
        return  # a reader has no default place for its files
    try:
        spec()
    except ValidationError as error:
        first = error.errors()[0]
        place = str(first["loc"][0]) if first["loc"] else ""
        yield place, (
            f"{spec.__name__}() is not valid ({'.'.join(map(str, first['loc'])) or 'defaults'}: {first['msg']}); give "
            "every field a default inside its limits"
        )


def _name_problems(spec: type[Spec], key: str) -> Iterator[tuple[str, str]]:
    name = name_of(spec, key)
    if name == _SUM:
        yield key, f"the name {_SUM} is that of weighted sums; choose another"
    try:
        _NAME.validate_python(name)
    except ValidationError:
        yield key, f"got the name {name!r}, need letters, digits, `_` and `-`, at most 100; rename it"
    if get_args(spec.model_fields[key].annotation) != (name,):
        yield key, f'`{key}` takes other values than its own; write `{key}: Literal["{name}"] = "{name}"`'


def _field_problems(name: str, field: FieldInfo, *, is_tunable: bool) -> Iterator[tuple[str, str]]:
    if _is_number(field.annotation) and not is_tunable and not _is_bounded(field):
        yield name, (
            f"{name} is a number without a range; declare it with `tunable(default, Range(low=..., high=...), "
            'description="...")` to have it searched, or with `Field(default, ge=..., le=..., description="...")`'
        )
    elif not (field.description or "").strip():
        yield name, f'{name} has no description; write `Field(..., description="meaning and unit")`'


def _is_number(annotation: Any) -> bool:
    """Whether the type is int, float, or a union that contains one."""
    if annotation in (int, float):
        return True
    if get_origin(annotation) in (Union, types.UnionType):
        return any(_is_number(part) for part in get_args(annotation))
    return get_origin(annotation) is not Literal and hasattr(annotation, "__metadata__") and _is_number(
        get_args(annotation)[0]
    )


def _is_bounded(field: FieldInfo) -> bool:
    """Whether at least one end is bounded: a margin >= 0 needs no largest value."""
    return any(isinstance(mark, Ge | Gt | Le | Lt | MultipleOf) for mark in _marks(field))


def _marks(field: FieldInfo) -> Iterator[Any]:
    yield from field.metadata
    for part in get_args(field.annotation):
        yield from getattr(part, "__metadata__", ())


def _is_ours(spec: type[Spec], name: str) -> bool:
    """Whether a field comes from a base class of vsetune."""
    owner = next((each for each in spec.__mro__ if name in vars(each).get("__annotations__", {})), spec)
    return owner.__module__.startswith("vsetune.")


def _lines(file: Path, name: str) -> dict[str, int]:
    """The line of each field of a class; "" is the class itself."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError) as error:
        raise ConfigError(f"plugins: {file}: changed while it was read ({error}); try again") from error
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return {"": node.lineno} | {
                each.target.id: each.lineno
                for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
            }
    return {"": 1}
