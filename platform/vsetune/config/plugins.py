"""Plugin components: loaded from a folder or an installed package, checked, and then usable like built-in ones."""

from __future__ import annotations

import ast
import logging
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MultipleOf
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from vsetune.config.component_specs import LOSSES, NETWORKS
from vsetune.config.components.catalogue import SPEC_FILE, Catalogue, mark_code, name_of, specs_of_folder
from vsetune.config.components.plugin_import import forget, import_folder, place_of, read_source, told_in_one_line
from vsetune.config.components.plugin_packages import Component, component_packages, forget_package, is_module_name
from vsetune.config.sources.recipe import READERS
from vsetune.config.spec.base import Name, Spec, tunables
from vsetune.errors import ConfigError, MissingPlugin
from vsetune.storage.paths import expand_user, usable_path

Kind = Literal["loss", "network", "reader"]

GROUPS: Mapping[Kind, str] = {"loss": "vsetune.losses", "network": "vsetune.networks", "reader": "vsetune.readers"}
"""Entry points by which an installed package offers components: `my_loss = "my_package.my_loss"`."""

_CATALOGUES: Mapping[Kind, Catalogue[Any]] = {"loss": LOSSES, "network": NETWORKS, "reader": READERS}

_FACTS: Mapping[Kind, Sequence[str]] = {"loss": ("equation", "source"), "network": ("source",), "reader": ()}

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plugin:
    """One plugin component: a loss, network or reader.

    folder: of its spec. package: from which its modules are imported. source: the folder that is hashed and copied;
    `folder`, or the whole package where the component was named by its module. sha256: of the files of `source`.
    """

    kind: Kind
    name: str
    folder: Path
    package: str
    sha256: str
    source: Path

    @property
    def key(self) -> str:
        """Key in records: a loss and a network may share a name."""
        return f"{self.kind}.{self.name}"

    @property
    def root(self) -> str:
        """The package at the folder `source`."""
        words = self.package.split(".")
        return ".".join(words[: len(words) - len(self.folder.relative_to(self.source).parts)])


_plugins: dict[type[Spec], Plugin] = {}


def load_plugin(reference: str, *, base: Path) -> tuple[Plugin, ...]:
    """Load the components that `reference` names. Returns them in alphabetical order of their folders.

    reference: a folder, relative to `base` or absolute, `~` allowed, that has a `spec.py` or whose subfolders have one;
    or the dotted name of a module or package that can be imported. Loading the same code again changes nothing; changed
    code replaces the code that was loaded from there before.

    MissingPlugin when the reference leads nowhere, ConfigError with one line per problem: code that cannot be imported,
    a name that is taken, a spec that lacks what built-in specs have.
    """
    folder = _folder_of(reference, base)
    return load_module(reference) if folder is None else _loaded(_folders(folder))


def load_module(name: str) -> tuple[Plugin, ...]:
    """`load_plugin` of a module, even where a folder has the same name."""
    return _loaded(component_packages(name))


def load_plugins(references: Iterable[str], *, base: Path) -> tuple[Plugin, ...]:
    """All components of several references; ConfigError with the problems of all of them, repeated names included."""
    found: list[Plugin] = []
    problems: list[str] = []
    missing: list[str] = []
    for reference in dict.fromkeys(references):
        try:
            found += load_plugin(reference, base=base)
        except MissingPlugin as error:
            missing += error.problems
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError([*problems, *missing])
    if missing:
        raise MissingPlugin(missing)
    require_different_names(found)
    return tuple(found)


def resolved_reference(reference: str, *, base: Path) -> str:
    """A folder with its full path, so that it is found from anywhere; the name of a module unchanged."""
    folder = _folder_of(reference, base) if Path(base, expand_user(reference)).exists() else None
    return reference if folder is None else str(folder)


def load_installed() -> tuple[list[Plugin], dict[str, str]]:
    """The components that installed packages offer, and the problem of each that cannot be loaded, by name."""
    found: list[Plugin] = []
    broken: dict[str, str] = {}
    for group in GROUPS.values():
        for point in sorted(entry_points(group=group), key=lambda point: point.name):
            try:
                found += load_module(point.module)
            except ConfigError as error:
                package = point.dist.name if point.dist is not None else point.module
                broken[point.name] = f"{error.problems[0]} (entry point {point.name} of {group}, package {package})"
    return found, broken


def plugin_of(spec: type[Spec]) -> Plugin | None:
    """The plugin that a spec comes from; None for a built-in spec."""
    return _plugins.get(spec)


def known_plugins() -> tuple[Plugin, ...]:
    """Every plugin that study files can name now."""
    return tuple(
        plugin for spec, plugin in _plugins.items() if _CATALOGUES[plugin.kind].get(plugin.name) is spec
    )


def place_in_plugin(error: BaseException) -> str | None:
    """`file:line` where an exception came out of a plugin's code; None if it did not pass through any."""
    sources = {plugin.source for plugin in _plugins.values()}
    places = (place_of(error, source) for source in sorted(sources))
    return next((place for place in places if place is not None), None)


def forget_plugins() -> None:
    """Unload all plugins, so that only built-in components remain."""
    for spec, plugin in list(_plugins.items()):
        _CATALOGUES[plugin.kind].remove(spec)
        forget(plugin.root)
        forget_package(plugin.source)
    _plugins.clear()


def require_different_names(plugins: Sequence[Plugin]) -> None:
    """ConfigError if two folders, or two versions of one, have a component of the same kind and name."""
    by_key: dict[str, Plugin] = {}
    for plugin in plugins:
        other = by_key.setdefault(plugin.key, plugin)
        if other.sha256 != plugin.sha256 or other.package != plugin.package:
            raise ConfigError(
                f"plugins: {plugin.folder}: {plugin.kind} {plugin.name} is also in {other.folder}; rename one, or name "
                "only one of the folders under plugins"
            )


def _loaded(components: Iterable[Component]) -> tuple[Plugin, ...]:
    found = [plugin for component in components for plugin in _load(component)]
    require_different_names(found)
    return tuple(found)


def _folder_of(reference: str, base: Path) -> Path | None:
    """The folder that a reference names; None for the name of a module. A folder takes precedence over a module."""
    if "://" in reference:
        raise ConfigError(f"plugins: {reference}: need a folder or a module; copy the code to this machine")
    try:
        text = expand_user(usable_path(reference))
    except ValueError as error:
        raise ConfigError(f"plugins: {error}") from error
    folder = (base / text).absolute()
    if folder.is_dir():
        return folder.resolve()
    if folder.is_file() and folder.name == f"{SPEC_FILE}.py":
        return folder.resolve().parent
    if folder.exists():
        raise ConfigError(f"plugins: {folder}: is a file, need the folder of a component, with {SPEC_FILE}.py in it")
    if not is_module_name(reference):
        raise MissingPlugin(f"plugins: {folder}: no such folder; relative folders start at the study file's")
    return None


def _folders(folder: Path) -> list[Component]:
    """Every component in a folder."""
    if (folder / f"{SPEC_FILE}.py").is_file():
        return [Component(folder, folder)]
    found = sorted(file.parent for file in folder.glob(f"*/{SPEC_FILE}.py") if not file.parent.name.startswith("."))
    if not found:
        raise MissingPlugin(
            f"plugins: {folder}: no {SPEC_FILE}.py in it or in a folder of it; a component is a folder with "
            f"{SPEC_FILE}.py and loss.py or network.py"
        )
    return [Component(each, each) for each in found]


def _load(component: Component) -> Iterator[Plugin]:
    """The losses, networks and readers of one folder."""
    folder, source = component.folder, read_source(component.source)
    name = component.package or import_folder(source)
    with told_in_one_line(folder):
        specs: list[tuple[Kind, type[Spec]]] = [
            (kind, spec) for kind, known in _CATALOGUES.items() for spec in specs_of_folder(name, known.base, known.key)
        ]
    file = folder / f"{SPEC_FILE}.py"
    if not specs:
        raise ConfigError(
            f"plugins: {file}: defines no component; need a class derived from LossSpec or NetworkSpec with "
            '`name: Literal["my_loss"] = "my_loss"`, or from SourceSpec with `layout: ...`'
        )
    problems = [problem for kind, spec in specs for problem in _problems(kind, spec, file)]
    if problems:
        raise ConfigError(problems)
    for kind, spec in specs:
        plugin = Plugin(kind, _name(kind, spec), folder, name, source.sha256, component.source)
        _register(spec, plugin)
        yield plugin


def _problems(kind: Kind, spec: type[Spec], file: Path) -> Iterator[str]:
    yield from problems_of(spec, file, key=_CATALOGUES[kind].key, facts=_FACTS[kind])
    other = _CATALOGUES[kind].get(_name(kind, spec))
    if other is not None and other not in _plugins:
        yield (
            f"plugins: {file}:{line_of(file, spec.__name__)}: {kind} {_name(kind, spec)} is one of vsetune's own; give "
            "yours another name"
        )
    if not (file.parent / f"{kind}.py").is_file():
        need = "a function `read(source)`" if kind == "reader" else f"a class with @register({spec.__name__})"
        yield f"plugins: {file.parent}: no {kind}.py in it; need {need} there"


def _name(kind: Kind, spec: type[Spec]) -> str:
    return name_of(spec, _CATALOGUES[kind].key)


def _register(spec: type[Spec], plugin: Plugin) -> None:
    """Register the spec under its name; it replaces plugin code of the same name."""
    catalogue = _CATALOGUES[plugin.kind]
    other = catalogue.get(plugin.name)
    if other is not None and other is not spec:
        catalogue.remove(other)
        _log.debug("plugin %s: %s takes the place of %s", plugin.key, plugin.package, other.__module__)
    catalogue.add(spec)
    _plugins.setdefault(spec, plugin)
    mark_code(spec, plugin.sha256)


_NAME = TypeAdapter(Name)
_SUM = "sum"


def problems_of(spec: type[Spec], file: Path, *, key: str, facts: Sequence[str]) -> list[str]:
    """Everything a spec lacks, each with file, line and fix. file: the `spec.py` that defines it. key: field of its
    name.

    facts: class attributes that the spec must have beside its fields, such as `equation`; a spec without facts may have
    required fields.
    """
    lines = _lines(file, spec.__name__)
    found = _problems_of_spec(spec, key, facts)
    return [f"plugins: {file}:{lines.get(field, lines[''])}: {problem}" for field, problem in found]


def line_of(file: Path, name: str) -> int:
    """The line at which a class of a file starts."""
    return _lines(file, name)[""]


def _problems_of_spec(spec: type[Spec], key: str, facts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(field or "", problem)"""
    yield from _name_problems(spec, key)
    if not (vars(spec).get("__doc__") or "").strip():
        yield "", f"{spec.__name__} has no docstring; write in a sentence what it is, `list` and `show` print it"
    for fact in facts:
        if not str(getattr(spec, fact, "")).strip():
            yield "", f"{spec.__name__} declares no {fact}; write `{fact}: ClassVar[str] = \"...\"`"
    stopped = getattr(spec, "stop_gradient", "")
    if not isinstance(stopped, str | property):
        yield "stop_gradient", f"stop_gradient is {stopped}, need a sentence on what is a constant, and why"
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
