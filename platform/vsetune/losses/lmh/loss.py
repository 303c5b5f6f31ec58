"""LMH, the maximum of hinges (VSE++): only the hardest negative of each query counts."""

from __future__ import annotations

import torch
from torch import Tensor

from vsetune.losses.lmh.spec import LmhSpec
from vsetune.losses.loss_base import Loss, LossInputs, LossOutput, at_least_float32
from vsetune.losses.loss_building import register
from vsetune.losses.lsh.loss import sum_of_hinges_output
from vsetune.losses.parts.pairing import (
    QueryTerms,
    batch_negatives,
    candidates,
    hardest_hinges,
    mined_selection,
    pair_similarity,
)
from vsetune.losses.parts.spec_fields import SameImage


def mined_output(
    inputs: LossInputs, value: Tensor, active: QueryTerms, *, scores: Tensor, negatives: Tensor, is_proxy: bool = False
) -> LossOutput:
    """The value, the share of queries with an active hinge, and the selection (see `mined_selection`). Shared by losses
    of the hardest negative."""
    return LossOutput(
        value=value,
        parts={"active_share": torch.cat([active.images, active.captions]).float().mean()},
        selection=mined_selection(inputs, scores, negatives, active, is_proxy=is_proxy),
    )


def max_of_hinges_output(inputs: LossInputs, *, margin: float, same_image_rule: SameImage) -> LossOutput:
    """LMH of a batch, also of order embeddings.

    LMH = sum_i max_{j != i} [m + S_ij - S_ii]+ + sum_j max_{i != j} [m + S_ij - S_jj]+, a sum over both directions.
    In a batch of images every caption with its image is a pair, as in `sum_of_hinges_output`.
    """
    similarity = at_least_float32(inputs.similarity)
    negatives = batch_negatives(inputs, same_image_rule)
    among = candidates(inputs, similarity, negatives, inputs.memory, same_image_rule)
    terms = hardest_hinges(among, pair_similarity(inputs, similarity), margin=margin)
    return mined_output(inputs, terms.total(), terms.active(), scores=similarity, negatives=negatives)


@register(LmhSpec)
class MaxOfHinges(Loss):
    """LMH, optionally after epochs of LSH with the same margin (VSE-infinity, losses start with `warmup_epochs`)."""

    spec: LmhSpec

    def forward(self, inputs: LossInputs) -> LossOutput:
        spec = self.spec
        output = sum_of_hinges_output if self.is_warming_up else max_of_hinges_output
        return output(inputs, margin=spec.margin, same_image_rule=spec.variant)
