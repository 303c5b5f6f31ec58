"""LMH, the maximum of hinges (VSE++): only the hardest negative of each query counts."""

from __future__ import annotations

import torch
from torch import Tensor

from vsetune.config.losses import LmhSpec
from vsetune.losses.base import Loss, LossInputs, LossOutput, Selection, at_least_float32, require_pairs
from vsetune.losses.hinges import QueryTerms, max_of_hinges
from vsetune.losses.lsh import sum_of_hinges_output
from vsetune.losses.pairing import pair_negatives
from vsetune.losses.registry import register


def mined_output(terms: QueryTerms, scores: Tensor, negatives: Tensor) -> LossOutput:
    """Sum of the terms, the share of queries with an active hinge, and what was mined. Shared with LSEH."""
    active_images, active_captions = terms.images.detach() > 0, terms.captions.detach() > 0
    return LossOutput(
        value=terms.total(),
        parts={"active_share": torch.cat([active_images, active_captions]).float().mean()},
        selection=Selection(scores.detach(), negatives, active_images, active_captions, is_proxy=False),
    )


@register(LmhSpec)
class MaxOfHinges(Loss):
    """LMH, optionally after epochs of LSH with the same margin (VSE-infinity, losses start with `warmup_epochs`)."""

    def __init__(self, spec: LmhSpec) -> None:
        super().__init__(warmup_epochs=spec.warmup_epochs)
        self.spec = spec

    def forward(self, inputs: LossInputs) -> LossOutput:
        """Raises ConfigError unless the batch consists of pairs."""
        spec = self.spec
        require_pairs(inputs, spec.name)
        if self.is_warming_up:
            return sum_of_hinges_output(inputs, margin=spec.margin, same_image_rule=spec.variant)
        similarity = at_least_float32(inputs.similarity)
        negatives = pair_negatives(inputs, spec.variant)
        terms = max_of_hinges(similarity, similarity.diagonal(), negatives, margin=spec.margin)
        return mined_output(terms, similarity, negatives)
