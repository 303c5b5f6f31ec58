"""Builds a loss from its spec, or a weighted sum of losses on the same batch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from vsetune.config.component_specs import LOSSES, LossSpec, MemorySpec, SumSpec
from vsetune.config.registry import guarded
from vsetune.errors import ConfigError
from vsetune.losses.loss_base import Loss, LossContext, LossInputs, LossOfLosses, LossOutput
from vsetune.losses.parts.cross_batch_memory import CrossBatchMemory, MemorySettings

register = LOSSES.builds
"""Class decorator: this loss is built from that spec, or from (spec, context) if its `needs_context` is True."""


def build_loss(spec: LossSpec, context: LossContext | None = None) -> Loss:
    """The loss that a spec describes, in its initial state, sampled with torch's global generator where it is random.

    context: needed only by losses whose parameters or memories depend on the size of the data or of the network. Raises
    ConfigError for a spec without a loss, for a missing context, and where a plugin's code fails.
    """
    build: Callable[..., Loss] = LOSSES.class_of(type(spec))
    surroundings = [_required(context, spec)] if getattr(build, "needs_context", False) else []
    with guarded(type(spec)):
        loss = build(spec, *surroundings)
    if not isinstance(spec, MemorySpec) or spec.memory_size == 0:
        return loss
    settings = MemorySettings(spec.memory_size, spec.memory_start_epoch, spec.semantic_source is not None)
    return CrossBatchMemory(loss, settings, _required(context, spec))


def _required(context: LossContext | None, spec: LossSpec) -> LossContext:
    if context is None:
        raise ConfigError(
            "VSE-L005", "loss {loss}: needs the embedding size and the number of training images; in your own training "
            "loop make it with embedding_size= and images=", loss=spec.name,
        )
    return context


@register(SumSpec)
class WeightedSum(LossOfLosses):
    """Sum over parts of weight x loss.

    Each part is logged before weighting under its name, its own logged values under `name_...`. Hard negatives are
    those of the first part that mines any.
    """

    needs_context = True

    def __init__(self, spec: SumSpec, context: LossContext) -> None:
        super().__init__(warmup_epochs=0)
        self.weights = {name: part.weight for name, part in spec.parts.items()}
        # a module may not be called `epoch` or the like, a part may
        self.losses = nn.ModuleList(build_loss(part.loss, context) for part in spec.parts.values())

    def forward(self, inputs: LossInputs) -> LossOutput:
        outputs = {name: loss(inputs) for name, loss in self.named_parts()}
        value = torch.stack([self.weights[name] * output.value for name, output in outputs.items()]).sum()
        parts: dict[str, Tensor] = {}
        for name, output in outputs.items():
            parts[name] = output.value.detach()
            parts |= {f"{name}_{detail}": number for detail, number in output.parts.items()}
        selections = [output.selection for output in outputs.values() if output.selection is not None]
        return LossOutput(value=value, parts=parts, selection=selections[0] if selections else None)

    def named_parts(self) -> list[tuple[str, Loss]]:
        """The parts in the order of the study file."""
        return list(zip(self.weights, self.inner_losses(), strict=True))

    def inner_losses(self) -> list[Loss]:
        return [loss for loss in self.losses if isinstance(loss, Loss)]

    def continue_from(self, previous: Loss) -> None:
        if not isinstance(previous, WeightedSum):
            raise TypeError(f"a sum of losses cannot continue from {type(previous).__name__}")
        for (_, mine), (_, theirs) in zip(self.named_parts(), previous.named_parts(), strict=True):
            mine.continue_from(theirs)
