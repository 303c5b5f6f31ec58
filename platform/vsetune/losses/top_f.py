"""Top-f triplet loss with several positives (Huteau et al. 2023, MSE**, Eq. 1-4).

An anchor is an image or a caption of the batch. Of its n_p positives it uses the max(1, ceil(f n_p)) least similar,
of its n_n negatives the max(1, ceil(f n_n)) most similar; f falls from 1 (all triplets) to 0 (the hardest).
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from vsetune.config.losses import TopFSpec
from vsetune.losses.base import Loss, LossInputs, LossOutput, Selection, at_least_float32
from vsetune.losses.pairing import same_image
from vsetune.losses.registry import register

_ROUNDING = 1e-9  # 0.07 * 100 is a hair above 7 in floating point


class AnchorTriplets(NamedTuple):
    """Per anchor (row). mean: (N,) mean hinge over its triplets, 0 for skipped anchors. triplets: (N,) their number,
    0 for anchors that have no positive or no negative."""

    mean: Tensor
    triplets: Tensor


def top_fraction(
    steps_done: int, *, decay: Literal["hyperbolic", "linear", "cosine"], decay_steps: int, sharpness: float,
    min_fraction: float,
) -> float:
    """f after so many training steps: 1 at the start, min_fraction after decay_steps.

    With s = steps_done / decay_steps: hyperbolic (1 - s) / (1 + k s), k = sharpness; linear 1 - s; cosine
    1 - sin(pi s / 2).
    """
    progress = min(1.0, steps_done / decay_steps)
    if decay == "hyperbolic":
        fraction = (1 - progress) / (1 + sharpness * progress)
    elif decay == "linear":
        fraction = 1 - progress
    else:
        fraction = 1 - math.sin(math.pi * progress / 2)
    return max(min_fraction, fraction)


def hardest_count(candidates: int, fraction: float) -> int:
    """How many of so many candidates are used at this fraction: max(1, ceil(f n))."""
    return max(1, math.ceil(fraction * candidates - _ROUNDING))


def anchor_triplets(
    similarity: Tensor, positives: Tensor, negatives: Tensor, *, margin: float, fraction: float
) -> AnchorTriplets:
    """Mean hinge [negative + m - positive]+ of each row over its k_p x k_n hardest triplets.

    similarity: (N, M). positives, negatives: (N, M) bool; rows lacking either are skipped.
    Rows with equally many positives and negatives fill rectangles, so each such group is one batch of tensor
    operations: N k_p k_n hinges instead of the N M^2 of a masked version.
    """
    counts = torch.stack([positives.sum(dim=1), negatives.sum(dim=1)], dim=1)
    mean = similarity.new_zeros(similarity.shape[0])
    triplets = torch.zeros_like(counts[:, 0])
    for positive_count, negative_count in torch.unique(counts, dim=0).tolist():
        if positive_count == 0 or negative_count == 0:
            continue
        members = (counts == counts.new_tensor([positive_count, negative_count])).all(dim=1).nonzero()[:, 0]
        rows = similarity[members]
        used_positives = hardest_count(positive_count, fraction)
        used_negatives = hardest_count(negative_count, fraction)
        # topk takes NaN for the largest value; negating the positives makes it the lowest of them as well
        low = -_largest(-rows[positives[members]].view(-1, positive_count), used_positives)
        high = _largest(rows[negatives[members]].view(-1, negative_count), used_negatives)
        hinges = (high[:, :, None] + margin - low[:, None, :]).relu()
        mean = mean.index_put((members,), hinges.mean(dim=(1, 2)))
        triplets[members] = used_positives * used_negatives
    return AnchorTriplets(mean, triplets)


def top_f_loss(
    similarity: Tensor, positives: Tensor, negatives: Tensor, *, margin: float, fraction: float
) -> Tensor:
    """Mean over the two directions of (1 / m) x mean over their anchors (Eq. 2-4). Scalar, 1 at exact collapse.

    A direction without any anchor counts as 0; without any triplet at all the value is 0, still connected.
    """
    sums = similarity.new_zeros(())
    for scores, matches, others in _directions(similarity, positives, negatives):
        mean, triplets = anchor_triplets(scores, matches, others, margin=margin, fraction=fraction)
        sums = sums + mean.sum() / (triplets > 0).sum().clamp(min=1)
    return sums / (2 * margin) + _connected_zero(similarity, positives | negatives)


def sum_of_all_triplets(similarity: Tensor, positives: Tensor, negatives: Tensor, *, margin: float) -> Tensor:
    """Sum of [negative + m - positive]+ over all triplets of both directions: LSH for several positives. Scalar."""
    total = similarity.new_zeros(())
    for scores, matches, others in _directions(similarity, positives, negatives):
        mean, triplets = anchor_triplets(scores, matches, others, margin=margin, fraction=1.0)
        total = total + (mean * triplets).sum()
    return total + _connected_zero(similarity, positives | negatives)


def _directions(
    similarity: Tensor, positives: Tensor, negatives: Tensor
) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]:
    return (similarity, positives, negatives), (similarity.T, positives.T, negatives.T)


def _largest(values: Tensor, count: int) -> Tensor:
    return values if count == values.shape[1] else values.topk(count, dim=1, sorted=False).values


def _connected_zero(similarity: Tensor, used: Tensor) -> Tensor:
    return similarity.masked_fill(~used, 0.0).sum() * 0.0


@register(TopFSpec)
class TopFraction(Loss):
    """Top-f triplets; positives are all captions of the same image, in both directions and any batch unit.

    The first step uses f = 1; f moves after each step. During warm-up epochs the loss is the sum of all triplets (LSH
    where images have one caption) and f does not move.
    """

    steps: Tensor

    def __init__(self, spec: TopFSpec) -> None:
        super().__init__(warmup_epochs=spec.warmup_epochs)
        self.spec = spec
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    @property
    def fraction(self) -> float:
        """f of the next training step."""
        spec = self.spec
        return top_fraction(
            int(self.steps), decay=spec.decay, decay_steps=spec.decay_steps, sharpness=spec.sharpness,
            min_fraction=spec.min_fraction,
        )

    def after_step(self) -> None:
        if not self.is_warming_up:
            self.steps += 1

    def forward(self, inputs: LossInputs) -> LossOutput:
        margin = self.spec.margin
        similarity = at_least_float32(inputs.similarity)
        positives = same_image(inputs)
        negatives = ~positives
        if self.is_warming_up:
            return LossOutput(value=sum_of_all_triplets(similarity, positives, negatives, margin=margin))
        fraction = self.fraction
        return LossOutput(
            value=top_f_loss(similarity, positives, negatives, margin=margin, fraction=fraction),
            parts={"fraction": torch.tensor(fraction)},
            selection=_selection(similarity.detach(), positives, negatives, margin=margin, is_proxy=fraction > 0),
        )


def _selection(similarity: Tensor, positives: Tensor, negatives: Tensor, *, margin: float, is_proxy: bool) -> Selection:
    """Active: the hardest triplet of the anchor (f = 0) violates the margin."""
    active = [
        margin + scores.masked_fill(~others, float("-inf")).amax(dim=1)
        > scores.masked_fill(~matches, float("inf")).amin(dim=1)
        for scores, matches, others in _directions(similarity, positives, negatives)
    ]
    return Selection(similarity, negatives, active[0], active[1], is_proxy=is_proxy)
