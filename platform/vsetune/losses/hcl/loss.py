"""Hard-negative weighted InfoNCE (Robinson et al. 2021, Eq. 4 and 5), between images and captions.

    mean over queries of -ln(p / (p + G)),   p = exp(S_ii / t),   n_j = exp(S_ij / t) of the N negatives
    G = max([N sum_j n_j^(1 + beta) / sum_j n_j^beta - N tau p] / (1 - tau),  N exp(-1 / t))

and the mean of both directions. The paper contrasts two views of images with all 2 B - 2 other views; here the N
negatives of a query are items of the other side, as in `info_nce`. With beta = 0 and tau = 0 the two losses are equal.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import softplus

from vsetune.losses.hcl.spec import HclSpec
from vsetune.losses.info_nce.loss import SoftmaxLoss
from vsetune.losses.loss_base import LossInputs, LossOutput, Selection, at_least_float32, require_pairs
from vsetune.losses.loss_building import register
from vsetune.losses.parts.pairing import pair_negatives


def hard_negative_terms(
    logits: Tensor, negatives: Tensor, *, floor: Tensor, beta: float, tau_plus: float
) -> tuple[Tensor, Tensor]:
    """-ln(p / (p + G)) per query (row), computed from logarithms, so that no exponential overflows.

    logits: (B, B), S / t, pairs on the diagonal. negatives: (B, B) bool. floor: scalar, logarithm of the smallest
    possible n_j, -1 / t for cosines. Returns terms (B,), 0 for queries without negatives, and valid (B,) bool.
    """
    valid = negatives.any(dim=1)
    left_out = ~negatives & valid[:, None]  # skipped rows keep their entries: all minus infinity has a NaN gradient
    count = negatives.sum(dim=1).clamp(min=1).to(logits).log()
    matched = logits.diagonal()
    hard, weights = (
        (power * logits).masked_fill(left_out, float("-inf")).logsumexp(dim=1) for power in (1 + beta, beta)
    )
    weighted = count + hard - weights - matched
    if tau_plus > 0:
        weighted = _log_difference(weighted, count + math.log(tau_plus)) - math.log1p(-tau_plus)
    repelled = torch.maximum(weighted, count + floor - matched)
    return softplus(repelled).masked_fill(~valid, 0.0), valid


def _log_difference(larger: Tensor, smaller: Tensor) -> Tensor:
    """ln(e^larger - e^smaller); minus infinity, without gradient, where the difference is not positive."""
    gap = smaller - larger
    is_positive = gap < -torch.finfo(gap.dtype).eps
    rest = torch.log1p(-gap.masked_fill(~is_positive, -1.0).exp())
    return (larger + rest).masked_fill(~is_positive, float("-inf"))


@register(HclSpec)
class HardNegativeInfoNce(SoftmaxLoss):
    """HCL's loss: the mean over the queries that have a negative, then over both directions."""

    spec: HclSpec

    def forward(self, inputs: LossInputs) -> LossOutput:
        """Raises ConfigError unless the batch consists of pairs."""
        spec = self.spec
        require_pairs(inputs, spec.name)
        similarity = at_least_float32(inputs.similarity)
        negatives = pair_negatives(inputs, spec.variant)
        logits, parts = self.scaled(similarity)
        floor, _ = self.scaled(similarity.new_full((), -1.0))
        value = similarity.new_zeros(())
        for scores, others in ((logits, negatives), (logits.T, negatives.T)):
            terms, valid = hard_negative_terms(
                scores, others, floor=floor, beta=spec.beta, tau_plus=spec.tau_plus
            )
            value = value + terms.sum() / valid.sum().clamp(min=1) / 2
        selection = Selection(similarity.detach(), negatives, None, None, is_proxy=True)
        return LossOutput(value=value, parts=parts, selection=selection)
