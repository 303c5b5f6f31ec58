"""From a loss spec to its loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from vsetune.config.losses import LossSpec
from vsetune.errors import ConfigError
from vsetune.losses.base import Loss

L = TypeVar("L", bound=Loss)

_LOSSES: dict[type[LossSpec], Callable[[Any], Loss]] = {}


def register(spec: type[LossSpec]) -> Callable[[type[L]], type[L]]:
    """Class decorator: this loss is built from that spec. Raises ValueError if the spec already has a loss."""

    def add(loss: type[L]) -> type[L]:
        if spec in _LOSSES:
            raise ValueError(f"{spec.__name__} is already registered")
        _LOSSES[spec] = loss
        return loss

    return add


def build_loss(spec: LossSpec) -> Loss:
    """The loss a spec describes, in its initial state. Raises ConfigError for a spec without a loss."""
    build = _LOSSES.get(type(spec))
    if build is None:
        known = ", ".join(sorted(known_spec.__name__ for known_spec in _LOSSES))
        raise ConfigError(f"loss: got a {type(spec).__name__}, which no loss is built from; need one of {known}")
    return build(spec)
