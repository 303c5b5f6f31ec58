"""Hinges of both query directions on a square matrix of pairs: their sum (LSH) and their maximum (LMH, LSEH).

B: pairs. Row i is image query i, column j caption query j, the positive of both stands on the diagonal.
Values outside `negatives` are set to minus infinity before the hinge, so they give no term and no gradient, while a
NaN in a negative or in a positive survives maximum and hinge and reaches the value.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class QueryTerms(NamedTuple):
    """Terms per query, >= 0, not yet reduced. images: (B,) of image queries. captions: (B,) of caption queries."""

    images: Tensor
    captions: Tensor

    def total(self) -> Tensor:
        """Sum over the queries of both directions (never divided by B, as in every reference)."""
        return self.images.sum() + self.captions.sum()


def sum_of_hinges(similarity: Tensor, negatives: Tensor, *, margin: float | Tensor) -> QueryTerms:
    """Per query the sum over its negatives of [margin + negative - positive]+ (LSH).

    similarity: (B, B). negatives: (B, B) bool, False on the diagonal. margin: >= 0, units of similarity.
    """
    matched = similarity.diagonal()
    lifted = margin + similarity.masked_fill(~negatives, float("-inf"))
    image_hinges = (lifted - matched[:, None]).relu()
    caption_hinges = (lifted - matched[None, :]).relu()
    return QueryTerms(image_hinges.sum(dim=1), caption_hinges.sum(dim=0))


def max_of_hinges(scores: Tensor, matched: Tensor, negatives: Tensor, *, margin: float) -> QueryTerms:
    """Per query the hinge of its hardest negative, [margin + max score - positive]+ (LMH Eq. 2, LSEH Eq. 8).

    scores: (B, B) what negatives are ranked and penalised by (similarity, plus lambda Q for LSEH). matched: (B,)
    similarity of the pairs. negatives: (B, B) bool. A query without negatives gives 0. On a tie one negative, not all,
    receives the gradient.
    """
    candidates = scores.masked_fill(~negatives, float("-inf"))
    image_hinges = (margin + candidates.max(dim=1).values - matched).relu()
    caption_hinges = (margin + candidates.max(dim=0).values - matched).relu()
    return QueryTerms(image_hinges, caption_hinges)
