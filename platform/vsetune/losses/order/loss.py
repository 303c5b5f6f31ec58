"""Hinges of order embeddings (Vendrov et al. 2016): a caption is more general than its image.

    S_ij = -|max(0, t_j - v_i)|  (the network gives it; 0 where the order holds, negative where it is violated)
    sum over negatives (Order0) or hardest negative (Order++) of [m + S_ij - S_ii]+, both directions, summed over pairs

The similarity is a Euclidean length, so the margin is one too: VSE++ uses 0.05 where cosines use 0.2.
"""

from __future__ import annotations

from vsetune.losses.lmh.loss import max_of_hinges_output
from vsetune.losses.loss_base import Loss, LossInputs, LossOutput
from vsetune.losses.loss_building import register
from vsetune.losses.lsh.loss import sum_of_hinges_output
from vsetune.losses.order.spec import OrderSpec


@register(OrderSpec)
class OrderHinges(Loss):
    """LSH or LMH on the order similarity; `max` optionally after epochs of `sum`."""

    spec: OrderSpec

    def forward(self, inputs: LossInputs) -> LossOutput:
        spec = self.spec
        sums = spec.negatives == "sum" or self.is_warming_up
        output = sum_of_hinges_output if sums else max_of_hinges_output
        return output(inputs, margin=spec.margin, same_image_rule=spec.variant)
