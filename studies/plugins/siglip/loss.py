"""SigLIP (Zhai et al. 2023, Algorithm 1): a logistic loss on every combination of image and caption."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from vsetune.losses.loss_base import Loss, LossInputs, LossOutput, Selection, at_least_float32
from vsetune.losses.loss_building import register
from vsetune.losses.parts.pairing import batch_negatives, diagonal, is_pairs, same_image

from .spec import SiglipSpec


def sigmoid_loss(logits: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    """-1/N sum over positives of log sigmoid(logit) + over negatives of log sigmoid(-logit).

    logits: (N, M). positives, negatives: (N, M) bool; what is neither is ignored. N: images, as in the paper.
    """
    attracted = logsigmoid(logits).masked_fill(~positives, 0.0).sum()
    repelled = logsigmoid(-logits).masked_fill(~negatives, 0.0).sum()
    return -(attracted + repelled) / len(logits)


@register(SiglipSpec)
class Siglip(Loss):
    """logits = e^u S + b, with u and b learned, or constant."""

    log_scale: Tensor
    bias: Tensor

    def __init__(self, spec: SiglipSpec) -> None:
        super().__init__(warmup_epochs=0)
        self.spec = spec
        self.log_scale = nn.Parameter(torch.tensor(math.log(spec.scale)), requires_grad=spec.learned)
        self.bias = nn.Parameter(torch.tensor(spec.bias), requires_grad=spec.learned)

    def forward(self, inputs: LossInputs) -> LossOutput:
        similarity = at_least_float32(inputs.similarity)
        positives = diagonal(similarity) if is_pairs(inputs) else same_image(inputs)
        negatives = batch_negatives(inputs, self.spec.variant)
        value = sigmoid_loss(self.log_scale.exp() * similarity + self.bias, positives, negatives)
        return LossOutput(
            value=value,
            parts={"scale": self.log_scale.detach().exp(), "bias": self.bias.detach().clone()},
            selection=Selection(similarity.detach(), negatives, None, None, is_proxy=True),
        )
