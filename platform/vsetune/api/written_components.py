"""Losses and networks whose classes stand in a cell of a notebook: written to a plugin folder, from where studies,
their workers and later sessions load them like any other plugin."""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, get_type_hints

from vsetune.config.component_specs import LossSpec, NetworkSpec
from vsetune.config.plugins import load_plugin
from vsetune.config.registry import name_of
from vsetune.config.spec.base import Spec
from vsetune.errors import ConfigError
from vsetune.storage.paths import home
from vsetune.storage.whole_files import make_folder, write_text

_BUILDING = {"loss": "vsetune.losses.loss_building", "network": "vsetune.networks.network_building"}
_BASES: Mapping[str, type[Spec]] = {"loss": LossSpec, "network": NetworkSpec}


def written(component: type[Any], kind: str) -> tuple[str, Path]:
    """The name of a component in study files, and the plugin folder that it was written to and loaded from.

    component: a subclass of `Loss` or `Network` that is annotated with its settings, `spec: MySpec`. kind: `loss` or
    `network`. The folder is under `VSETUNE_HOME/written`; a changed class replaces it. Functions, classes and numbers
    of the notebook that the class uses go along, and imports.

    ConfigError: a class without source or settings, or that uses an object which is no code; also those of plugins.
    """
    spec = get_type_hints(component).get("spec")
    if not (isinstance(spec, type) and issubclass(spec, _BASES[kind]) and spec is not _BASES[kind]):
        raise ConfigError(
            "VSE-A002", "{name}: does not say which settings it has; write `spec: {name}Spec` in the class, a class "
            "derived from {base} that is defined beside it", name=component.__name__, base=_BASES[kind].__name__,
        )
    folder = home() / "written" / f"{kind}_{name_of(spec)}"
    make_folder(folder)
    write_text(folder / "spec.py", _Module().text(spec))
    building = _Module({spec: f"from .spec import {spec.__name__}"}, [f"from {_BUILDING[kind]} import register"])
    write_text(folder / f"{kind}.py", building.text(component, decorator=f"@register({spec.__name__})\n"))
    load_plugin(str(folder), base=folder)
    return name_of(spec), folder


class _Module:
    """The text of a module with a class and everything of the notebook that it uses.

    elsewhere: import lines of objects of the notebook that stand in other files. imports: further import lines.
    """

    def __init__(self, elsewhere: Mapping[Any, str] | None = None, imports: list[str] | None = None) -> None:
        self._elsewhere = elsewhere or {}
        self._imports = dict.fromkeys(imports or [])
        self._parts: dict[str, str] = {}

    def text(self, root: type[Any], *, decorator: str = "") -> str:
        self._add_used(root, inside=(root.__name__,))
        head = ["from __future__ import annotations", "", *self._imports]
        parts = [*self._parts.values(), f"{decorator}{_source(root)}"]
        return "\n".join([*head, *(f"\n\n{part.strip()}" for part in parts), ""])

    def _add_used(self, user: Any, inside: tuple[str, ...]) -> None:
        """Adds what the source of a class or function names, each definition after those that it uses itself."""
        scope = vars(inspect.getmodule(user)) if inspect.getmodule(user) else {}
        named = {node.id for node in ast.walk(ast.parse(_source(user))) if isinstance(node, ast.Name)}
        for name in sorted((named & scope.keys()) - self._parts.keys() - {*inside}):
            used = scope[name]
            imported = _import_of(name, used, self._elsewhere)
            if imported is not None:
                self._imports[imported] = None
            elif isinstance(used, type | FunctionType):
                self._add_used(used, (*inside, name))
                self._parts[name] = _source(used)
            elif _is_number_or_text(used):
                self._parts[name] = f"{name} = {used!r}"
            else:
                raise ConfigError(
                    "VSE-A003", "{name}: {used} is a {kind}, which cannot be written to a file; define it in a cell as "
                    "a function, a class or a number, or import it", name=inside[0], used=name,
                    kind=type(used).__name__,
                )


def _source(it: Any) -> str:
    try:
        return textwrap.dedent(inspect.getsource(it))
    except (OSError, TypeError) as error:
        found = _in_cells(it.__name__)
        if found is None:
            raise ConfigError(
                "VSE-A001", "{name}: its source cannot be read ({reason}); write the class in a cell of a notebook or "
                "in a file", name=it.__name__, reason=error,
            ) from error
        return found


def _in_cells(name: str) -> str | None:
    """The source of a class in the last cell of a notebook that defines it. Cells are no files, so `inspect` finds
    their functions, but no classes; IPython leaves their lines in `linecache`, without a time of change."""
    for entry in reversed([*linecache.cache.values()]):
        if len(entry) < 4 or entry[1] is not None:
            continue
        text = "".join(entry[2])
        try:
            tree = ast.parse(text)
        except SyntaxError:  # a cell with a magic
            continue
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                return ast.get_source_segment(text, node)
    return None


def _import_of(name: str, used: Any, elsewhere: Mapping[Any, str]) -> str | None:
    """The line that imports an object under a name; None for one that was made in the notebook."""
    if isinstance(used, ModuleType):
        return f"import {_renamed(used.__name__, name)}"
    if isinstance(used, type) and used in elsewhere:
        return elsewhere[used]
    real = str(getattr(used, "__name__", None) or getattr(used, "_name", None) or name)  # typing's forms have a `_name`
    module = str(getattr(used, "__module__", ""))
    for place in (module, *sorted(sys.modules, key=len)):  # compiled functions do not say where they are
        found = sys.modules.get(place)
        is_public = not any(part.startswith("_") for part in place.split("."))
        if is_public and getattr(found, "__file__", None) and vars(found).get(real) is used:
            return f"from {place} import {_renamed(real, name)}"
    return None


def _renamed(real: str, name: str) -> str:
    return real if real == name else f"{real} as {name}"


def _is_number_or_text(value: Any) -> bool:
    if isinstance(value, tuple | list | frozenset):
        return all(map(_is_number_or_text, value))
    return value is None or isinstance(value, bool | int | float | str)
