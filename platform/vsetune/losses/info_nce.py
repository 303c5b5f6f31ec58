"""InfoNCE: softmax cross-entropy over the batch, both directions, with any number of positives.

    1/2 (mean_i [lse_j S_ij / t - S_ii / t] + mean_j [lse_i S_ij / t - S_jj / t]),   lse: log-sum-exp
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from vsetune.config.losses import InfoNceSpec
from vsetune.losses.base import Loss, LossInputs, LossOutput, Selection, at_least_float32
from vsetune.losses.pairing import diagonal, is_pairs, pair_negatives, same_image
from vsetune.losses.registry import register

_LARGEST_LOG_SCALE = math.log(100.0)  # CLIP: 1 / t stays below 100


def softmax_terms(logits: Tensor, positives: Tensor, negatives: Tensor, *, sum_inside: bool) -> tuple[Tensor, Tensor]:
    """Cross-entropy per query (row) and which queries have one.

    logits: (N, M), similarity over temperature. positives, negatives: (N, M) bool; what is neither leaves the
    denominator. sum_inside: -log of the summed probability of the positives; else the mean of -log over them.
    Returns terms (N,), 0 for queries without positive or negative, and valid (N,) bool.
    """
    valid = positives.any(dim=1) & negatives.any(dim=1)
    # skipped rows keep all entries: a row of minus infinities would put NaN into the gradient
    skipped = ~valid[:, None]
    everything = logits.masked_fill(~(positives | negatives | skipped), float("-inf")).logsumexp(dim=1)
    if sum_inside:
        attracted = logits.masked_fill(~(positives | skipped), float("-inf")).logsumexp(dim=1)
    else:
        attracted = logits.masked_fill(~positives, 0.0).sum(dim=1) / positives.sum(dim=1).clamp(min=1)
    return (everything - attracted).masked_fill(~valid, 0.0), valid


def info_nce(logits: Tensor, positives: Tensor, negatives: Tensor, *, sum_inside: bool) -> Tensor:
    """Mean of both directions, each the mean over its queries that have positives and negatives. Scalar."""
    image_terms, image_valid = softmax_terms(logits, positives, negatives, sum_inside=sum_inside)
    caption_terms, caption_valid = softmax_terms(logits.T, positives.T, negatives.T, sum_inside=sum_inside)
    image_mean = image_terms.sum() / image_valid.sum().clamp(min=1)
    caption_mean = caption_terms.sum() / caption_valid.sum().clamp(min=1)
    return (image_mean + caption_mean) / 2


@register(InfoNceSpec)
class InfoNce(Loss):
    """InfoNCE with a fixed or a learned temperature, t = exp(-log_scale), log_scale <= ln 100.

    Positives: the pair itself in a batch of pairs, all captions of the image in a batch of images.
    """

    log_scale: Tensor

    def __init__(self, spec: InfoNceSpec) -> None:
        super().__init__(warmup_epochs=0)
        self.spec = spec
        if spec.learned:
            start = min(-math.log(spec.softmax_temperature), _LARGEST_LOG_SCALE)
            self.log_scale = nn.Parameter(torch.tensor(start))

    def forward(self, inputs: LossInputs) -> LossOutput:
        similarity = at_least_float32(inputs.similarity)
        if is_pairs(inputs):
            positives, negatives = diagonal(similarity), pair_negatives(inputs, self.spec.variant)
        else:
            positives = same_image(inputs)
            negatives = ~positives
        logits, temperature = self._scaled(similarity)
        value = info_nce(logits, positives, negatives, sum_inside=self.spec.positives == "inside")
        selection = Selection(similarity.detach(), negatives, None, None, is_proxy=True)
        return LossOutput(value=value, parts={"temperature": temperature}, selection=selection)

    @torch.no_grad()
    def after_step(self) -> None:
        """Bring a learned scale back under its cap; left above it, it would never get a gradient again."""
        if self.spec.learned:
            self.log_scale.clamp_(max=_LARGEST_LOG_SCALE)

    def _scaled(self, similarity: Tensor) -> tuple[Tensor, Tensor]:
        if not self.spec.learned:
            temperature = self.spec.softmax_temperature
            return similarity / temperature, torch.tensor(temperature)
        log_scale = self.log_scale.float().clamp(max=_LARGEST_LOG_SCALE)
        return similarity * log_scale.exp(), (-log_scale.detach()).exp()
