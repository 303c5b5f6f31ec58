"""A weighted sum of losses on the same batch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vsetune.config.component_specs import SumSpec
from vsetune.losses.loss_base import Loss, LossContext, LossInputs, LossOutput, ParameterGroup
from vsetune.losses.loss_building import build_loss, register


@register(SumSpec)
class WeightedSum(Loss):
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
        return [(name, loss) for name, loss in zip(self.weights, self.losses, strict=True) if isinstance(loss, Loss)]

    def start_epoch(self, epoch: int) -> None:
        super().start_epoch(epoch)
        for _, loss in self.named_parts():
            loss.start_epoch(epoch)

    def before_step(self) -> None:
        for _, loss in self.named_parts():
            loss.before_step()

    def after_step(self) -> None:
        for _, loss in self.named_parts():
            loss.after_step()

    def parameter_groups(self) -> list[ParameterGroup]:
        return [group for _, loss in self.named_parts() for group in loss.parameter_groups()]

    def shared_parameters(self) -> dict[str, Tensor]:
        return {name: value for _, loss in self.named_parts() for name, value in loss.shared_parameters().items()}

    def continue_from(self, previous: Loss) -> None:
        if not isinstance(previous, WeightedSum):
            raise TypeError(f"a sum of losses cannot continue from {type(previous).__name__}")
        for (_, mine), (_, theirs) in zip(self.named_parts(), previous.named_parts(), strict=True):
            mine.continue_from(theirs)
