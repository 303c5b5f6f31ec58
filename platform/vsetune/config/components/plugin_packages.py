"""Components in importable packages: installed ones, or packages on PYTHONPATH."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path

from vsetune.config.components.catalogue import SPEC_FILE
from vsetune.config.components.plugin_import import read_source, told_in_one_line
from vsetune.errors import ConfigError, MissingPlugin

_imported: dict[str, str] = {}
"""The hash of each outermost package when this process first imported it."""


@dataclass(frozen=True)
class Component:
    """A folder with a `spec.py`. source: the folder that is hashed and copied with it. package: the name under which it
    is imported; None for a folder that becomes a package of its own."""

    folder: Path
    source: Path
    package: str | None = None


def is_module_name(text: str) -> bool:
    """Whether the text can be the dotted name of a module."""
    return all(part.isidentifier() for part in text.split("."))


def component_packages(name: str) -> list[Component]:
    """Every component that the module `name` stands for: its package, or the packages inside.

    Their source is the outermost package, since its modules may import one another by their full names. ConfigError
    when the module is missing, is broken, has no component, or has changed since this process imported it.
    """
    package, folder = _package(name)
    root = _outermost(package, folder)
    sha256 = read_source(root).sha256
    if _imported.setdefault(str(root), sha256) != sha256:
        raise ConfigError(f"plugins: {root}: changed since this process imported it; start the command again")
    if (folder / f"{SPEC_FILE}.py").is_file():
        return [Component(folder, root, package)]
    inside = sorted(file.parent for file in folder.glob(f"*/{SPEC_FILE}.py"))
    if not inside:
        raise ConfigError(
            f"plugins: {name}: {folder} has no {SPEC_FILE}.py, nor has a package in it; name the package of a component"
        )
    return [Component(each, root, f"{package}.{each.name}") for each in inside]


def forget_package(root: Path) -> None:
    """Forget the hash of a package that this process imported."""
    _imported.pop(str(root), None)


def _package(name: str) -> tuple[str, Path]:
    """The package `name`, or the package that contains the module `name`; and its folder."""
    if name.partition(".")[0] == "vsetune":
        raise ConfigError(f"plugins: {name}: is vsetune itself, whose components are known anyway; leave it out")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise MissingPlugin(
                f"plugins: {name}: no such folder, and no module of this name is installed; name a folder relative to "
                "the study file, or install the package"
            ) from error
        with told_in_one_line(_folder_that_failed(name)):
            raise
    except (Exception, SystemExit):
        with told_in_one_line(_folder_that_failed(name)):
            raise
    paths = list(getattr(module, "__path__", []))
    if paths:
        return name, Path(paths[0]).resolve()
    package, file = name.rpartition(".")[0], getattr(module, "__file__", None)
    if not package or file is None:
        raise ConfigError(
            f"plugins: {name}: is a single module; a component is a package with {SPEC_FILE}.py and loss.py or "
            "network.py"
        )
    return package, Path(file).resolve().parent


def _outermost(package: str, folder: Path) -> Path:
    """The folder of the outermost package with an `__init__.py` around a package; its own folder if none has one."""
    found = current = folder
    for name in reversed(package.split(".")[:-1]):
        current = current.parent
        if current.name != name:
            break
        if (current / "__init__.py").is_file():
            found = current
    return found


def _folder_that_failed(name: str) -> Path:
    """The folder of a module whose import raised."""
    spec = importlib.util.find_spec(name.partition(".")[0])
    places = list(spec.submodule_search_locations or []) if spec is not None else []
    return Path(places[0]) if places else Path("/")
