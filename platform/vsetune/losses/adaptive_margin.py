"""Triplet hinge on distances with two margins that grow with success (Malali and Keller, Eq. 10-13).

    L = sum_n [D(x_n, y_n) - D(x_n, y-)  + m_x]+ + sum_n [D(y_n, x_n) - D(y_n, x-) + m_y]+

D is the Euclidean distance of unit vectors, sqrt(2 - 2 S), so `similarity` must be a cosine. m_x and m_y are not
trained: every q steps each of them is multiplied by c if enough triplets of its direction respect it.
The paper's text and its Eq. 11-12 contradict each other on which triplets are counted. Default is the text (share that
respects the margin, stable); `as_printed` counts the violations.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vsetune.config.losses import AdaptiveMarginSpec
from vsetune.losses.base import Loss, LossInputs, LossOutput, Selection, at_least_float32, require_pairs
from vsetune.losses.hinges import QueryTerms
from vsetune.losses.pairing import pair_negatives
from vsetune.losses.registry import register

_SMALLEST_SQUARE = 1e-12  # keeps the gradient of the root finite at distance 0


def distances(similarity: Tensor, *, squared: bool) -> Tensor:
    """Euclidean distances of unit vectors with these cosines; same shape."""
    squares = 2 - 2 * similarity
    return squares if squared else squares.clamp(min=_SMALLEST_SQUARE).sqrt()


def random_derangement(size: int) -> Tensor:
    """(size,) int64: for each place another place, every one equally likely; drawn from torch's global CPU generator.

    A random cycle through all places. Size 1 has no derangement and returns place 0 itself.
    """
    cycle = torch.randperm(size)
    successor = torch.empty_like(cycle)
    successor[cycle] = cycle.roll(-1)
    return successor


def sampled_gaps(
    similarity: Tensor, negatives: Tensor, *, image_negatives: Tensor, caption_negatives: Tensor, squared: bool
) -> QueryTerms:
    """D+ - D- of one triplet per query; minus infinity where the drawn negative is not one (same image).

    image_negatives: (B,) column taken by each image; caption_negatives: (B,) row taken by each caption.
    """
    places = torch.arange(similarity.shape[0], device=similarity.device)
    matched = distances(similarity.diagonal(), squared=squared)
    image_gaps = matched - distances(similarity[places, image_negatives], squared=squared)
    caption_gaps = matched - distances(similarity[caption_negatives, places], squared=squared)
    return QueryTerms(
        image_gaps.masked_fill(~negatives[places, image_negatives], float("-inf")),
        caption_gaps.masked_fill(~negatives[caption_negatives, places], float("-inf")),
    )


def hardest_gaps(similarity: Tensor, negatives: Tensor, *, squared: bool) -> QueryTerms:
    """D+ - D- with the nearest negative of each query; minus infinity where there is none."""
    matched = distances(similarity.diagonal(), squared=squared)
    others = distances(similarity, squared=squared).masked_fill(~negatives, float("inf"))
    return QueryTerms(matched - others.min(dim=1).values, matched - others.min(dim=0).values)


def all_gaps(similarity: Tensor, negatives: Tensor, *, squared: bool) -> QueryTerms:
    """D+ - D- of every triplet, (B, B) per direction, minus infinity where there is no negative."""
    matched = distances(similarity.diagonal(), squared=squared)
    others = distances(similarity, squared=squared).masked_fill(~negatives, float("inf"))
    return QueryTerms(matched[:, None] - others, matched[None, :] - others)


def hinge_gaps(gaps: QueryTerms, *, margins: Tensor) -> QueryTerms:
    """[D+ - D- + m]+ per triplet, unreduced. margins: (2,), of image queries and of caption queries."""
    return QueryTerms((gaps.images + margins[0]).relu(), (gaps.captions + margins[1]).relu())


@register(AdaptiveMarginSpec)
class AdaptiveMargin(Loss):
    """Adaptive-margin triplet loss. Both directions are held as pairs (image queries, caption queries) in the buffers.

    margins: (2,) float64. counted, triplets: (2,) int64, of the current window. step: training steps in the window.
    A training forward counts its triplets; the decision falls in `after_step`. Warm-up epochs use the sum of
    distance hinges over all negatives with the start margins, count nothing and do not move the window.
    """

    margins: Tensor
    counted: Tensor
    triplets: Tensor
    step: Tensor

    def __init__(self, spec: AdaptiveMarginSpec) -> None:
        super().__init__(warmup_epochs=spec.warmup_epochs)
        self.spec = spec
        start = min(spec.margin, spec.cap)
        self.register_buffer("margins", torch.full((2,), start, dtype=torch.float64))
        self.register_buffer("counted", torch.zeros(2, dtype=torch.int64))
        self.register_buffer("triplets", torch.zeros(2, dtype=torch.int64))
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def forward(self, inputs: LossInputs) -> LossOutput:
        """Raises ConfigError unless the batch consists of pairs."""
        require_pairs(inputs, self.spec.name)
        similarity = at_least_float32(inputs.similarity)
        negatives = pair_negatives(inputs, "decided")
        squared = self.spec.squared
        if self.is_warming_up:
            hinges = hinge_gaps(all_gaps(similarity, negatives, squared=squared), margins=self.margins)
            return LossOutput(value=hinges.total(), parts=self._parts())
        selection = None
        if self.spec.negatives == "hardest":
            gaps = hardest_gaps(similarity, negatives, squared=squared)
        else:
            gaps = self._random_gaps(similarity, negatives)
        hinges = hinge_gaps(gaps, margins=self.margins)
        if self.spec.negatives == "hardest":
            active_images, active_captions = hinges.images.detach() > 0, hinges.captions.detach() > 0
            selection = Selection(similarity.detach(), negatives, active_images, active_captions, is_proxy=False)
        if self.training:
            self._count(gaps)
        return LossOutput(value=hinges.total(), parts=self._parts(), selection=selection)

    @torch.no_grad()
    def after_step(self) -> None:
        """Close the window after every `interval` steps: grow the margins that earned it, start counting anew.

        Written without reading a value back, so a GPU is never waited for.
        """
        if self.is_warming_up:
            return
        spec = self.spec
        self.step += 1
        is_due = self.step >= spec.interval
        earned = self.counted.double() / self.triplets.double() > spec.ratio  # 0 / 0 is not above the ratio
        grown = (self.margins * spec.growth).clamp(max=spec.cap)
        self.margins.copy_(torch.where(is_due & earned, grown, self.margins))
        for counter in (self.counted, self.triplets, self.step):
            counter.masked_fill_(is_due, 0)

    def _random_gaps(self, similarity: Tensor, negatives: Tensor) -> QueryTerms:
        size, device = similarity.shape[0], similarity.device
        return sampled_gaps(
            similarity, negatives, image_negatives=random_derangement(size).to(device),
            caption_negatives=random_derangement(size).to(device), squared=self.spec.squared,
        )

    @torch.no_grad()
    def _count(self, gaps: QueryTerms) -> None:
        stacked = torch.stack(list(gaps))
        are_triplets = stacked != float("-inf")
        violations = stacked + self.margins[:, None]
        counts = violations > 0 if self.spec.variant == "as_printed" else violations <= 0
        self.counted += (counts & are_triplets).sum(dim=1)
        self.triplets += are_triplets.sum(dim=1)

    def _parts(self) -> dict[str, Tensor]:
        margins = self.margins.clone()
        return {"margin_images": margins[0], "margin_captions": margins[1]}
