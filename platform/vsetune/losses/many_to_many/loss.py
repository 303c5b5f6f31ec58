"""Sentence-based semantic loss L_sbs: captions that mean nearly the same match each other's images (Zhang et al.)."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from vsetune.losses.loss_base import Loss, LossInputs, LossOutput, at_least_float32, require_pairs, require_semantics
from vsetune.losses.loss_building import register
from vsetune.losses.lseh.loss import semantic_cosine
from vsetune.losses.lsh.loss import sum_of_hinges_output
from vsetune.losses.many_to_many.spec import Direction, Lowest, ManyToManySpec, Rescale


class Anchors(NamedTuple):
    """Terms of one direction, not yet reduced: (B, B), row for image, column for caption, whichever is the anchor.
    log_ratios: 0 where the two are not similar. hinges: 0 where they are."""

    log_ratios: Tensor
    hinges: Tensor


def unit_range(cosines: Tensor) -> Tensor:
    """Cosines rescaled to [0, 1], (1 + cosine) / 2."""
    return (1 + cosines) / 2


def sentence_similarity(vectors: Tensor, *, rescale: Rescale) -> Tensor:
    """(B, B) cosine of sentence vectors (B, k), rescaled to [0, 1] if `both`; 1 on the diagonal whatever the vector.

    A zero vector (a caption without known words) has cosine 0 with every other caption.
    """
    cosines = semantic_cosine(vectors)
    return (unit_range(cosines) if rescale == "both" else cosines).fill_diagonal_(1.0)


def anchor_terms(
    similarity: Tensor, sentences: Tensor, *, threshold: float, margin: float, lowest: Lowest, direction: Direction
) -> tuple[Anchors, Anchors]:
    """Terms of image anchors (Eq. 7-8) and of caption anchors (Eq. 9-10).

    similarity: s (B, B) in [0, 1], pairs on the diagonal. sentences: q (B, B), 1 on the diagonal, no gradient.
    threshold: lambda. margin: delta >= 0, in units of s. s and q below 1e-6 count as 1e-6 in logarithms.
    lowest: h_n is the minimum of `network` similarities (Eq. 14) or of `semantic` ones (the text below Eq. 8).
    direction: caption anchors have `own_anchor` terms; or, `as_printed`, the log terms and h_n of image anchors again,
    and hinges on s_mn.
    """
    similar = ~(sentences < threshold)  # a NaN counts as similar, so that it reaches the value
    levels = (similarity if lowest == "network" else sentences).masked_fill(~similar, float("inf"))
    image_lowest = levels.min(dim=1).values
    caption_lowest = levels.min(dim=0).values
    # ln(s_nm / s_nn) - ln q_nm is the difference of ln(s / q) at (n, m) and at the pair, where q = 1
    logs = log_levels(similarity, sentences)

    def hinges(level: Tensor) -> Tensor:
        return (margin - level + similarity).relu().masked_fill(similar, 0.0)

    def log_ratios(pair: Tensor) -> Tensor:
        return (logs - pair).square().masked_fill(~similar, 0.0)

    images = Anchors(log_ratios(logs.diagonal()[:, None]), hinges(image_lowest[:, None]))
    if direction == "as_printed":
        return images, Anchors(images.log_ratios, hinges(image_lowest[None, :]))
    return images, Anchors(log_ratios(logs.diagonal()[None, :]), hinges(caption_lowest[None, :]))


@register(ManyToManySpec)
class ManyToMany(Loss):
    """L_sbs, optionally after epochs of the sum of hinges with margin delta.

    Cosines of the network are rescaled to [0, 1] (`similarity_range`), in the warm-up too, so that delta means the same
    throughout: on the cosines themselves it is a margin of 2 delta. With distinct captions the warm-up is the loss at
    lambda = 1, with one exception: it ignores other captions of the same image, while L_sbs treats them by the
    similarity of their sentences.
    """

    spec: ManyToManySpec

    def forward(self, inputs: LossInputs) -> LossOutput:
        """Raises ConfigError unless the batch consists of pairs with semantic vectors."""
        spec = self.spec
        require_pairs(inputs, spec.name)
        similarity = at_least_float32(inputs.similarity)
        if spec.similarity_range == "cosine":
            similarity = unit_range(similarity)
        if self.is_warming_up:
            rescaled = replace(inputs, similarity=similarity)
            return sum_of_hinges_output(rescaled, margin=spec.margin, same_image_rule="decided")
        vectors = require_semantics(inputs, "many_to_many", similarity.dtype)
        sentences = sentence_similarity(vectors, rescale=spec.rescale)
        images, captions = anchor_terms(
            similarity, sentences.to(similarity.dtype), threshold=spec.threshold, margin=spec.margin,
            lowest=spec.lowest, direction=spec.direction,
        )
        log_ratio = images.log_ratios.sum() + captions.log_ratios.sum()
        hinge = images.hinges.sum() + captions.hinges.sum()
        similar_size = (sentences >= spec.threshold).float().mean() * similarity.shape[0]
        return LossOutput(
            value=spec.log_weight * log_ratio + hinge,
            parts={"log_ratio": log_ratio.detach(), "hinge": hinge.detach(), "similar_size": similar_size},
        )


SMALLEST = 1e-6  # below, values count as this, so that logarithms and their gradients stay finite


def log_levels(network: Tensor, target: Tensor) -> Tensor:
    """ln(f / y), whose differences the loss squares. Below 1e-6 both count as 1e-6 without gradient; a NaN stays."""
    return network.clamp(min=SMALLEST).log() - target.clamp(min=SMALLEST).log()
