"""Pair loss on distances: matched pairs attract, others repel up to a margin (Malali and Keller, Eq. 2).

    L = sum_n D(x_n, y_n) + sum_n [m - D(x_n, y-)]+

D is the Euclidean distance of unit vectors, sqrt(2 - 2 S), so `similarity` must be a cosine. The queries are the images
alone, as the equation has it; captions of the same image are no negatives.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vsetune.losses.adaptive_margin.loss import distances, random_derangement
from vsetune.losses.contrastive.spec import ContrastiveSpec, PairNegatives
from vsetune.losses.loss_base import Loss, LossInputs, LossOutput, at_least_float32, require_pairs
from vsetune.losses.loss_building import register
from vsetune.losses.parts.loss_devices import beside
from vsetune.losses.parts.pairing import pair_negatives, pools


def used_negatives(similarity: Tensor, negatives: Tensor, rule: PairNegatives) -> Tensor:
    """(B, B + P) bool, the negatives that give a term: all, or at most one per image.

    similarity, negatives: (B, B + P), the batch, then the memory. `random` samples a derangement of the batch with
    torch's global generator; an image whose sample is no negative gives no term. `hardest` takes the most similar
    negative, one of them on a tie.
    """
    if rule == "all":
        return negatives
    if rule == "hardest":
        chosen = similarity.detach().masked_fill(~negatives, float("-inf")).argmax(dim=1)
    else:
        chosen = beside(random_derangement(similarity.shape[0]), similarity)
    return negatives & torch.zeros_like(negatives).scatter_(1, chosen[:, None], True)


def pair_terms(
    similarity: Tensor, used: Tensor, *, margin: float, squared: bool
) -> tuple[Tensor, Tensor]:
    """D of the pairs (B,) and [m - D]+ of each image summed over its used negatives (B,), not yet reduced.

    similarity, used: (B, B + P), pairs on the diagonal. margin: in units of distance (of its square if squared).
    """
    grid = distances(similarity, squared=squared)
    return grid.diagonal(), (margin - grid).relu().masked_fill(~used, 0.0).sum(dim=1)


@register(ContrastiveSpec)
class Contrastive(Loss):
    """The pair loss, a sum over the batch."""

    spec: ContrastiveSpec

    def forward(self, inputs: LossInputs) -> LossOutput:
        """Raises ConfigError unless the batch consists of pairs."""
        spec = self.spec
        require_pairs(inputs, spec.name)
        similarity = at_least_float32(inputs.similarity)
        met = pools(inputs, similarity, pair_negatives(inputs, "decided"), inputs.memory, "decided")
        used = used_negatives(met.images, met.image_negatives, spec.negatives)
        attraction, repulsion = pair_terms(met.images, used, margin=spec.margin, squared=spec.squared)
        parts = {"attraction": attraction.detach().sum(), "repulsion": repulsion.detach().sum()}
        return LossOutput(value=attraction.sum() + repulsion.sum(), parts=parts)
