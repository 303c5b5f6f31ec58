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
from vsetune.losses.selection import floors_of_largest

_ROUNDING = 1e-9  # 0.07 * 100 is a hair above 7 in floating point


class ActiveTriplets(NamedTuple):
    """Which triplets of each anchor (row) violate the margin, without gradient.

    counts: (N, M) active triplets an entry stands in, plus as a negative, minus as a positive: the gradient of the sum
    of the row's hinges. active: (N,) how many there are. used: (N,) how many triplets the anchor uses, 0 for anchors
    that have no positive or no negative.
    """

    counts: Tensor
    active: Tensor
    used: Tensor

    def shares(self) -> Tensor:
        """(N,) weight of one triplet in the mean over the row; 0 for skipped anchors."""
        return (self.used > 0) / self.used.clamp(min=1).to(self.counts.dtype)


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


def active_triplets(
    similarity: Tensor, positives: Tensor, negatives: Tensor, *, margin: float, fraction: float
) -> ActiveTriplets:
    """Triplets among the k_p x k_n hardest of each row with [negative + m - positive]+ > 0.

    similarity: (N, M), finite, float32 or wider. positives, negatives: (N, M) bool.
    Hinges are piecewise linear, so it is enough to count them, one positive of all anchors at a time; no tensor exceeds
    (N, M). On a tie for the last place one entry is used, not all.
    """
    scores = similarity.detach()
    return _count(scores, _lifted(scores, negatives, margin), positives, negatives, fraction)


def anchor_means(similarity: Tensor, triplets: ActiveTriplets, *, margin: float) -> Tensor:
    """(N,) mean hinge of each row over the triplets it uses, with gradient; 0 for skipped anchors. A NaN in a row
    reaches its mean."""
    return ((similarity * triplets.counts).sum(dim=1) + margin * triplets.active) * triplets.shares()


def _lifted(scores: Tensor, negatives: Tensor, margin: float) -> Tensor:
    """Negatives plus margin, minus infinity elsewhere."""
    return (scores + margin).masked_fill_(~negatives, float("-inf"))


def _count(scores: Tensor, lifted: Tensor, positives: Tensor, negatives: Tensor, fraction: float) -> ActiveTriplets:
    """`active_triplets` of scores and `_lifted` scores (N, M) without gradient."""
    low = _lowest_positives(scores, positives, fraction)
    high = _highest_negatives(lifted, negatives, fraction)
    counts, active = torch.zeros_like(high.values), torch.empty_like(high.values)
    violations = torch.empty_like(low.values)
    for rank in range(low.values.shape[1]):
        level = torch.maximum(low.values[:, rank], high.floors)
        torch.gt(high.values, level[:, None], out=active)  # floats, as sums of bools are slow
        counts += active
        violations[:, rank] = active.sum(dim=1)
    if high.places is not None:
        counts = torch.zeros_like(scores).scatter_(1, high.places, counts)
    counts.scatter_add_(1, low.places, -violations)
    return ActiveTriplets(counts, violations.sum(dim=1), low.used * high.used)


class Highest(NamedTuple):
    """The negatives each anchor uses: those of values (N, k) above floors (N,). places: (N, k) their columns; None
    where values are whole rows. used: (N,) how many an anchor uses."""

    values: Tensor
    floors: Tensor
    places: Tensor | None
    used: Tensor


class Hardest(NamedTuple):
    """The candidates each anchor uses. values: (N, k); an infinity that makes no hinge where an anchor uses fewer.
    places: (N, k) their columns. used: (N,) how many an anchor uses."""

    values: Tensor
    places: Tensor
    used: Tensor


def _highest_negatives(lifted: Tensor, negatives: Tensor, fraction: float) -> Highest:
    used = _used(negatives.sum(dim=1), fraction)
    everything = lifted.new_full((lifted.shape[0],), float("-inf"))
    if fraction == 1:
        return Highest(lifted, everything, None, used)
    floors = floors_of_largest(lifted, used) if int(used.max()) > 1 else None
    if floors is not None:
        return Highest(lifted, floors, None, used)
    hardest = _hardest(lifted, used, largest=True)
    return Highest(hardest.values, everything, hardest.places, used)


def _lowest_positives(scores: Tensor, positives: Tensor, fraction: float) -> Hardest:
    """Positives are few, so they are gathered before they are ranked."""
    rows, columns = positives.nonzero(as_tuple=True)
    counts = torch.bincount(rows, minlength=scores.shape[0])
    ranks = torch.arange(rows.shape[0], device=rows.device) - (counts.cumsum(dim=0) - counts)[rows]
    shape = (scores.shape[0], max(1, int(counts.max())))
    values = scores.new_full(shape, float("inf")).index_put_((rows, ranks), scores[rows, columns])
    places = columns.new_zeros(shape).index_put_((rows, ranks), columns)
    used = _used(counts, fraction)
    if fraction == 1 or shape[1] == 1:
        return Hardest(values, places, used)
    low = _hardest(values, used, largest=False)
    return Hardest(low.values, places.gather(1, low.places), used)


def _hardest(values: Tensor, used: Tensor, *, largest: bool) -> Hardest:
    """The used[i] largest or smallest entries of each row i."""
    fewest, most = torch.stack([used.min(), used.max()]).tolist()
    if most <= 1:
        hardest, places = values.max(dim=1, keepdim=True) if largest else values.min(dim=1, keepdim=True)
    else:
        hardest, places = values.topk(most, dim=1, largest=largest, sorted=fewest < most)
    unused = torch.arange(hardest.shape[1], device=used.device) >= used[:, None]
    return Hardest(hardest.masked_fill_(unused, float("-inf") if largest else float("inf")), places, used)


def _used(candidates: Tensor, fraction: float) -> Tensor:
    """`hardest_count` of a tensor of numbers of candidates; 0 of 0."""
    if fraction == 1:
        return candidates
    return torch.minimum(candidates, (fraction * candidates.double() - _ROUNDING).ceil().clamp(min=1).long())


def both_directions(
    similarity: Tensor, positives: Tensor, negatives: Tensor, *, margin: float, fraction: float
) -> tuple[ActiveTriplets, ActiveTriplets]:
    """Triplets with the images (rows) and with the captions (columns) as anchors; the latter hold (M, N) counts."""
    scores = similarity.detach()
    lifted = _lifted(scores, negatives, margin)
    images = _count(scores, lifted, positives, negatives, fraction)
    captions = _count(scores.T, lifted.T, positives.T, negatives.T, fraction)
    return images, captions


def mean_of_anchors(similarity: Tensor, images: ActiveTriplets, captions: ActiveTriplets, *, margin: float) -> Tensor:
    """Mean over the two directions of (1 / m) x mean over their anchors (Eq. 2-4). Scalar, 1 at exact collapse.

    A direction without any anchor counts as 0; without any triplet at all the value is 0, still connected.
    """
    weights = [triplets.shares() / (triplets.used > 0).sum().clamp(min=1) for triplets in (images, captions)]
    return _weighted_hinges(similarity, images, captions, weights, margin=margin) / (2 * margin)


def top_f_loss(
    similarity: Tensor, positives: Tensor, negatives: Tensor, *, margin: float, fraction: float
) -> Tensor:
    """`mean_of_anchors` over the hardest triplets of both directions."""
    images, captions = both_directions(similarity, positives, negatives, margin=margin, fraction=fraction)
    return mean_of_anchors(similarity, images, captions, margin=margin)


def sum_of_all_triplets(similarity: Tensor, positives: Tensor, negatives: Tensor, *, margin: float) -> Tensor:
    """Sum of [negative + m - positive]+ over all triplets of both directions: LSH for several positives. Scalar."""
    images, captions = both_directions(similarity, positives, negatives, margin=margin, fraction=1.0)
    weights = [torch.ones_like(images.active), torch.ones_like(captions.active)]
    return _weighted_hinges(similarity, images, captions, weights, margin=margin)


def _weighted_hinges(
    similarity: Tensor, images: ActiveTriplets, captions: ActiveTriplets, weights: list[Tensor], *, margin: float
) -> Tensor:
    """Sum of all active hinges, each times the weight of its anchor."""
    gradient = (images.counts * weights[0][:, None]).addcmul_(captions.counts.T, weights[1][None, :])
    return (similarity * gradient).sum() + margin * (images.active @ weights[0] + captions.active @ weights[1])


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
        if self.is_warming_up:
            return LossOutput(value=sum_of_all_triplets(similarity, positives, negatives, margin=margin))
        fraction = self.fraction
        images, captions = both_directions(similarity, positives, negatives, margin=margin, fraction=fraction)
        return LossOutput(
            value=mean_of_anchors(similarity, images, captions, margin=margin),
            parts={"fraction": torch.tensor(fraction)},
            selection=Selection(  # the hardest triplet of an anchor is always used, so it is active if any is
                similarity.detach(), negatives, images.active > 0, captions.active > 0, is_proxy=fraction > 0
            ),
        )
