"""Triplet hinge on distances with two margins that grow with success (Malali and Keller, Eq. 10-13).

    L = sum_n [D(x_n, y_n) - D(x_n, y-)  + m_x]+ + sum_n [D(y_n, x_n) - D(y_n, x-) + m_y]+

D is the Euclidean distance of unit vectors, sqrt(2 - 2 S), so `similarity` must be a cosine. m_x and m_y are not
trained: every q steps each of them is multiplied by c if enough triplets of its direction satisfy it. The paper's text
and its Eq. 11-12 contradict each other on which triplets are counted. The default is the text (share of triplets that
satisfy the margin, stable); `as_printed` counts the violations.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vsetune.losses.adaptive_margin.spec import AdaptiveMarginSpec
from vsetune.losses.loss_base import Loss, LossInputs, LossOutput, at_least_float32, require_pairs
from vsetune.losses.loss_building import register
from vsetune.losses.parts.loss_devices import beside
from vsetune.losses.parts.pairing import Candidates, QueryTerms, candidates, mined_selection, pair_negatives
from vsetune.losses.parts.spec_fields import TripletMarginFields

_SMALLEST_SQUARE = 1e-12  # keeps the gradient of the root finite at distance 0


def distances(similarity: Tensor, *, squared: bool) -> Tensor:
    """Euclidean distances of unit vectors with these cosines; same shape."""
    squares = 2 - 2 * similarity
    return squares if squared else squares.clamp(min=_SMALLEST_SQUARE).sqrt()


def random_derangement(size: int) -> Tensor:
    """(size,) int64: a random derangement, sampled with torch's global CPU generator; each place gets every other place
    with equal probability.

    It is a random cycle through all places. Size 1 has no derangement and returns place 0 itself.
    """
    cycle = torch.randperm(size)
    successor = torch.empty_like(cycle)
    successor[cycle] = cycle.roll(-1)
    return successor


def sampled_gaps(
    similarity: Tensor, negatives: Tensor, *, image_negatives: Tensor, caption_negatives: Tensor, squared: bool
) -> QueryTerms:
    """D+ - D- of one triplet per query; minus infinity where the sampled item is no negative (same image).

    image_negatives: (B,) column selected for each image; caption_negatives: (B,) row selected for each caption.
    """
    places = torch.arange(similarity.shape[0], device=similarity.device)
    matched = distances(similarity.diagonal(), squared=squared)
    image_gaps = matched - distances(similarity[places, image_negatives], squared=squared)
    caption_gaps = matched - distances(similarity[caption_negatives, places], squared=squared)
    return QueryTerms(
        image_gaps.masked_fill(~negatives[places, image_negatives], float("-inf")),
        caption_gaps.masked_fill(~negatives[caption_negatives, places], float("-inf")),
    )


def hardest_gaps(among: Candidates, matched: Tensor, *, squared: bool) -> QueryTerms:
    """D+ - D- with the nearest negative of each query; minus infinity where there is none. See `all_gaps`."""
    own = distances(matched, squared=squared)
    by_image, by_caption = _distances_of_each(among, squared=squared)
    return QueryTerms(own - by_image.min(dim=1).values, own - by_caption.min(dim=0).values)


def all_gaps(among: Candidates, matched: Tensor, *, squared: bool) -> QueryTerms:
    """D+ - D- of every triplet, of a batch of pairs: (B, B + P) of image queries, (B + P, B) of caption queries.

    Minus infinity where there is no negative. matched: (B,) similarity of the pairs.
    """
    own = distances(matched, squared=squared)
    by_image, by_caption = _distances_of_each(among, squared=squared)
    return QueryTerms(own[:, None] - by_image, own[None, :] - by_caption)


def _distances_of_each(among: Candidates, *, squared: bool) -> tuple[Tensor, Tensor]:
    """Distances of the candidates of both directions, infinite where an item is no negative."""
    by_image = distances(among.images, squared=squared)
    return by_image, by_image if among.captions is among.images else distances(among.captions, squared=squared)


def hinge_gaps(gaps: QueryTerms, *, margins: Tensor) -> QueryTerms:
    """[D+ - D- + m]+ per triplet, unreduced. margins: (2,), of image queries and of caption queries."""
    return QueryTerms((gaps.images + margins[0]).relu(), (gaps.captions + margins[1]).relu())


def triplet_gaps(
    inputs: LossInputs, similarity: Tensor, negatives: Tensor, spec: TripletMarginFields
) -> QueryTerms:
    """D+ - D- of one triplet per query, with the kind of negatives that the spec selects.

    Random negatives are derangements from torch's global generator, first those of image queries.
    """
    if spec.negatives == "hardest":
        among = candidates(inputs, similarity, negatives, inputs.memory, "decided")
        return hardest_gaps(among, similarity.diagonal(), squared=spec.squared)
    size = similarity.shape[0]
    return sampled_gaps(
        similarity, negatives, image_negatives=beside(random_derangement(size), similarity),
        caption_negatives=beside(random_derangement(size), similarity), squared=spec.squared,
    )


def mean_over_triplets(hinges: QueryTerms, gaps: QueryTerms) -> Tensor:
    """Per direction the mean hinge over its triplets, 0 without any; both added. Scalar."""
    means = [
        terms.sum() / (gap != float("-inf")).sum().clamp(min=1) for terms, gap in zip(hinges, gaps, strict=True)
    ]
    return means[0] + means[1]


class GrowingMargins(Loss):
    """A loss with two margins that grow with success: of image queries and of caption queries.

    margins: (2,) float64. counted, triplets: (2,) int64, of the current window. step: training steps in the window.
    """

    spec: TripletMarginFields
    margins: Tensor
    counted: Tensor
    triplets: Tensor
    step: Tensor

    def __init__(self, spec: TripletMarginFields) -> None:
        super().__init__(spec)
        self.register_buffer("margins", torch.full((2,), spec.margin, dtype=torch.float64))
        for name, shape in (("counted", (2,)), ("triplets", (2,)), ("step", ())):
            self.register_buffer(name, torch.zeros(shape, dtype=torch.int64))

    @torch.no_grad()
    def count_triplets(self, gaps: QueryTerms) -> None:
        """Add the triplets of a batch to the window, and those of them that the variant counts."""
        stacked = torch.stack(list(gaps))
        are_triplets = stacked != float("-inf")
        violations = stacked + self.margins[:, None]
        counts = violations > 0 if self.spec.variant == "as_printed" else violations <= 0
        self.counted.add_((counts & are_triplets).sum(dim=1))
        self.triplets.add_(are_triplets.sum(dim=1))

    @torch.no_grad()
    def close_window(self) -> None:
        """After every `interval` steps: grow the margins whose condition is met, and restart the counts.

        No value is read back, so the code never waits for a GPU.
        """
        self.step.add_(1)
        is_due = self.step >= self.spec.interval
        earned = self.counted.double() / self.triplets.double() > self.spec.ratio  # 0 / 0 is not above the ratio
        grown = (self.margins * self.spec.growth).clamp(max=self.spec.cap)
        self.margins.copy_(torch.where(is_due & earned, grown, self.margins))
        for counter in (self.counted, self.triplets, self.step):
            counter.masked_fill_(is_due, 0)

    def margins_to_log(self) -> dict[str, Tensor]:
        margins = self.margins.clone()
        return {"margin_images": margins[0], "margin_captions": margins[1]}


@register(AdaptiveMarginSpec)
class AdaptiveMargin(GrowingMargins):
    """Adaptive-margin triplet loss, a sum over the queries of both directions.

    A training forward counts its triplets; `after_step` decides on the margins. Warm-up epochs use the sum of distance
    hinges over all negatives with the initial margins, count nothing and do not advance the window.
    """

    spec: AdaptiveMarginSpec

    def forward(self, inputs: LossInputs) -> LossOutput:
        """Raises ConfigError unless the batch consists of pairs."""
        spec, selection = self.spec, None
        require_pairs(inputs, spec.name)
        similarity = at_least_float32(inputs.similarity)
        negatives = pair_negatives(inputs, "decided")
        if self.is_warming_up:
            among = candidates(inputs, similarity, negatives, inputs.memory, "decided")
            gaps = all_gaps(among, similarity.diagonal(), squared=spec.squared)
        else:
            gaps = triplet_gaps(inputs, similarity, negatives, spec)
            if self.training:
                self.count_triplets(gaps)
        hinges = hinge_gaps(gaps, margins=self.margins)
        if spec.negatives == "hardest" and not self.is_warming_up:
            selection = mined_selection(inputs, similarity, negatives, hinges.active())
        return LossOutput(value=hinges.total(), parts=self.margins_to_log(), selection=selection)

    def after_step(self) -> None:
        if not self.is_warming_up:
            self.close_window()
