"""Plugin components: loaded from a folder or an installed package, checked, and then usable like built-in ones."""

from __future__ import annotations

import ast
import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MultipleOf
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from vsetune.config.component_specs import LOSSES, NETWORKS, SUM
from vsetune.config.plugin_import import (
    SPEC_FILE,
    Component,
    component_packages,
    forget,
    forget_package,
    import_folder,
    is_module_name,
    place_of,
    read_source,
    reported_in_one_line,
)
from vsetune.config.registry import Registry, name_of
from vsetune.config.sources.recipe import READERS
from vsetune.config.spec.base import Name, Spec, kinds_of, tunables
from vsetune.config.spec.loading import problems_in
from vsetune.errors import ConfigError, MissingPlugin, Problem
from vsetune.storage.paths import expand_user, usable_path

_REGISTRIES: dict[str, Registry[Any]] = {each.kind: each for each in (LOSSES, NETWORKS, READERS)}

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plugin:
    """One plugin component. kind: `loss`, `network` or `reader`.

    folder: of its spec. package: from which its modules are imported. source: the folder that is hashed and copied;
    `folder`, or the whole package where the component was named by its module. sha256: of the files of `source`.
    """

    kind: str
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


def load_installed() -> tuple[list[Plugin], dict[str, Problem]]:
    """The components that installed packages offer, and the problem of each that cannot be loaded, by name."""
    found: list[Plugin] = []
    broken: dict[str, Problem] = {}
    offered = entry_points()  # it reads the files of every installed package
    points = (offered.select(group=registry.group) for registry in _REGISTRIES.values())
    for point in (each for group in points for each in sorted(group, key=lambda each: each.name)):
        try:
            found += load_module(point.module)
        except ConfigError as error:
            package = point.dist.name if point.dist is not None else point.module
            place = f"(entry point {point.name} of {point.group}, package {package})"
            broken[point.name] = error.problem.worded(f"{error.problem} {place}")
    return found, broken


def plugin_of(spec: type[Spec]) -> Plugin | None:
    """The plugin that a spec comes from; None for a built-in spec."""
    return _plugins.get(spec)


def known_plugins() -> tuple[Plugin, ...]:
    """Every plugin that study files can name now."""
    return tuple(
        plugin for spec, plugin in _plugins.items() if _REGISTRIES[plugin.kind].get(plugin.name) is spec
    )


def place_in_plugin(error: BaseException) -> str | None:
    """`file:line` where an exception came out of a plugin's code; None if it did not pass through any."""
    sources = {plugin.source for plugin in _plugins.values()}
    places = (place_of(error, source) for source in sorted(sources))
    return next((place for place in places if place is not None), None)


def forget_plugins() -> None:
    """Unload all plugins, so that only built-in components remain."""
    for spec, plugin in list(_plugins.items()):
        _REGISTRIES[plugin.kind].remove(spec)
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
                "VSE-C105", "plugins: {folder}: {kind} {name} is also in {other}; rename one, or name only one of the "
                "folders", folder=plugin.folder, kind=plugin.kind, name=plugin.name, other=other.folder,
            )


def _loaded(components: Iterable[Component]) -> tuple[Plugin, ...]:
    found = [plugin for component in components for plugin in _load(component)]
    require_different_names(found)
    return tuple(found)


def _folder_of(reference: str, base: Path) -> Path | None:
    """The folder that a reference names; None for the name of a module. A folder takes precedence over a module."""
    if "://" in reference:
        raise ConfigError(
            "VSE-C102", "plugins: {plugin}: is {got}, need a local folder or a package of a component, with spec.py in "
            "it", plugin=reference, got="an address",
        )
    try:
        text = expand_user(usable_path(reference))
    except ValueError as error:
        raise ConfigError("VSE-C110", "plugins: {reason}", reason=error) from error
    folder = (base / text).absolute()
    if folder.is_dir():
        return folder.resolve()
    if folder.is_file() and folder.name == f"{SPEC_FILE}.py":
        return folder.resolve().parent
    if folder.exists():
        raise ConfigError(
            "VSE-C102", "plugins: {plugin}: is {got}, need a local folder or a package of a component, with spec.py in "
            "it", plugin=folder, got="a file",
        )
    if not is_module_name(reference):
        raise MissingPlugin(
            "VSE-C100", "plugins: {plugin}: no such folder, and no module of this name is installed; relative folders "
            "start at the folder of the study file", plugin=folder,
        )
    return None


def _folders(folder: Path) -> list[Component]:
    """Every component in a folder."""
    if (folder / f"{SPEC_FILE}.py").is_file():
        return [Component(folder, folder)]
    found = sorted(file.parent for file in folder.glob(f"*/{SPEC_FILE}.py") if not file.parent.name.startswith("."))
    if not found:
        raise MissingPlugin(
            "VSE-C101", "plugins: {plugin}: no spec.py in it or in a folder of it; a component is a folder with "
            "spec.py and loss.py, network.py or reader.py", plugin=folder,
        )
    return [Component(each, each) for each in found]


def _load(component: Component) -> Iterator[Plugin]:
    """The losses, networks and readers of one folder."""
    folder, source = component.folder, read_source(component.source)
    name = component.package or import_folder(source)
    with reported_in_one_line(folder):
        specs = [(registry, spec) for registry in _REGISTRIES.values() for spec in registry.of_folder(name)]
    if not specs:
        raise ConfigError(Problem.of(
            "VSE-C120", "defines no component; need a class derived from LossSpec or NetworkSpec with `name: "
            'Literal["my_loss"] = "my_loss"`, or from SourceSpec with `layout: ...`',
        ).at(f"plugins: {folder / SPEC_FILE}.py"))
    problems = [problem for registry, spec in specs for problem in _problems(registry, spec, folder)]
    if problems:
        raise ConfigError([*problems])
    for registry, spec in specs:
        plugin = Plugin(registry.kind, name_of(spec, registry.key), folder, name, source.sha256, component.source)
        other = registry.get(plugin.name)
        if other is not None and other is not spec:
            registry.remove(other)
            _log.debug("plugin %s: %s replaces %s", plugin.key, plugin.package, other.__module__)
        registry.add(spec, code=plugin.sha256)
        _plugins.setdefault(spec, plugin)
        yield plugin


_NAME = TypeAdapter(Name)


def _problems(registry: Registry[Any], spec: type[Spec], folder: Path) -> Iterator[Problem]:
    """Everything a spec lacks, each with file, line and fix."""
    file = folder / f"{SPEC_FILE}.py"
    lines = _lines(file, spec.__name__)
    for field, problem in _problems_of_spec(registry, spec):
        yield problem.at(f"plugins: {file}:{lines.get(field, lines[''])}")
    name = name_of(spec, registry.key)
    other = registry.get(name)
    if other is not None and other not in _plugins:
        yield Problem.of(
            "VSE-C121", "{kind} {name} is one of vsetune's own; give yours another name", kind=registry.kind, name=name
        ).at(f"plugins: {file}:{lines['']}")
    if not (folder / f"{registry.kind}.py").is_file():
        need = "a function `read(source)`" if registry is READERS else f"a class with @register({spec.__name__})"
        yield Problem.of(
            "VSE-C122", "no {kind}.py beside it; need {need} there", kind=registry.kind, need=need
        ).at(f"plugins: {folder}")


def _problems_of_spec(registry: Registry[Any], spec: type[Spec]) -> Iterator[tuple[str, Problem]]:
    """(field or "", problem). A spec without facts, a reader, may have required fields: its files have no default."""
    key = registry.key
    yield from _name_problems(spec, key)
    if not (vars(spec).get("__doc__") or "").strip():
        yield "", Problem.of(
            "VSE-C123", "{spec} has no docstring; describe it in a sentence, which `list` and `show` print",
            spec=spec.__name__,
        )
    for fact in registry.facts:
        if not str(getattr(spec, fact, "")).strip():
            yield "", Problem.of(
                "VSE-C124", '{spec} declares no {fact}; write `{fact}: ClassVar[str] = "..."`', spec=spec.__name__,
                fact=fact,
            )
    stopped = getattr(spec, "stop_gradient", "")
    if not isinstance(stopped, str | property):
        yield "stop_gradient", Problem.of(
            "VSE-C125", "stop_gradient is {got}, need a sentence that names the constant and the reason", got=stopped
        )
    try:
        ranges = dict(tunables(spec))
    except ValueError as error:
        (problem,) = problems_in(error)
        yield problem.partition(":")[0], problem
        return
    for name, field in spec.model_fields.items():
        if name != key and not _is_ours(spec, name):
            yield from _field_problems(name, field, is_tunable=name in ranges)
    if not registry.facts and any(field.is_required() for field in spec.model_fields.values()):
        return
    try:
        spec()
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(map(str, first["loc"])) or "defaults"
        yield path.partition(".")[0], Problem.of(
            "VSE-C126", "{spec}() is not valid ({field}: {reason}); give every field a default inside its limits",
            spec=spec.__name__, field=path, reason=first["msg"],
        )


def _name_problems(spec: type[Spec], key: str) -> Iterator[tuple[str, Problem]]:
    name = name_of(spec, key)
    try:
        _NAME.validate_python("" if name == SUM else name)
    except ValidationError:
        yield key, Problem.of(
            "VSE-C127", "got the name {name!r}, need letters, digits, `_` and `-`, at most 100, and not `sum`; rename "
            "it", name=name,
        )
    if get_args(spec.model_fields[key].annotation) != (name,):
        yield key, Problem.of(
            "VSE-C128", '`{field}` takes other values than its own; write `{field}: Literal["{name}"] = "{name}"`',
            field=key, name=name,
        )


def _field_problems(name: str, field: FieldInfo, *, is_tunable: bool) -> Iterator[tuple[str, Problem]]:
    if _is_number(field.annotation) and not is_tunable and not _is_bounded(field):
        yield name, Problem.of(
            "VSE-C129", "{field} is a number without a range; declare it with `tunable(default, Range(low=..., "
            'high=...), description="...")` to have it searched, or with `Field(default, ge=..., le=..., '
            'description="...")`', field=name,
        )
    elif not (field.description or "").strip():
        yield name, Problem.of(
            "VSE-C130", '{field} has no description; write `Field(..., description="meaning and unit")`', field=name
        )


def _is_number(annotation: Any) -> bool:
    """Whether the type is int, float, or a union that contains one."""
    kinds = list(kinds_of(annotation))
    are_many = any(isinstance(origin := get_origin(kind), type) and issubclass(origin, Collection) for kind in kinds)
    return (int in kinds or float in kinds) and not are_many


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
        raise ConfigError(
            "VSE-C104", "plugins: {path}: changed since this process read it; start the command again", path=file
        ) from error
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return {"": node.lineno} | {
                each.target.id: each.lineno
                for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
            }
    return {"": 1}
