"""LUWM, universal weighting in polynomial form (Wei et al. 2020, as released for SCAN on Flickr30K).

    For each query of both directions, p = similarity of the pair, h = that of the hardest negative:
    used = p < 1 - eps and h + m > p
    term = [a0 + a1 p + a2 p^2]+ + [b0 + b1 h + b2 h^2]+ if used, else 0;   LUWM = sum of the 2 B terms / B

Divided by B, not by the queries that are used. A query with p >= 1 - eps is dropped with its negative (the released
code fails there). The coefficients are fitted to similarities up to 1, per data set.

The trap: left of its vertex -b1 / (2 b2) = 0.2222 the negative polynomial falls, and below h = 0.095536 it is positive
again, so descent *raises* the similarity of such a negative (slope -0.4 at h = 0, -1.3 at -0.5). That happens while
positives are still low, since h is only used above p - m. `one_sided` zeroes the falling part; off as released.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from vsetune.losses.lmh.loss import mined_output
from vsetune.losses.loss_base import Loss, LossInputs, LossOutput, at_least_float32, require_pairs
from vsetune.losses.loss_building import register
from vsetune.losses.lsh.loss import sum_of_hinges_output
from vsetune.losses.luwm.spec import LuwmSpec
from vsetune.losses.parts.pairing import QueryTerms, batch_negatives, candidates, hardest_scores, pair_similarity


class Quadratic(NamedTuple):
    """constant + slope x + curvature x^2."""

    constant: float
    slope: float
    curvature: float

    def at(self, x: Tensor) -> Tensor:
        return (self.curvature * x + self.slope) * x + self.constant

    def falls_at(self, x: Tensor) -> Tensor:
        """Bool: the derivative is negative."""
        return 2 * self.curvature * x + self.slope < 0


def is_used(matched: Tensor, hardest: Tensor, *, margin: float, epsilon: float) -> Tensor:
    """Bool per query: p < 1 - eps and h + m > p. A query with a NaN is used, so that the NaN reaches the value."""
    is_dropped = (matched >= 1 - epsilon) | (hardest + margin <= matched)
    return ~is_dropped | hardest.isnan()


def universal_weighting(
    matched: Tensor, hardest: Tensor, used: Tensor, *, positive: Quadratic, negative: Quadratic, one_sided: bool
) -> Tensor:
    """Term per query, 0 where it is not used; all of one shape. A query without negatives has hardest -inf, unused."""
    # masked before the polynomial too: the gradient of a masked infinity would be NaN
    hardest = hardest.masked_fill(~used, 0.0)
    repelled = negative.at(hardest).relu()
    if one_sided:
        repelled = repelled.masked_fill(negative.falls_at(hardest), 0.0)
    return (positive.at(matched).relu() + repelled).masked_fill(~used, 0.0)


@register(LuwmSpec)
class UniversalWeighting(Loss):
    """LUWM, optionally after epochs of LSH with the same margin (a sum over all hinges, not divided by B)."""

    spec: LuwmSpec

    def __init__(self, spec: LuwmSpec) -> None:
        super().__init__(spec)
        self.positive = Quadratic(spec.positive_constant, spec.positive_slope, spec.positive_curvature)
        self.negative = Quadratic(spec.negative_constant, spec.negative_slope, spec.negative_curvature)

    def forward(self, inputs: LossInputs) -> LossOutput:
        """Raises ConfigError unless the batch consists of pairs."""
        spec = self.spec
        require_pairs(inputs, spec.name)
        if self.is_warming_up:
            return sum_of_hinges_output(inputs, margin=spec.margin, same_image_rule=spec.variant)
        similarity = at_least_float32(inputs.similarity)
        negatives = batch_negatives(inputs, spec.variant)
        # both directions in one vector of 2 B queries: the polynomials cost their number of calls, not of entries
        hardest = torch.cat(hardest_scores(candidates(inputs, similarity, negatives, inputs.memory, spec.variant)))
        matched = pair_similarity(inputs, similarity).repeat(2)
        used = is_used(matched.detach(), hardest.detach(), margin=spec.margin, epsilon=spec.epsilon)
        terms = universal_weighting(
            matched, hardest, used, positive=self.positive, negative=self.negative, one_sided=spec.one_sided
        )
        return mined_output(
            inputs, terms.sum() / len(negatives), QueryTerms(*used.chunk(2)), scores=similarity, negatives=negatives
        )
