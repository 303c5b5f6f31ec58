"""YAML files to specs and back. Every problem of a file is reported at once, one line each."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from vsetune.config.base import Spec, known_name
from vsetune.config.secrets import masked
from vsetune.errors import ConfigError

SpecT = TypeVar("SpecT", bound=Spec)


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file. ConfigError if it is missing, not YAML or not a mapping."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; need a YAML file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}); need a UTF-8 YAML file") from error
    try:
        content = yaml.load(text, Loader=_StrictLoader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {_yaml_problem(error)}") from error
    if not isinstance(content, dict):
        got = "nothing" if content is None else f"a {type(content).__name__}"
        raise ConfigError(f"{path}: got {got} at the top level, need a mapping of keys to values")
    return content


def load_spec(path: Path, spec: type[SpecT]) -> SpecT:
    """A spec from a YAML file. ConfigError lists every problem with its key."""
    return parse_spec(read_yaml(path), spec, where=str(path))


def parse_spec(content: dict[str, Any], spec: type[SpecT], *, where: str) -> SpecT:
    """A spec from plain data; `where` opens every line of the ConfigError."""
    try:
        return spec.model_validate(content)
    except ValidationError as error:
        specs = _reachable(spec)
        known = {name for each in specs for name in each.model_fields}
        raise ConfigError(describe_problems(error, where=where, known=known, unions=_union_tags(specs))) from error


def dump_yaml(plain: dict[str, Any]) -> str:
    """Plain data as YAML, keys in the order given."""
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=120)


def describe_problems(
    error: ValidationError, *, where: str, known: set[str] | Mapping[str, set[str]],
    unions: frozenset[tuple[str | None, str]] = frozenset(),
) -> list[str]:
    """One line per problem: file, key, what was found, what is needed.

    known: keys to choose a "did you mean" from; a mapping has them by the first key of the path. unions: (field,
    branch) pairs; pydantic writes the branch of a union it took into the path, after the field (None: at its start).
    """
    lines = []
    for item in error.errors():
        location = item["loc"]
        key = _key_path(tuple(part for before, part in zip((None, *location), location, strict=False)
                              if (before, part) not in unions))
        prefix = f"{where}: {key}: " if key else f"{where}: "
        if item["type"] == "extra_forbidden":
            names = known.get(str(location[0]), set()) if isinstance(known, Mapping) else known
            close = difflib.get_close_matches(str(location[-1]), sorted(names), n=1)
            hint = f"did you mean {close[0]}?" if close else "remove it"
            lines.append(f"{prefix}unknown key; {hint}")
        elif item["type"] == "missing":
            lines.append(f"{prefix}missing, need a value")
        elif item["type"] == "value_error":
            lines.append(prefix + _one_line(item["msg"].removeprefix("Value error, ")))
        elif item["type"].startswith("union_tag"):
            lines.append(_unknown_variant(item, where=where, key=key))
        else:
            lines.append(f"{prefix}got {_short(item['input'])}, {_need(item)}")
    return list(dict.fromkeys(lines))


def _unknown_variant(item: ErrorDetails, *, where: str, key: str) -> str:
    """A mapping whose `name`, `layout` or `extractor` selects nothing we have."""
    context = item["ctx"]
    discriminator = context["discriminator"].strip("'")
    prefix = f"{where}: {key}.{discriminator}: " if key else f"{where}: {discriminator}: "
    if "tag" not in context:
        return f"{prefix}missing, need a value"
    try:
        known_name(context["tag"], re.findall(r"'([^']+)'", context["expected_tags"]), discriminator)
    except ValueError as error:
        return prefix + str(error)
    raise AssertionError(f"{context['tag']} was refused and is known")


def _need(item: ErrorDetails) -> str:
    context = item.get("ctx", {})
    for limit, sign in (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<")):
        if limit in context:
            return f"need a number {sign} {context[limit]:g}"
    if item["type"] == "string_pattern_mismatch":
        return f"need a text that matches {context['pattern']}"
    if item["type"] == "too_short":
        return f"need at least {context['min_length']}"
    if item["type"] in ("model_type", "model_attributes_type"):
        return f"need a mapping of keys to values{_example(context.get('class_name', ''))}"
    need = item["msg"].replace("Input should be", "need")
    return need[0].lower() + need[1:]


def _example(spec: str) -> str:
    """Of a spec, by the name of its class: `, such as {model: ...}`."""
    pending: list[type[Spec]] = [Spec]
    while pending:
        current = pending.pop()
        pending += current.__subclasses__()
        if current.__name__ == spec and current.model_fields:
            return f", such as {{{next(iter(current.model_fields))}: ...}}"
    return ""


def _yaml_problem(error: yaml.YAMLError) -> str:
    """Line and column first, as an editor counts them."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return _one_line(f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}")
    return _one_line(str(error))


def _key_path(location: tuple[int | str, ...]) -> str:
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif (part and part[0].isupper()) or part.startswith(("dict[", "literal[", "function-")):
            continue  # pydantic names the branch of a union here; a reader of the file never wrote that
        else:
            path += f".{part}" if path else part
    return path


def _short(value: Any) -> str:
    text = masked(_one_line(repr(value)))
    return text if len(text) <= 60 else text[:57] + "..."


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _reachable(spec: type[Spec]) -> list[type[Spec]]:
    """A spec and every spec that one of its fields can hold."""
    found: list[type[Spec]] = []
    pending = [spec]
    while pending:
        current = pending.pop()
        if current not in found:
            found.append(current)
            pending += [part for field in current.model_fields.values() for part in _specs_in(field.annotation)]
    return found


def _union_tags(specs: list[type[Spec]]) -> frozenset[tuple[str, str]]:
    """What pydantic puts into the path of an error inside a union: after the field, the value that chose the branch."""
    return frozenset(
        (name, str(branch.model_fields[field.discriminator].default))
        for spec in specs
        for name, field in spec.model_fields.items() if isinstance(field.discriminator, str)
        for branch in _specs_in(field.annotation)
    )


def _specs_in(annotation: Any) -> list[type[Spec]]:
    if isinstance(annotation, type) and issubclass(annotation, Spec):
        return [annotation]
    return [spec for part in getattr(annotation, "__args__", ()) for spec in _specs_in(part)]


class _StrictLoader(yaml.SafeLoader):
    """Safe YAML that refuses a key written twice and reads 1e-4 as a number."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key} is written twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


_StrictLoader.add_implicit_resolver(  # YAML 1.1 takes 1e-4 (no dot) for a string
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9][0-9_]*)(?:\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)
