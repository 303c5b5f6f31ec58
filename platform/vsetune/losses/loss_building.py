"""From a loss spec to its loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from vsetune.config.components.catalogue import guarded, import_sibling
from vsetune.errors import ConfigError
from vsetune.losses.loss_base import Loss, LossContext
from vsetune.losses.loss_spec import LossSpec, MemorySpec
from vsetune.losses.parts.cross_batch_memory import CrossBatchMemory, MemorySettings

L = TypeVar("L", bound=Loss)

LOSS_FILE = "loss"

_LOSSES: dict[type[LossSpec], Callable[..., Loss]] = {}


def register(spec: type[LossSpec]) -> Callable[[type[L]], type[L]]:
    """Class decorator: this loss is built from that spec, or from (spec, context) if its `needs_context` is True.

    Raises ValueError if the spec already has a loss.
    """

    def add(loss: type[L]) -> type[L]:
        if spec in _LOSSES:
            raise ValueError(f"{spec.__name__} is already registered")
        _LOSSES[spec] = loss
        return loss

    return add


def build_loss(spec: LossSpec, context: LossContext | None = None) -> Loss:
    """The loss a spec describes, in its initial state, drawn from torch's global generator where it is random.

    context: only losses with parameters or memories of the size of the data or of the network need it.
    Raises ConfigError for a spec without a loss, for a missing context, and where a plugin's code fails.
    """
    build = _class_of(type(spec))
    surroundings = [_required(context, spec)] if getattr(build, "needs_context", False) else []
    with guarded(type(spec)):
        loss = build(spec, *surroundings)
    if not isinstance(spec, MemorySpec) or spec.memory_size == 0:
        return loss
    settings = MemorySettings(spec.memory_size, spec.memory_start_epoch, spec.semantic_source is not None)
    return CrossBatchMemory(loss, settings, _required(context, spec))


def _class_of(spec: type[LossSpec]) -> Callable[..., Loss]:
    """Importing the `loss.py` beside the spec registers it."""
    if spec not in _LOSSES:
        import_sibling(spec, LOSS_FILE)
    if spec not in _LOSSES:
        raise ConfigError(
            f"loss: got a {spec.__name__}, which no loss is built from; need a class with "
            f"@register({spec.__name__}) in {LOSS_FILE}.py beside its spec"
        )
    return _LOSSES[spec]


def _required(context: LossContext | None, spec: LossSpec) -> LossContext:
    if context is None:
        raise ConfigError(f"loss {type(spec).__name__}: needs the embedding size and the number of training images")
    return context
