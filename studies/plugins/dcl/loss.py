"""DCL (Yeh et al. 2022, Eq. 6): InfoNCE without the pair itself in the denominator, in both directions."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from vsetune.losses.loss_base import Loss, LossInputs, LossOutput, Selection, at_least_float32, require_pairs
from vsetune.losses.loss_building import register
from vsetune.losses.parts.pairing import pair_negatives

from .spec import DclSpec


def decoupled_terms(logits: Tensor, negatives: Tensor) -> tuple[Tensor, Tensor]:
    """ln of the sum over the negatives of exp(logit), minus the logit of the pair, per query (row).

    logits: (B, B), pairs on the diagonal. negatives: (B, B) bool. Returns terms (B,), 0 for a query without negatives,
    and which queries have some, (B,) bool.
    """
    valid = negatives.any(dim=1)
    among = logits.masked_fill(~(negatives | ~valid[:, None]), float("-inf"))
    return (among.logsumexp(dim=1) - logits.diagonal()).masked_fill(~valid, 0.0), valid


@register(DclSpec)
class Dcl(Loss):
    """logits = e^u S, with u learned, or constant."""

    log_scale: Tensor

    def __init__(self, spec: DclSpec) -> None:
        super().__init__(warmup_epochs=0)
        self.spec = spec
        self.log_scale = nn.Parameter(torch.tensor(math.log(spec.scale)), requires_grad=spec.learned)

    def forward(self, inputs: LossInputs) -> LossOutput:
        require_pairs(inputs, self.spec.name)
        similarity = at_least_float32(inputs.similarity)
        negatives = pair_negatives(inputs, self.spec.variant)
        logits = self.log_scale.exp() * similarity
        value = similarity.new_zeros(())
        for scores, others in ((logits, negatives), (logits.T, negatives.T)):
            terms, valid = decoupled_terms(scores, others)
            value = value + terms.sum() / valid.sum().clamp(min=1) / 2
        return LossOutput(
            value=value,
            parts={"scale": self.log_scale.detach().exp()},
            selection=Selection(similarity.detach(), negatives, None, None, is_proxy=True),
        )
