"""LSH, the sum of hinges (VSE0): every negative that violates the margin counts."""

from __future__ import annotations

from vsetune.config.losses import LshSpec
from vsetune.losses.base import Loss, LossInputs, LossOutput, at_least_float32, require_pairs
from vsetune.losses.hinges import sum_of_hinges
from vsetune.losses.pairing import SameImage, pair_negatives
from vsetune.losses.registry import register


def sum_of_hinges_output(inputs: LossInputs, *, margin: float, same_image_rule: SameImage) -> LossOutput:
    """LSH of a batch of pairs; also what LMH and LSEH use while they warm up.

    LSH = sum_i sum_{j != i} [m + S_ij - S_ii]+ + sum_j sum_{i != j} [m + S_ij - S_jj]+, a sum over both directions.
    """
    negatives = pair_negatives(inputs, same_image_rule)
    terms = sum_of_hinges(at_least_float32(inputs.similarity), negatives, margin=margin)
    return LossOutput(value=terms.total())


@register(LshSpec)
class SumOfHinges(Loss):
    """LSH. It selects no hardest negative, so it reports no selection."""

    def __init__(self, spec: LshSpec) -> None:
        super().__init__(warmup_epochs=0)
        self.spec = spec

    def forward(self, inputs: LossInputs) -> LossOutput:
        """Raises ConfigError unless the batch consists of pairs."""
        require_pairs(inputs, self.spec.name)
        return sum_of_hinges_output(inputs, margin=self.spec.margin, same_image_rule=self.spec.variant)
