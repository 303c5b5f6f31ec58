"""SigLIP (Zhai et al. 2023, Algorithm 1): a logistic loss of every combination of image and caption.

    1/N sum_ij softplus(-z_ij (e^u S_ij + b)),   z_ij = 1 for a pair and -1 otherwise

The sum is divided by the number of images N, not by the number of combinations. u and b are learned and not clipped, as
published.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from vsetune.losses.loss_base import Loss, LossInputs, LossOutput, Selection, at_least_float32
from vsetune.losses.loss_building import register
from vsetune.losses.parts.pairing import batch_negatives, diagonal, same_image
from vsetune.losses.siglip.spec import SiglipSpec


def sigmoid_loss(logits: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    """1/N (sum over positives of softplus(-logit) + sum over negatives of softplus(logit)). Scalar.

    logits: (N, M). positives, negatives: (N, M) bool; entries that are neither are ignored.
    """
    attracted = softplus(-logits).masked_fill(~positives, 0.0).sum()
    repelled = softplus(logits).masked_fill(~negatives, 0.0).sum()
    return (attracted + repelled) / len(logits)


@register(SiglipSpec)
class Siglip(Loss):
    """SigLIP's loss. log_scale, bias: u and b, trained with the network's optimizer unless `learned` is false."""

    spec: SiglipSpec
    log_scale: Tensor
    bias: Tensor

    def __init__(self, spec: SiglipSpec) -> None:
        super().__init__(spec)
        self.log_scale = nn.Parameter(torch.tensor(math.log(spec.scale)), requires_grad=spec.learned)
        self.bias = nn.Parameter(torch.tensor(spec.bias), requires_grad=spec.learned)

    def forward(self, inputs: LossInputs) -> LossOutput:
        similarity = at_least_float32(inputs.similarity)
        positives = diagonal(similarity) if inputs.are_pairs else same_image(inputs)
        negatives = batch_negatives(inputs, self.spec.variant)
        return LossOutput(
            value=sigmoid_loss(self.log_scale.exp() * similarity + self.bias, positives, negatives),
            parts={"scale": self.log_scale.detach().exp(), "bias": self.bias.detach().clone()},
            selection=Selection(similarity.detach(), negatives, None, None, is_proxy=True),
        )

    def shared_parameters(self) -> dict[str, Tensor]:
        """u and b, for networks that store them with their weights."""
        return {"logit_scale": self.log_scale.detach(), "logit_bias": self.bias.detach()}

    @torch.no_grad()
    def take_network_parameters(self, held: Mapping[str, Tensor]) -> None:
        if self.spec.start == "network":
            self.log_scale.copy_(held.get("logit_scale", self.log_scale))
            self.bias.copy_(held.get("logit_bias", self.bias))
