"""Classes that take the settings of a spec as keyword arguments, and show them."""

from __future__ import annotations

import inspect
from inspect import Parameter
from typing import Any

from vsetune.config.spec.base import Spec


def show_settings(cls: Any, spec: type[Spec]) -> None:
    """Gives a class the signature and the docstring of its settings, for `help` and for completion by editors.

    The other keyword arguments of its constructor come first; its base class says what they mean.
    """
    own = inspect.signature(cls).parameters.values()
    fields = {name: field for name, field in spec.model_fields.items() if name != "name"}
    defaults = {name: field.get_default(call_default_factory=True) for name, field in fields.items()}
    cls.__signature__ = inspect.Signature([
        *(each for each in own if each.kind is Parameter.KEYWORD_ONLY),
        *(Parameter(name, Parameter.KEYWORD_ONLY, default=defaults[name], annotation=field.annotation)
          for name, field in fields.items()),
    ])
    facts = (getattr(spec, name, "") for name in ("equation", "source"))
    settings = (f"{name} = {defaults[name]!r}: {field.description}" for name, field in fields.items())
    cls.__doc__ = "\n\n".join(filter(None, (inspect.getdoc(spec), *facts, "\n".join(settings))))
