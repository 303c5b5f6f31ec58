"""LSH, the sum of hinges (VSE0): every negative that violates the margin counts."""

from __future__ import annotations

from vsetune.losses.loss_base import Loss, LossInputs, LossOutput, at_least_float32
from vsetune.losses.loss_building import register
from vsetune.losses.lsh.spec import LshSpec
from vsetune.losses.parts.pairing import batch_negatives, candidates, pair_similarity, summed_hinges
from vsetune.losses.parts.spec_fields import SameImage


def sum_of_hinges_output(inputs: LossInputs, *, margin: float, same_image_rule: SameImage) -> LossOutput:
    """LSH of a batch; other hinge losses use it in their warm-up.

    LSH = sum_i sum_{j != i} [m + S_ij - S_ii]+ + sum_j sum_{i != j} [m + S_ij - S_jj]+, a sum over both directions. In
    a batch of images every caption with its image is a pair: its image is compared with the captions of the other
    images, its caption with the other images, and the sums run over all pairs.
    """
    similarity = at_least_float32(inputs.similarity)
    negatives = batch_negatives(inputs, same_image_rule)
    among = candidates(inputs, similarity, negatives, inputs.memory, same_image_rule)
    terms = summed_hinges(among, pair_similarity(inputs, similarity), margin=margin)
    return LossOutput(value=terms.total())


@register(LshSpec)
class SumOfHinges(Loss):
    """LSH. It selects no hardest negative, so its selection is None."""

    spec: LshSpec

    def forward(self, inputs: LossInputs) -> LossOutput:
        return sum_of_hinges_output(inputs, margin=self.spec.margin, same_image_rule=self.spec.variant)
