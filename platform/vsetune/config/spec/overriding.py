"""Methods of a component of one's own that vsetune calls."""

from __future__ import annotations

import inspect
from inspect import Parameter
from typing import Any

from vsetune.errors import ConfigError


def require_callable_overrides(cls: type, base: type) -> None:
    """ConfigError, which starts with file and line, for a method of a class that cannot be called as the method of
    its base class that it replaces."""
    for name, method in vars(cls).items():
        replaced = getattr(base, name, None)
        if name.startswith("_") or not inspect.isfunction(method) or not inspect.isfunction(replaced):
            continue
        need = [each for each in inspect.signature(replaced).parameters.values() if each.default is Parameter.empty]
        given: dict[str, Any] = {each.name: None for each in need if each.kind is Parameter.KEYWORD_ONLY}
        taken = inspect.signature(method)
        try:
            taken.bind(*[None] * (len(need) - len(given)), **given)
        except TypeError as error:
            code = method.__code__
            raise ConfigError(
                "VSE-C113", "{place}: {cls}.{method} takes ({got}), need ({need})",
                place=f"{code.co_filename}:{code.co_firstlineno}", cls=cls.__name__, method=name,
                got=", ".join(taken.parameters), need=", ".join(inspect.signature(replaced).parameters),
            ) from error
