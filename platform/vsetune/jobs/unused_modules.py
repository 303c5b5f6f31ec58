"""Modules that load when something of them is used, and not when a library that we load says `import`.

For libraries that import others for ways we never take. `importlib.util.LazyLoader` was made for this, but lets a
module load as soon as it is imported a second time.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
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


def import_when_used(name: str, *, keep_submodules: bool = False) -> None:
    """Have `import name` load nothing. A module that was imported already, or is not installed, stays as it is.

    keep_submodules: these can be imported without it; else, as always, it loads before them.
    """
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    if spec is None:
        return
    module = importlib.util.module_from_spec(spec)
    module.__class__ = UnusedModule
    vars(module)[_PATH] = spec.submodule_search_locations
    if not keep_submodules:
        vars(module).pop("__path__", None)
    sys.modules[name] = module
    package, _, last = name.rpartition(".")
    if package:
        setattr(sys.modules[package], last, module)


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
