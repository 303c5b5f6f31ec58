"""Modules that load when something of them is used, and not when a library that we load says `import`.

For libraries that import others for ways we never take. `importlib.util.LazyLoader` was made for this, but lets a
module load as soon as it is imported a second time.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

_PATH = "_path_until_it_loads"
_loading = threading.RLock()


class UnusedModule(ModuleType):
    """Stands in `sys.modules` for a module until it is asked for more than importing it takes. Then it is the module.

    Whatever fails when it loads is raised by who asked, who may ask again.
    """

    def __getattr__(self, name: str) -> Any:
        with _loading:
            if _PATH in vars(self):
                _load(self)
        if type(self) is UnusedModule:  # asked by what it is loading
            raise AttributeError(f"module {self.__name__} is loading and has no attribute {name} yet")
        return getattr(self, name)


def import_when_used(name: str) -> None:
    """Have `import name` load nothing. A module that was imported already, or is not installed, stays as it is."""
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    if spec is None:
        return
    module = importlib.util.module_from_spec(spec)
    module.__class__ = UnusedModule
    vars(module)[_PATH] = spec.submodule_search_locations
    vars(module).pop("__path__", None)  # whoever imports a submodule asks for it, and loads the package before
    sys.modules[name] = module
    package, _, last = name.rpartition(".")
    if package:
        setattr(sys.modules[package], last, module)


@contextmanager
def submodules_alone(package: str) -> Iterator[None]:
    """Inside, submodules of a package that is not used yet are imported without it."""
    found = vars(sys.modules[package])
    path = found.get(_PATH)
    if path is not None:
        found["__path__"] = path
    try:
        yield
    finally:
        if _PATH in found:
            found.pop("__path__", None)


def _load(module: UnusedModule) -> None:
    path, spec = vars(module).pop(_PATH), module.__spec__
    if path is not None:
        module.__path__ = path
    assert spec is not None
    assert spec.loader is not None
    try:
        spec.loader.exec_module(module)
    except BaseException:
        vars(module)[_PATH] = path
        raise
    module.__class__ = ModuleType  # type: ignore[assignment]
