"""Top-f triplet loss with several positives (Huteau et al. 2023, MSE**, Eq. 1-4), and its count of active triplets."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from vsetune.losses.loss_base import Loss, LossInputs, LossOutput, Selection, at_least_float32
from vsetune.losses.loss_building import register
from vsetune.losses.parts.loss_devices import is_on_cpu
from vsetune.losses.parts.pairing import Pools, pools, same_image
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


def mean_of_anchors(met: Pools, images: ActiveTriplets, captions: ActiveTriplets, *, margin: float) -> Tensor:
    """Mean over the two directions of (1 / m) x mean over their anchors (Eq. 2-4). Scalar, 1 at exact collapse.

    A direction without any anchor counts as 0; without any triplet at all the value is 0, still connected.
    """
    weights = [triplets.shares() / (triplets.used > 0).sum().clamp(min=1) for triplets in (images, captions)]
    return _weighted_hinges(met, images, captions, weights, margin=margin) / (2 * margin)


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

    spec: TopFSpec
    steps: Tensor

    def __init__(self, spec: TopFSpec) -> None:
        super().__init__(spec)
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


_ROUNDING = 1e-9  # 0.07 * 100 is a hair above 7 in floating point
_MOST_POSITIVES_ONE_BY_ONE = 128  # about where sorting becomes faster; a GPU, which ranks whole rows, has more


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


def hardest_count(candidates: int, fraction: float) -> int:
    """Number of candidates used at this fraction of n: max(1, ceil(f n))."""
    return max(1, math.ceil(fraction * candidates - _ROUNDING))


def both_directions(
    met: Pools, positives: Tensor, *, margin: float, fraction: float
) -> tuple[ActiveTriplets, ActiveTriplets]:
    """Triplets among the k_p x k_n hardest of each anchor with [negative + m - positive]+ > 0: with the images and with
    the captions as anchors; the latter have (M, N + P) counts.

    met: finite scores, float32 or wider. positives: (N, M) bool, of the batch alone. Hinges are piecewise linear, so it
    is enough to count them: one positive of all anchors at a time up to 128, by sorting beyond; no tensor exceeds the
    scores. On a tie for the last place one entry is used, not all.
    """
    scores = met.images.detach()
    lifted = _lifted(scores, met.image_negatives, margin)
    images = _count(scores, lifted, positives, met.image_negatives, fraction)
    if met.captions is not met.images:
        scores = met.captions.detach()
        lifted = _lifted(scores, met.caption_negatives, margin)
    captions = _count(scores.T, lifted.T, positives.T, met.caption_negatives.T, fraction)
    return images, captions


def _lifted(scores: Tensor, negatives: Tensor, margin: float) -> Tensor:
    """Negatives plus margin, minus infinity elsewhere."""
    return (scores + margin).masked_fill_(~negatives, float("-inf"))


def _count(scores: Tensor, lifted: Tensor, positives: Tensor, negatives: Tensor, fraction: float) -> ActiveTriplets:
    """The triplets of each row, from scores and `_lifted` scores (N, M) without gradient."""
    low = _lowest_positives(scores, positives, fraction)
    high = _hardest(lifted, _used(negatives.sum(dim=1), fraction), fraction, largest=True)
    few = low.values.shape[1] <= _MOST_POSITIVES_ONE_BY_ONE
    counts, violations = (_count_one_by_one if few else _count_by_sorting)(low, high)
    counts = torch.zeros_like(scores).scatter_(1, high.places, counts).scatter_add_(1, low.places, -violations)
    return ActiveTriplets(counts, violations.sum(dim=1), low.used * high.used)


def _count_one_by_one(low: Hardest, high: Hardest) -> tuple[Tensor, Tensor]:
    """Active triplets of each negative (N, k) and of each positive (N, k_p), one positive of all anchors at a time."""
    counts, active = torch.zeros_like(high.values), torch.empty_like(high.values)
    violations = torch.empty_like(low.values)
    for rank in range(low.values.shape[1]):
        torch.gt(high.values, low.values[:, rank, None], out=active)  # floats, as sums of bools are slow
        counts += active
        violations[:, rank] = active.sum(dim=1)
    return counts, violations


def _count_by_sorting(low: Hardest, high: Hardest) -> tuple[Tensor, Tensor]:
    """The same counts, in time that hardly grows with the number of positives. Rows with a NaN differ; their means are
    NaN either way."""
    lowest, highest = (each.values.sort(dim=1).values.contiguous() for each in (low, high))
    counts = torch.searchsorted(lowest, high.values.contiguous())
    reached = torch.searchsorted(highest, low.values.contiguous(), right=True)
    return counts.to(highest.dtype), (highest.shape[1] - reached).to(highest.dtype)


class Hardest(NamedTuple):
    """The candidates each anchor uses. values: (N, k); an infinity that makes no hinge where an anchor uses fewer.
    places: (N, k) their columns. used: (N,) how many an anchor uses."""

    values: Tensor
    places: Tensor
    used: Tensor


def _lowest_positives(scores: Tensor, positives: Tensor, fraction: float) -> Hardest:
    """Positives are few, so they are gathered before they are ranked; on a GPU, where reading their number would wait
    for the queue, they are ranked in place."""
    if not is_on_cpu(scores):
        values = scores.masked_fill(~positives, float("inf"))
        return _hardest(values, _used(positives.sum(dim=1), fraction), fraction, largest=False)
    rows, columns = positives.nonzero(as_tuple=True)
    counts = torch.bincount(rows, minlength=scores.shape[0])
    ranks = torch.arange(rows.shape[0], device=rows.device) - (counts.cumsum(dim=0) - counts)[rows]
    shape = (scores.shape[0], max(1, int(counts.max())))
    values = scores.new_full(shape, float("inf")).index_put_((rows, ranks), scores[rows, columns])
    places = columns.new_zeros(shape).index_put_((rows, ranks), columns)
    low = _hardest(values, _used(counts, fraction), fraction, largest=False)
    return low._replace(places=places.gather(1, low.places))


def _hardest(values: Tensor, used: Tensor, fraction: float, *, largest: bool) -> Hardest:
    """The used[i] largest or smallest entries of each row i, which `_used` gave for this fraction; at 1 whole rows."""
    if fraction == 1:
        return Hardest(values, torch.arange(values.shape[1], device=values.device).expand(values.shape), used)
    if is_on_cpu(values):
        fewest, most = torch.stack([used.min(), used.max()]).tolist()
    else:  # at most; what a row does not use is left out below
        fewest, most = 0, hardest_count(values.shape[1], fraction)
    if most <= 1:
        hardest, places = values.max(dim=1, keepdim=True) if largest else values.min(dim=1, keepdim=True)
    else:
        hardest, places = values.topk(most, dim=1, largest=largest, sorted=fewest < most)
    unused = torch.arange(hardest.shape[1], device=used.device) >= used[:, None]
    return Hardest(hardest.masked_fill_(unused, float("-inf") if largest else float("inf")), places, used)


def _used(candidates: Tensor, fraction: float) -> Tensor:
    """`hardest_count` for a tensor of numbers of candidates; 0 for 0."""
    if fraction == 1:
        return candidates
    return torch.minimum(candidates, (fraction * candidates.double() - _ROUNDING).ceil().clamp(min=1).long())
