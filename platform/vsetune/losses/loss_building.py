"""Builds a loss from its spec."""

from __future__ import annotations

from collections.abc import Callable

from vsetune.config.component_specs import LossSpec, MemorySpec
from vsetune.config.components.catalogue import Register, guarded
from vsetune.errors import ConfigError
from vsetune.losses.loss_base import Loss, LossContext
from vsetune.losses.parts.cross_batch_memory import CrossBatchMemory, MemorySettings

_CLASSES: Register[Loss] = Register("loss", file="loss")

register = _CLASSES.add
"""Class decorator: this loss is built from that spec, or from (spec, context) if its `needs_context` is True."""


def build_loss(spec: LossSpec, context: LossContext | None = None) -> Loss:
    """The loss that a spec describes, in its initial state, sampled with torch's global generator where it is random.

    context: needed only by losses whose parameters or memories depend on the size of the data or of the network. Raises
    ConfigError for a spec without a loss, for a missing context, and where a plugin's code fails.
    """
    build: Callable[..., Loss] = _CLASSES.class_of(type(spec))
    surroundings = [_required(context, spec)] if getattr(build, "needs_context", False) else []
    with guarded(type(spec)):
        loss = build(spec, *surroundings)
    if not isinstance(spec, MemorySpec) or spec.memory_size == 0:
        return loss
    settings = MemorySettings(spec.memory_size, spec.memory_start_epoch, spec.semantic_source is not None)
    return CrossBatchMemory(loss, settings, _required(context, spec))


def _required(context: LossContext | None, spec: LossSpec) -> LossContext:
    if context is None:
        raise ConfigError(f"loss {type(spec).__name__}: needs the embedding size and the number of training images")
    return context
