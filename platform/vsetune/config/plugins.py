"""Plugin components: loaded from a folder, checked, and then usable like built-in ones."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError

from vsetune.config.component_specs import LOSSES, NETWORKS, SUM
from vsetune.config.plugin_import import (
    SPEC_FILE,
    forget,
    import_folder,
    place_of,
    read_source,
    reported_in_one_line,
)
from vsetune.config.registry import Registry, name_of
from vsetune.config.sources.recipe import READERS
from vsetune.config.spec.base import Name, Spec, tunables
from vsetune.config.spec.loading import problems_in
from vsetune.errors import ConfigError, Message, MissingPlugin, Problem
from vsetune.home.paths import expand_user, usable_path

_REGISTRIES: dict[str, Registry[Any]] = {each.kind: each for each in (LOSSES, NETWORKS, READERS)}

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plugin:
    """One plugin component. kind: `loss`, `network` or `reader`.

    folder: of its spec and code, which is hashed and copied. package: the name under which it is imported. sha256: of
    the files of `folder`.
    """

    kind: str
    name: str
    folder: Path
    package: str
    sha256: str

    @property
    def key(self) -> str:
        """Key in records: a loss and a network may share a name."""
        return f"{self.kind}.{self.name}"


_plugins: dict[type[Spec], Plugin] = {}
_NO_FOLDER = Message(
    "VSE-C102", "plugins: {plugin}: is {got}, need a local folder or a package of a component, with spec.py in it"
)


def load_plugin(reference: str, *, base: Path) -> tuple[Plugin, ...]:
    """`load_plugins` of one reference."""
    return load_plugins([reference], base=base)


def load_plugins(references: Iterable[str], *, base: Path, beside: Iterable[Plugin] = ()) -> tuple[Plugin, ...]:
    """Load the components that references name, those of each in alphabetical order of their folders.

    reference: a folder, relative to `base` or absolute, `~` allowed, that has a `spec.py` or whose subfolders have one.
    Loading the same code again changes nothing; changed code replaces the code that was loaded from there before.
    beside: others that must not have the same names.

    ConfigError with one line per problem: code that cannot be imported, a name that is taken or repeated, a spec that
    lacks what built-in specs have. MissingPlugin if the only problem is references that lead nowhere.
    """
    found: list[Plugin] = []
    problems: list[str] = []
    missing: list[str] = []
    for reference in dict.fromkeys(references):
        try:
            found += [plugin for folder in _components(_folder_of(reference, base)) for plugin in _load(folder)]
        except MissingPlugin as error:
            missing += error.problems
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError([*problems, *missing])
    if missing:
        raise MissingPlugin(missing)
    _require_different_names([*beside, *found])
    return tuple(found)


def resolved_reference(reference: str, *, base: Path) -> str:
    """A folder with its full path, so that it is found from anywhere; unchanged if it is gone."""
    folder = base / expand_user(reference)
    return str(folder.resolve()) if folder.is_dir() else reference


def load_installed() -> tuple[list[Plugin], dict[str, Problem]]:
    """The components that installed packages offer, and the problem of each that cannot be loaded, by name."""
    found: list[Plugin] = []
    broken: dict[str, Problem] = {}
    offered = entry_points()  # it reads the files of every installed package
    points = (offered.select(group=registry.group) for registry in _REGISTRIES.values())
    for point in (each for group in points for each in sorted(group, key=lambda each: each.name)):
        try:
            found += load_plugin(str(_folder_of_module(point.module)), base=Path())
        except ConfigError as error:
            package = point.dist.name if point.dist is not None else point.module
            place = f"(entry point {point.name} of {point.group}, package {package})"
            broken[point.name] = error.problem.worded(f"{error.problem} {place}")
    return found, broken


def _folder_of_module(name: str) -> Path:
    with reported_in_one_line(Path("/")):
        spec = importlib.util.find_spec(name)
    folders = list(spec.submodule_search_locations or []) if spec is not None else []
    if not folders:
        raise MissingPlugin(_NO_FOLDER(plugin=name, got="no package"))
    return Path(folders[0])


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
    folders = {plugin.folder for plugin in _plugins.values()}
    places = (place_of(error, folder) for folder in sorted(folders))
    return next((place for place in places if place is not None), None)


def forget_plugins() -> None:
    """Unload all plugins, so that only built-in components remain."""
    for spec, plugin in list(_plugins.items()):
        _REGISTRIES[plugin.kind].remove(spec)
        forget(plugin.package)
    _plugins.clear()


def _require_different_names(plugins: Sequence[Plugin]) -> None:
    """ConfigError if two folders, or two versions of one, have a component of the same kind and name."""
    by_key: dict[str, Plugin] = {}
    for plugin in plugins:
        other = by_key.setdefault(plugin.key, plugin)
        if other.sha256 != plugin.sha256 or other.package != plugin.package:
            raise ConfigError(
                "VSE-C105", "plugins: {folder}: {kind} {name} is also in {other}; rename one, or name only one of the "
                "folders", folder=plugin.folder, kind=plugin.kind, name=plugin.name, other=other.folder,
            )


def _folder_of(reference: str, base: Path) -> Path:
    try:
        folder = (base / expand_user(usable_path(reference))).absolute()
    except ValueError as error:
        raise ConfigError("VSE-C110", "plugins: {reason}", reason=error) from error
    if folder.is_dir():
        return folder.resolve()
    if folder.exists() or "://" in reference:
        raise ConfigError(_NO_FOLDER(plugin=reference, got="a file" if folder.exists() else "an address"))
    raise MissingPlugin(
        "VSE-C100", "plugins: {plugin}: no such folder; relative folders start at the folder of the study file",
        plugin=folder,
    )


def _components(folder: Path) -> list[Path]:
    """The folders of the components in a folder."""
    if (folder / f"{SPEC_FILE}.py").is_file():
        return [folder]
    found = sorted(file.parent for file in folder.glob(f"*/{SPEC_FILE}.py") if not file.parent.name.startswith("."))
    if not found:
        raise MissingPlugin(
            "VSE-C101", "plugins: {plugin}: no spec.py in it or in a folder of it; a component is a folder with "
            "spec.py and loss.py, network.py or reader.py", plugin=folder,
        )
    return found


def _load(folder: Path) -> Iterator[Plugin]:
    """The losses, networks and readers of one folder."""
    source = read_source(folder)
    package = import_folder(source)
    with reported_in_one_line(folder):
        specs = [(registry, spec) for registry in _REGISTRIES.values() for spec in registry.of_folder(package)]
    if not specs:
        raise ConfigError(Problem.of(
            "VSE-C120", "defines no component; need a class derived from LossSpec or NetworkSpec with `name: "
            'Literal["my_loss"] = "my_loss"`, or from SourceSpec with `layout: ...`',
        ).at(f"plugins: {folder / SPEC_FILE}.py"))
    problems = [problem for registry, spec in specs for problem in _problems(registry, spec, folder)]
    if problems:
        raise ConfigError([*problems])
    for registry, spec in specs:
        plugin = Plugin(registry.kind, name_of(spec, registry.key), folder, package, source.sha256)
        other = registry.get(plugin.name)
        if other is not None and other is not spec:
            registry.remove(other)
            _log.debug("plugin %s: %s replaces %s", plugin.key, plugin.package, other.__module__)
        registry.add(spec)
        _plugins.setdefault(spec, plugin)
        yield plugin


_NAME = TypeAdapter(Name)


def _problems(registry: Registry[Any], spec: type[Spec], folder: Path) -> Iterator[Problem]:
    """Everything that a spec lacks to be selected, set and searched, each with its file and the fix. `losses check` and
    `networks check` find what it lacks for readers."""
    for problem in _problems_of_spec(registry, spec):
        yield problem.at(f"plugins: {folder / SPEC_FILE}.py")
    if not (folder / f"{registry.kind}.py").is_file():
        need = "a function `read(source)`" if registry is READERS else f"a class with @register({spec.__name__})"
        yield Problem.of(
            "VSE-C122", "no {kind}.py beside it; need {need} there", kind=registry.kind, need=need
        ).at(f"plugins: {folder}")


def _problems_of_spec(registry: Registry[Any], spec: type[Spec]) -> Iterator[Problem]:
    """A spec without facts, a reader, may have required fields: its files have no default."""
    key, name = registry.key, name_of(spec, registry.key)
    try:
        _NAME.validate_python("" if name == SUM else name)
    except ValidationError:
        yield Problem.of(
            "VSE-C127", "got the name {name!r}, need letters, digits, `_` and `-`, at most 100, and not `sum`; rename "
            "it", name=name,
        )
    if get_args(spec.model_fields[key].annotation) != (name,):
        yield Problem.of(
            "VSE-C128", '`{field}` takes other values than its own; write `{field}: Literal["{name}"] = "{name}"`',
            field=key, name=name,
        )
    other = registry.get(name)
    if other is not None and other not in _plugins:
        yield Problem.of(
            "VSE-C121", "{kind} {name} is one of vsetune's own; give yours another name", kind=registry.kind, name=name
        )
    for fact in registry.facts:
        if not str(getattr(spec, fact, "")).strip():
            yield Problem.of(
                "VSE-C124", '{spec} declares no {fact}; write `{fact}: ClassVar[str] = "..."`', spec=spec.__name__,
                fact=fact,
            )
    stopped = getattr(spec, "stop_gradient", "")
    if not isinstance(stopped, str | property):
        yield Problem.of(
            "VSE-C125", "stop_gradient is {got}, need a sentence that names the constant and the reason", got=stopped
        )
    try:
        list(tunables(spec))
    except ValueError as error:
        yield from problems_in(error)
        return
    if not registry.facts and any(field.is_required() for field in spec.model_fields.values()):
        return
    try:
        spec()
    except ValidationError as error:
        first = error.errors()[0]
        yield Problem.of(
            "VSE-C126", "{spec}() is not valid ({field}: {reason}); give every field a default inside its limits",
            spec=spec.__name__, field=".".join(map(str, first["loc"])) or "defaults", reason=first["msg"],
        )
