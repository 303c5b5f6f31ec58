"""LMH, the maximum of hinges (VSE++): only the hardest negative of each query counts."""

from __future__ import annotations

import torch
from torch import Tensor

from vsetune.losses.lmh.spec import LmhSpec
from vsetune.losses.loss_base import Loss, LossInputs, LossOutput, Selection, at_least_float32
from vsetune.losses.loss_building import register
from vsetune.losses.lsh.loss import sum_of_hinges_output
from vsetune.losses.parts.pairing import (
    QueryTerms,
    SameImage,
    batch_negatives,
    candidates,
    hardest_hinges,
    is_pairs,
    pair_similarity,
)


def mined_output(
    inputs: LossInputs, value: Tensor, active: QueryTerms, *, scores: Tensor, negatives: Tensor, is_proxy: bool = False
) -> LossOutput:
    """The value, the share of queries with an active hinge, and the selection. Shared by losses of the hardest
    negative.

    active: bool per pair. scores, negatives: (N, M), of the batch alone. is_proxy: see `Selection`; always true with a
    memory, because the hardest negative may be in the memory.
    """
    images = active.images
    if not is_pairs(inputs):  # an image query is active if it is for one of its pairs
        images = torch.zeros_like(inputs.image_ids).index_add_(0, inputs.caption_rows, images.long()) > 0
    return LossOutput(
        value=value,
        parts={"active_share": torch.cat([active.images, active.captions]).float().mean()},
        selection=Selection(
            scores.detach(), negatives, images, active.captions, is_proxy=is_proxy or inputs.memory is not None
        ),
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
    return mined_output(inputs, terms.total(), active_queries(terms), scores=similarity, negatives=negatives)


def active_queries(terms: QueryTerms) -> QueryTerms:
    """Bool per query: its term is positive."""
    return QueryTerms(terms.images.detach() > 0, terms.captions.detach() > 0)


@register(LmhSpec)
class MaxOfHinges(Loss):
    """LMH, optionally after epochs of LSH with the same margin (VSE-infinity, losses start with `warmup_epochs`)."""

    def __init__(self, spec: LmhSpec) -> None:
        super().__init__(warmup_epochs=spec.warmup_epochs)
        self.spec = spec

    def forward(self, inputs: LossInputs) -> LossOutput:
        spec = self.spec
        output = sum_of_hinges_output if self.is_warming_up else max_of_hinges_output
        return output(inputs, margin=spec.margin, same_image_rule=spec.variant)
