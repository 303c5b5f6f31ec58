"""Names of a package that are imported when they are first used (PEP 562), so that the package itself imports fast."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def lazy_names(
    package: str, places: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package. places: the public names that each module defines."""
    modules = {name: module for module, names in places.items() for name in names}

    def found(name: str) -> Any:
        if name not in modules:  # Python adds `Did you mean` from `name` and `obj`
            raise AttributeError(
                f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package]
            )
        return getattr(importlib.import_module(modules[name]), name)

    return found, lambda: [*modules]
