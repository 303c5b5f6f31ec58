"""InfoNCE: softmax cross-entropy over the batch, both directions, with any number of positives.

    1/2 (mean_i [lse_j S_ij / t - S_ii / t] + mean_j [lse_i S_ij / t - S_jj / t]),   lse: log-sum-exp

Label smoothing moves a share eps of the target from the positives to all candidates of the query, evenly.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from vsetune.losses.info_nce.spec import InfoNceSpec
from vsetune.losses.loss_base import Loss, LossInputs, LossOutput, Selection, at_least_float32
from vsetune.losses.loss_building import register
from vsetune.losses.parts.pairing import diagonal, pair_negatives, same_image
from vsetune.losses.parts.spec_fields import InfoNceFields, SoftmaxSpec

_LARGEST_LOG_SCALE = math.log(100.0)  # CLIP: 1 / t stays below 100


def softmax_terms(logits: Tensor, positives: Tensor, negatives: Tensor, *, sum_inside: bool) -> tuple[Tensor, Tensor]:
    """Cross-entropy per query (row) and which queries have one.

    logits: (N, M), similarity over temperature. positives, negatives: (N, M) bool; items that are neither leave the
    denominator. sum_inside: -log of the summed probability of the positives; else the mean of -log over them. Returns
    terms (N,), 0 for queries without positive or negative, and valid (N,) bool.
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


def smoothed_terms(
    logits: Tensor, positives: Tensor, negatives: Tensor, *, sum_inside: bool, label_smoothing: float
) -> tuple[Tensor, Tensor]:
    """(1 - eps) x `softmax_terms` + eps x the mean of -log p over all candidates (positives and negatives) of a query.

    label_smoothing: eps in [0, 1). With one positive per row and nothing ignored this is torch's cross_entropy; with
    `sum_inside` the first part alone has the sum inside the logarithm. Returns terms (N,) and valid (N,) bool.
    """
    terms, valid = softmax_terms(logits, positives, negatives, sum_inside=sum_inside)
    if label_smoothing == 0:
        return terms, valid
    candidates = (positives | negatives) & positives.any(dim=1, keepdim=True)
    even, _ = softmax_terms(logits, candidates, negatives, sum_inside=False)
    return (1 - label_smoothing) * terms + label_smoothing * even, valid


def info_nce(
    logits: Tensor, positives: Tensor, negatives: Tensor, *, sum_inside: bool, label_smoothing: float
) -> Tensor:
    """Mean of both directions, each the mean over its queries that have positives and negatives. Scalar."""
    image_terms, image_valid = smoothed_terms(
        logits, positives, negatives, sum_inside=sum_inside, label_smoothing=label_smoothing
    )
    caption_terms, caption_valid = smoothed_terms(
        logits.T, positives.T, negatives.T, sum_inside=sum_inside, label_smoothing=label_smoothing
    )
    image_mean = image_terms.sum() / image_valid.sum().clamp(min=1)
    caption_mean = caption_terms.sum() / caption_valid.sum().clamp(min=1)
    return (image_mean + caption_mean) / 2


class SoftmaxLoss(Loss):
    """A softmax loss with a fixed or a learned temperature, t = exp(-log_scale), log_scale <= ln 100."""

    spec: SoftmaxSpec
    log_scale: Tensor

    def __init__(self, spec: SoftmaxSpec) -> None:
        super().__init__(spec)
        if spec.learned:
            start = min(-math.log(spec.softmax_temperature), _LARGEST_LOG_SCALE)
            self.log_scale = nn.Parameter(torch.tensor(start))

    def scaled(self, similarity: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Similarity over the temperature, and the temperature without gradient, to log."""
        if not self.spec.learned:
            temperature = self.spec.softmax_temperature
            return similarity / temperature, {"temperature": torch.tensor(temperature)}
        capped = at_least_float32(self.log_scale).clamp(max=_LARGEST_LOG_SCALE)
        return similarity * capped.exp(), {"temperature": (-capped.detach()).exp()}

    @torch.no_grad()
    def after_step(self) -> None:
        """Clamp a learned scale to its largest value; above it there is no gradient."""
        if self.spec.learned:
            self.log_scale.clamp_(max=_LARGEST_LOG_SCALE)

    def shared_parameters(self) -> dict[str, Tensor]:
        """A learned log_scale, for networks that store it with their weights."""
        return {"logit_scale": self.log_scale.detach()} if self.spec.learned else {}


@register(InfoNceSpec)
class InfoNce(SoftmaxLoss):
    """InfoNCE.

    Positives: the pair itself in a batch of pairs, all captions of the image in a batch of images.
    """

    spec: InfoNceFields

    def forward(self, inputs: LossInputs) -> LossOutput:
        similarity = at_least_float32(inputs.similarity)
        if inputs.are_pairs:
            positives, negatives = diagonal(similarity), pair_negatives(inputs, self.spec.variant)
        else:
            positives = same_image(inputs)
            negatives = ~positives
        logits, parts = self.scaled(similarity)
        value = info_nce(
            logits, positives, negatives, sum_inside=self.spec.positives == "inside",
            label_smoothing=self.spec.label_smoothing,
        )
        selection = Selection(similarity.detach(), negatives, None, None, is_proxy=True)
        return LossOutput(value=value, parts=parts, selection=selection)
