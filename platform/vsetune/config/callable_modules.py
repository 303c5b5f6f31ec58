"""Packages whose submodules can be called: `vsetune.losses.lseh` is the folder of a loss, and also makes that loss."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any


class CallableModule(ModuleType):
    """A module that is called as the function that its package chose for it."""

    made: Callable[..., Any]

    def __call__(self, *args: Any, **settings: Any) -> Any:
        return type(self).made(*args, **settings)


class _Package(ModuleType):
    """A package that is told of every submodule when that is imported, and makes it callable then."""

    chosen: Callable[[str], Callable[..., Any] | None]

    def __setattr__(self, name: str, value: Any) -> None:
        make = type(self).chosen(name) if type(value) is ModuleType else None
        if make is not None:
            value.__doc__ = value.__doc__ or make.__doc__
            value.__class__ = type(name, (CallableModule,), {"made": staticmethod(make)})
        super().__setattr__(name, value)


def make_callable(package: str, chosen: Callable[[str], Callable[..., Any] | None]) -> None:
    """From now on submodules of `package`, which is being imported, can be called where `chosen` gives a function.

    chosen: the function by the name of a submodule; None: this one stays a plain module. It is asked once, when the
    submodule is imported. A submodule can be called before anybody has imported it if the package's `__getattr__` does.
    """
    module = sys.modules[package]
    module.__class__ = type("package", (_Package,), {"chosen": staticmethod(chosen)})


def submodule(package: str, name: str) -> ModuleType | None:
    """The submodule, imported if need be, for a package's `__getattr__`; None if there is none."""
    try:
        return importlib.import_module(f"{package}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{package}.{name}":
            raise
        return None


def no_attribute(package: str, name: str) -> AttributeError:
    """The error of a module for a name that it does not have. Python adds `Did you mean` from `name` and `obj`."""
    return AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])


def components_by_name(
    package: str, folder: Path, *, names: Callable[[], Iterable[str]], maker: Callable[[str], Callable[..., Any]],
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package with a folder per component, whose names make components.

    folder: of the package. names: of all components; plugins and folders with several have names without a folder.
    maker: the function that makes the component of a name.
    """
    def attribute(name: str) -> Any:
        found = None if name.startswith("_") else submodule(package, name)
        if found is None and name not in names():
            raise no_attribute(package, name)
        return maker(name) if found is None else found

    make_callable(package, lambda name: maker(name) if (folder / name / "spec.py").is_file() else None)
    return attribute, lambda: sorted(names())
