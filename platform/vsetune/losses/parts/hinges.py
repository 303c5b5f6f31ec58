"""Hinges of both query directions: their sum (LSH), their maximum (LMH, LSEH), the mean of the hardest (IRTM).

Every pair of a batch gives two queries: its image for captions, its caption for images. N: images, M: pairs (captions).
Values outside the negatives are minus infinity before the hinge, so they give no term and no gradient, while a NaN in a
negative or in a positive passes maximum and hinge and reaches the value.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from vsetune.losses.parts.pairing import Candidates


class QueryTerms(NamedTuple):
    """Terms per pair, >= 0, not yet reduced. images: (M,) of image queries. captions: (M,) of caption queries."""

    images: Tensor
    captions: Tensor

    def total(self) -> Tensor:
        """Sum over the queries of both directions (never divided by B, as in every reference)."""
        return self.images.sum() + self.captions.sum()


def hardest_scores(among: Candidates) -> QueryTerms:
    """Score of the hardest negative of each query, minus infinity without one. On a tie one, not all, gets gradient."""
    by_image = among.images.max(dim=1).values
    return QueryTerms(by_image if among.rows is None else by_image[among.rows], among.captions.max(dim=0).values)


def hinge_of_each(among: Candidates, matched: Tensor, *, margin: float | Tensor) -> QueryTerms:
    """[margin + negative - positive]+ of every query and candidate: images (M, M + P), captions (N + P, M).

    matched: (M,) similarity of the pairs. margin: >= 0, units of similarity.
    """
    lifted = margin + among.images
    by_pair = lifted if among.rows is None else lifted[among.rows]
    by_caption = lifted if among.captions is among.images else margin + among.captions
    return QueryTerms((by_pair - matched[:, None]).relu(), (by_caption - matched[None, :]).relu())


def summed_hinges(among: Candidates, matched: Tensor, *, margin: float | Tensor) -> QueryTerms:
    """Per query the sum over its negatives of [margin + negative - positive]+ (LSH)."""
    hinges = hinge_of_each(among, matched, margin=margin)
    return QueryTerms(hinges.images.sum(dim=1), hinges.captions.sum(dim=0))


def hardest_hinges(among: Candidates, matched: Tensor, *, margin: float) -> QueryTerms:
    """Per query the hinge of its hardest negative, [margin + max score - positive]+, 0 without one (LMH, LSEH)."""
    hardest = hardest_scores(among)
    return QueryTerms((margin + hardest.images - matched).relu(), (margin + hardest.captions - matched).relu())
