"""YAML files to plain data and back: plain values only, bounded in size and depth, every refusal in one line."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import yaml

from vsetune.config.spec.base import Spec, shortened
from vsetune.errors import ConfigError, Problem

LARGEST_FILE = 256 * 1024
"""Limit for a YAML file, in bytes; the largest that we ship has 4 kB, and parsing a file of this size takes seconds."""

_DEEPEST = 50
_MOST_VALUES = 50_000
"""Limit for the values of a file with its aliases written out, so that a few lines of aliases do not become gigabytes.
"""

_LONGEST_INTEGER = 2048
"""Bits of an integer; no setting needs as many, and Python refuses to print numbers of more than 4,300 digits."""

_REFUSED_BY_THE_READER = (ValueError, OverflowError, LookupError, TypeError, AttributeError)
"""Exceptions of PyYAML beside its own on hostile text: chr() and int() out of range, missing parts."""


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file. ConfigError in one line if there is none, with line and column if they are known.

    Opens only regular files, and reads at most LARGEST_FILE + 1 bytes.
    """
    text = _text_of(path)
    loader: _StrictLoader | None = None
    try:
        loader = _StrictLoader(text)
        content = loader.get_single_data()
    except (yaml.YAMLError, *_REFUSED_BY_THE_READER) as error:
        mark = loader.get_mark() if loader is not None else None
        raise ConfigError(_problem(error, text, mark).at(f"{path}: not valid YAML")) from error
    finally:
        if loader is not None:
            loader.dispose()
    if not isinstance(content, dict):
        got = "nothing" if content is None else f"a {type(content).__name__}"
        raise ConfigError(
            "VSE-C025", "{path}: got {got} at the top level, need a mapping of keys to values", path=path, got=got
        )
    return content


def dump_yaml(plain: dict[str, Any]) -> str:
    """Plain data as YAML that `read_yaml` reads back as the same data, keys in the order given."""
    return yaml.dump(plain, Dumper=_StrictDumper, sort_keys=False, allow_unicode=True, width=120)


def _text_of(path: Path) -> str:
    try:
        # Without waiting: opening a pipe without a writer would otherwise never return.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise ConfigError("VSE-C021", "{path}: is a device or a pipe; need a regular YAML file", path=path)
            content = stream.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise ConfigError(
                "VSE-C022", "{path}: has more than {most:,} bytes, no study or recipe needs that; is it the right "
                "file?", path=path, most=LARGEST_FILE,
            )
        return content.decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError("VSE-C020", "{path}: no such file; need a YAML file", path=path) from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            "VSE-C023", "{path}: byte {byte} is not UTF-8; save the file as UTF-8 text", path=path, byte=error.start
        ) from error
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            "VSE-C024", "{path}: cannot be read ({reason}); need a file that this user may read", path=path,
            reason=reason,
        ) from error


def _problem(error: Exception, text: str, reached: yaml.Mark | None) -> Problem:
    """The problem behind its line and column, as an editor counts them. reached: where the reader stopped."""
    if isinstance(error, yaml.reader.ReaderError):
        before = text[: error.position]
        place = _place(before.count("\n"), error.position - before.rfind("\n") - 1)
        return Problem.of(
            "VSE-C031", "character {character:#06x} must not stand in a text file; remove it",
            character=error.character,
        ).at(place)
    mark = (error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None) or reached
    place = _place(mark.line, mark.column) if mark is not None else "somewhere"
    if not isinstance(error, yaml.MarkedYAMLError):
        reason = f"cannot be read ({shortened(str(error))}); correct it"
        return Problem.of("VSE-C030", "{reason}", reason=reason).at(place)
    if isinstance(error.problem, Problem):
        return error.problem.at(place)
    if mark is not None and mark.buffer is not None and mark.buffer.startswith("\t", mark.pointer):
        return Problem.of("VSE-C032", "found a tab, need spaces").at(place)
    return Problem.of("VSE-C030", "{reason}", reason=" ".join(str(error.problem).split())).at(place)


def _place(line: int, column: int) -> str:
    return f"line {line + 1}, column {column + 1}"


def _written(node: yaml.Node, otherwise: str) -> str:
    """A scalar as the file has it, for messages."""
    return shortened(str(node.value)) if isinstance(node, yaml.ScalarNode) else otherwise


class _StrictLoader(yaml.SafeLoader):
    """Safe YAML that refuses repeated keys, keys that are not text, unbounded depth and unbounded aliases.

    1e-4 is a number; 2024-02-30 and 12:30 are texts.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = self._values = 0
        self._sizes: dict[str, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Count the composed values; an alias counts as many as the value that it names."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        at, anchor = event.start_mark, event.anchor
        if isinstance(event, yaml.AliasEvent):
            if anchor in self.anchors and anchor not in self._sizes:
                raise _refusal(
                    at, "VSE-C033", "alias {alias} stands inside the value that it names; write the value out",
                    alias=shortened(anchor),
                )
            self._count(self._sizes.get(anchor, 0), at)
            return super().compose_node(parent, index)
        if self._depth >= _DEEPEST:
            raise _refusal(
                at, "VSE-C034", "more than {most} levels inside one another; make it flatter", most=_DEEPEST
            )
        before = self._values
        self._count(1, at)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        if anchor is not None:
            self._sizes[anchor] = self._values - before
        return node

    def _count(self, values: int, at: Any) -> None:
        self._values += values
        if self._values > _MOST_VALUES:
            raise _refusal(
                at, "VSE-C035", "more than {most:,} values with its aliases written out; make it smaller",
                most=_MOST_VALUES,
            )

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Refuse, with its place, a value that does not fit its tag (`!!int abc`, a number of 5,000 digits)."""
        try:
            value = super().construct_object(node, deep)
            if isinstance(value, int) and value.bit_length() > _LONGEST_INTEGER:
                raise ValueError("too many digits")
            return value
        except _REFUSED_BY_THE_READER as error:
            raise _refusal(
                node.start_mark, "VSE-C036", "{value} cannot be read as {kind}; correct it, or put it in quotes",
                value=_written(node, "this"), kind=node.tag.rpartition(":")[2],
            ) from error

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key_node, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if key_node.tag == _MERGE:
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise _refusal(
                    key_node.start_mark, "VSE-C037", "key {key} is no text, need a name; if it is one, put it in "
                    "quotes", key=_written(key_node, "a collection"),
                )
            if key in seen:
                raise _refusal(
                    key_node.start_mark, "VSE-C038", "key {key} is written twice; keep one of them",
                    key=shortened(key),
                )
            seen.add(key)
        return super().construct_mapping(node, deep)

    def refuse_tag(self, node: yaml.Node) -> Any:
        """Refuse every tag that is not a plain value: `!!python/name:os.system`, `!!binary`, `!!set`, `!mine`."""
        raise _refusal(
            node.start_mark, "VSE-C039", "tag {tag} is not read, need plain values; remove it",
            tag=shortened(node.tag.replace("tag:yaml.org,2002:", "!!")),
        )


def _refusal(at: Any, code: str, text: str, **fields: Any) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, Problem.of(code, text, **fields), at)


class _StrictDumper(yaml.SafeDumper):
    """Quotes every text that `_StrictLoader` would take for a number."""


_MERGE = "tag:yaml.org,2002:merge"
_PLAIN = {f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "seq", "map")}
_INT = re.compile(r"^[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)$")
_FLOAT = re.compile(
    r"^(?:[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)

_StrictLoader.yaml_constructors = {
    **{tag: make for tag, make in yaml.SafeLoader.yaml_constructors.items() if tag in _PLAIN},
    None: _StrictLoader.refuse_tag,
}
_StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag.rpartition(":")[2] in {"null", "bool", "merge"}]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _with in (_StrictLoader, _StrictDumper):
    _with.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))
    _with.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))


_KINDS = {
    "study": ("a study file", "vsetune study run"),
    "nightly": ("a nightly file", "vsetune nightly run"),
    "source": ("an ingest recipe", "vsetune data ingest"),
    "shards": ("an index recipe", "vsetune data index"),
    "available_node_types": ("a cluster file", "ray up"),
}
"""For each kind of file: its name, and the command that takes it. No spec has the key of another kind."""


def require_kind(content: Mapping[str, Any], spec: type[Spec], *, where: str) -> None:
    """ConfigError in one line for a file of another kind, instead of a line for each of its keys."""
    wanted = next(key for key in _KINDS if key in spec.model_fields)
    found = next((key for key in _KINDS if key in content), wanted)
    if wanted in content or found == wanted:
        return
    kind, command = _KINDS[found]
    raise ConfigError(
        "VSE-C026", "{path}: is {kind}, need {need}; {command} takes it", path=where, kind=kind, need=_KINDS[wanted][0],
        command=command,
    )
