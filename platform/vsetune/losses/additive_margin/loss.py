"""Softmax over the batch with an additive margin that grows with the similarity of captions (Li et al. 2020).

    mean_i -ln softmax_k ((S_ik + [k != i] m_ik) / t) at k = i,   m_ik = u Q_ik + v,   Q_ik = cosine(V_i, V_k)

and the same over caption queries; mean of both directions. This is an adaptation: Li et al. classify with few examples,
their Q compares names of classes, and their second version computes m with a small network.

u and v are learned as in the paper. The loss rises with the margin, so its gradient always shrinks the margin;
`learned: false` keeps u and v constant.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vsetune.losses.additive_margin.spec import AdditiveMarginSpec
from vsetune.losses.loss_base import (
    Loss,
    LossInputs,
    LossOutput,
    Selection,
    at_least_float32,
    require_pairs,
    require_semantics,
)
from vsetune.losses.loss_building import register
from vsetune.losses.lseh.loss import semantic_cosine
from vsetune.losses.parts.pairing import QueryTerms, diagonal, pair_negatives


def additive_margins(semantic_similarity: Tensor, slope: Tensor, intercept: Tensor) -> Tensor:
    """(B, B) u Q + v in units of similarity, 0 for the pairs themselves. slope, intercept: scalars u, v."""
    margins = slope * semantic_similarity + intercept
    return margins.masked_fill(diagonal(margins), 0.0)


def softmax_margin_terms(
    similarity: Tensor, margins: Tensor, negatives: Tensor, *, softmax_temperature: float
) -> QueryTerms:
    """Cross-entropy of the pair among the negatives of each query, not yet reduced; 0 for queries without negatives.

    similarity: (B, B), pairs on the diagonal. margins: (B, B), see `additive_margins`. negatives: (B, B) bool; entries
    that are neither negatives nor on the diagonal leave the denominator. softmax_temperature: t > 0, divides.
    """
    logits = (similarity + margins) / softmax_temperature
    matched = logits.diagonal()
    logits = logits.masked_fill(~(negatives | diagonal(logits)), float("-inf"))
    return QueryTerms(logits.logsumexp(dim=1) - matched, logits.logsumexp(dim=0) - matched)


@register(AdditiveMarginSpec)
class AdditiveMargin(Loss):
    """Additive-margin softmax. Other captions of the same image leave the denominator. slope, intercept: u, v, trained
    with the network's optimizer unless `learned` is false."""

    spec: AdditiveMarginSpec

    def __init__(self, spec: AdditiveMarginSpec) -> None:
        super().__init__(spec)
        self.slope = nn.Parameter(torch.tensor(spec.slope), requires_grad=spec.learned)
        self.intercept = nn.Parameter(torch.tensor(spec.intercept), requires_grad=spec.learned)

    def forward(self, inputs: LossInputs) -> LossOutput:
        """Raises ConfigError unless the batch consists of pairs with semantic vectors."""
        spec = self.spec
        require_pairs(inputs, spec.name)
        similarity = at_least_float32(inputs.similarity)
        negatives = pair_negatives(inputs, "decided")
        semantic = semantic_cosine(require_semantics(inputs, "additive_margin", similarity.dtype)).to(similarity.dtype)
        margins = additive_margins(semantic, self.slope, self.intercept)
        terms = softmax_margin_terms(
            similarity, margins, negatives, softmax_temperature=spec.softmax_temperature
        )
        reached = similarity.sum() * 0.0  # a NaN in an ignored entry still reaches the value
        return LossOutput(
            value=(terms.images.mean() + terms.captions.mean()) / 2 + reached,
            parts={"slope": self.slope.detach().clone(), "intercept": self.intercept.detach().clone()},
            selection=Selection((similarity + margins).detach(), negatives, None, None, is_proxy=True),
        )

