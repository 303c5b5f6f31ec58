"""Margin-based loss with a learned boundary and distance-weighted sampling (Wu et al. 2017); our adaptation to pairs.

    sum over pairs (i, j) of [a + y_ij (D_ij - beta)]+,   y_ij = +1 matched, -1 not

D is the Euclidean distance of unit vectors, so `similarity` must be a cosine. beta is one number for all pairs (the
paper also has one per class and per sample). Negatives are sampled with the inverse density of their distance on the
unit sphere, so that all distances are sampled, not only the usual sqrt(2).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vsetune.losses.adaptive_margin.loss import distances
from vsetune.losses.loss_base import (
    Loss,
    LossInputs,
    LossOutput,
    ParameterGroup,
    at_least_float32,
    require_items,
    require_pairs,
)
from vsetune.losses.loss_building import register
from vsetune.losses.margin_based.spec import MarginBasedSpec
from vsetune.losses.parts.pairing import pair_negatives


def positive_hinges(matched: Tensor, *, boundary: float | Tensor, margin: float) -> Tensor:
    """[a + D - beta]+ of the distances of matched pairs; same shape. margin: a >= 0, in units of distance."""
    return (margin + (matched - boundary)).relu()


def negative_hinges(apart: Tensor, *, boundary: float | Tensor, margin: float) -> Tensor:
    """[a - D + beta]+ of the distances of pairs that do not match; same shape."""
    return (margin - (apart - boundary)).relu()


@torch.no_grad()
def log_inverse_density(pairwise: Tensor, *, embedding_size: int, cutoff: float, limit: float) -> Tensor:
    """Minus the logarithm of the density of distances d on the unit sphere, up to a constant; same shape.

    The density is d^(D-2) (1 - d^2/4)^((D-3)/2) in D = embedding_size dimensions. cutoff, limit: smaller and larger
    distances count as these; both below 2. A NaN counts as the limit.
    """
    d = pairwise.clamp(min=cutoff, max=limit).nan_to_num_(limit)
    return (2 - embedding_size) * d.log() - (embedding_size - 3) / 2 * (1 - d.square() / 4).log()


@torch.no_grad()
def sampling_weights(logs: Tensor, near: Tensor, negatives: Tensor) -> Tensor:
    """(B, M) weights for sampling negatives, 1 for the likeliest of each row. Rows are queries.

    logs: (B, M), from `log_inverse_density`; their row maximum is subtracted, as they differ by hundreds. negatives:
    (B, M) bool. near: (B, M) bool, negatives that may be sampled; a row without any samples from all its negatives, a
    row without negatives from everything.
    """
    allowed = near | (negatives & ~near.any(dim=1, keepdim=True)) | ~negatives.any(dim=1, keepdim=True)
    logs = logs.masked_fill(~allowed, float("-inf"))
    return (logs - logs.amax(dim=1, keepdim=True)).exp_()


def draw(weights: Tensor) -> Tensor:
    """(B,) int64, one column per row with probability proportional to its weight, from torch's global generator."""
    return torch.multinomial(weights, 1)[:, 0]


@register(MarginBasedSpec)
class MarginBased(Loss):
    """Margin-based loss, divided by the number of its non-zero terms, plus nu beta.

    `distance_weighted`: every query of both directions contributes its matched pair and one sampled negative, so a
    matched pair counts twice. `all`: every pair counts once. Other captions of the same image are no negatives.
    boundary: beta, a parameter with its own SGD rate; rate 0 keeps it constant.
    """

    spec: MarginBasedSpec

    def __init__(self, spec: MarginBasedSpec) -> None:
        super().__init__(spec)
        self.boundary = nn.Parameter(torch.tensor(spec.boundary), requires_grad=spec.boundary_learning_rate > 0)

    def parameter_groups(self) -> list[ParameterGroup]:
        if self.spec.boundary_learning_rate == 0:
            return []
        return [ParameterGroup([self.boundary], self.spec.boundary_learning_rate)]

    def forward(self, inputs: LossInputs) -> LossOutput:
        """Raises ConfigError unless the batch consists of pairs, and without embeddings for weighted sampling."""
        spec = self.spec
        require_pairs(inputs, spec.name)
        similarity = at_least_float32(inputs.similarity)
        pairwise = distances(similarity, squared=False)
        negatives = pair_negatives(inputs, "decided")
        matched = pairwise.diagonal()
        if spec.negatives == "all":
            apart, used = pairwise, negatives
        else:
            apart, used = self._sampled(pairwise, negatives, require_items(inputs, spec.name)[0].vectors.shape[-1])
            matched = matched.repeat(2)
        attraction = positive_hinges(matched, boundary=self.boundary, margin=spec.margin)
        repulsion = negative_hinges(apart, boundary=self.boundary, margin=spec.margin).masked_fill(~used, 0.0)
        terms = (attraction > 0).sum() + (repulsion > 0).sum()
        mean = (attraction.sum() + repulsion.sum()) / terms.clamp(min=1)
        reached = similarity.sum() * 0.0  # a NaN in a pair that was not sampled still reaches the value
        return LossOutput(
            value=mean + spec.boundary_penalty * self.boundary + reached,
            parts={"boundary": self.boundary.detach().clone(), "nonzero_terms": terms},
        )

    def _sampled(self, pairwise: Tensor, negatives: Tensor, embedding_size: int) -> tuple[Tensor, Tensor]:
        """(2 B,) distances of one sampled negative per image, then per caption; False where a query has no negative."""
        spec = self.spec
        logs = log_inverse_density(
            pairwise, embedding_size=embedding_size, cutoff=spec.sampling_cutoff, limit=spec.sampling_limit
        )
        # the density falls beyond sqrt(2), so without a limit the farthest would be sampled again and again
        near = negatives & (pairwise <= spec.sampling_limit)
        apart, used = [], []
        for grid, weights, candidates in (
            (pairwise, sampling_weights(logs, near, negatives), negatives),
            (pairwise.T, sampling_weights(logs.T, near.T, negatives.T), negatives.T),
        ):
            sampled = draw(weights)[:, None]
            apart.append(grid.gather(1, sampled)[:, 0])
            used.append(candidates.gather(1, sampled)[:, 0])
        return torch.cat(apart), torch.cat(used)
