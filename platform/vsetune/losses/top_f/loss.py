"""Top-f triplet loss with several positives (Huteau et al. 2023, MSE**, Eq. 1-4).

An anchor is an image or a caption of the batch. Of its n_p positives it uses the max(1, ceil(f n_p)) least similar,
of its n_n negatives the max(1, ceil(f n_n)) most similar; f falls from 1 (all triplets) to 0 (the hardest).
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from vsetune.losses.loss_base import Loss, LossInputs, LossOutput, Selection, at_least_float32
from vsetune.losses.loss_building import register
from vsetune.losses.parts.pairing import Pools, pools, pools_of_batch, same_image
from vsetune.losses.top_f.active_triplets import ActiveTriplets, both_directions
from vsetune.losses.top_f.spec import TopFSpec


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


def anchor_means(similarity: Tensor, triplets: ActiveTriplets, *, margin: float) -> Tensor:
    """(N,) mean hinge of each row over the triplets it uses, with gradient; 0 for skipped anchors. A NaN in a row
    reaches its mean."""
    return ((similarity * triplets.counts).sum(dim=1) + margin * triplets.active) * triplets.shares()


def mean_of_anchors(met: Pools, images: ActiveTriplets, captions: ActiveTriplets, *, margin: float) -> Tensor:
    """Mean over the two directions of (1 / m) x mean over their anchors (Eq. 2-4). Scalar, 1 at exact collapse.

    A direction without any anchor counts as 0; without any triplet at all the value is 0, still connected.
    """
    weights = [triplets.shares() / (triplets.used > 0).sum().clamp(min=1) for triplets in (images, captions)]
    return _weighted_hinges(met, images, captions, weights, margin=margin) / (2 * margin)


def top_f_loss(
    similarity: Tensor, positives: Tensor, negatives: Tensor, *, margin: float, fraction: float
) -> Tensor:
    """`mean_of_anchors` over the hardest triplets of both directions of a batch. All (N, M)."""
    met = pools_of_batch(similarity, negatives)
    images, captions = both_directions(met, positives, margin=margin, fraction=fraction)
    return mean_of_anchors(met, images, captions, margin=margin)


def sum_of_all_triplets(met: Pools, positives: Tensor, *, margin: float) -> Tensor:
    """Sum of [negative + m - positive]+ over all triplets of both directions: LSH for several positives. Scalar.

    positives: (N, M) bool.
    """
    images, captions = both_directions(met, positives, margin=margin, fraction=1.0)
    weights = [torch.ones_like(images.active), torch.ones_like(captions.active)]
    return _weighted_hinges(met, images, captions, weights, margin=margin)


def _weighted_hinges(
    met: Pools, images: ActiveTriplets, captions: ActiveTriplets, weights: list[Tensor], *, margin: float
) -> Tensor:
    """Sum of all active hinges, each times the weight of its anchor."""
    gradient = images.counts * weights[0][:, None]
    if met.captions is met.images:
        scores = (met.images * gradient.addcmul_(captions.counts.T, weights[1][None, :])).sum()
    else:
        scores = (met.images * gradient).sum() + (met.captions * (captions.counts.T * weights[1])).sum()
    return scores + margin * (images.active @ weights[0] + captions.active @ weights[1])


@register(TopFSpec)
class TopFraction(Loss):
    """Top-f triplets; positives are all captions of the same image, in both directions and any batch unit.

    Remembered items are further negatives of every anchor, never positives.

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
            self.counter("steps"), decay=spec.decay, decay_steps=spec.decay_steps, sharpness=spec.sharpness,
            min_fraction=spec.min_fraction,
        )

    def after_step(self) -> None:
        if not self.is_warming_up:
            self.set_counter("steps", self.counter("steps") + 1)

    def forward(self, inputs: LossInputs) -> LossOutput:
        margin = self.spec.margin
        similarity = at_least_float32(inputs.similarity)
        positives = same_image(inputs)
        negatives = ~positives
        met = pools(inputs, similarity, negatives, inputs.memory, "decided")
        if self.is_warming_up:
            return LossOutput(value=sum_of_all_triplets(met, positives, margin=margin))
        fraction = self.fraction
        images, captions = both_directions(met, positives, margin=margin, fraction=fraction)
        return LossOutput(
            value=mean_of_anchors(met, images, captions, margin=margin),
            parts={"fraction": torch.tensor(fraction)},
            selection=Selection(  # the hardest triplet of an anchor is always used, so it is active if any is
                similarity.detach(), negatives, images.active > 0, captions.active > 0,
                is_proxy=fraction > 0 or inputs.memory is not None,
            ),
        )
