"""Ranks of the best positive, by counting, in blocks, ties against the query.

S is (N, M), images x captions, larger is more similar. A rank is the number of non-positive candidates that score at
least as high as the query's best positive, so 0 is best, and a constant S ranks every query last. Every score is
computed once for both directions. Only the scores of the positives are computed beforehand, as reference levels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from vsetune.metrics.positives import Positives
from vsetune.metrics.score_blocks import BLOCK_SHAPE, Scores, finite_blocks

RANKING_PROTOCOL: Mapping[str, str | int] = {"version": 1, "tie_rule": "pessimistic", "score_dtype": "float32"}
"""Settings that every rank of this module depends on besides the data; part of the protocol stored with a curve."""


@dataclass(frozen=True)
class QueryRanks:
    """ranks: (queries,) int64, 0 = best. tied: (queries,) bool, the rank depends on how ties are counted. left_out:
    number of queries without a positive, which have no rank."""

    ranks: Tensor
    tied: Tensor
    left_out: int


@dataclass(frozen=True)
class RetrievalRanks:
    """Ranks of both directions: one per image with a positive, one per caption with a positive, in their order."""

    image_to_text: QueryRanks
    text_to_image: QueryRanks


@torch.no_grad()
def retrieval_ranks(
    scores: Scores, positives: Positives, *, block_shape: tuple[int, int] = BLOCK_SHAPE
) -> RetrievalRanks:
    """Rank of the best positive of every query, in both directions.

    block_shape: images and captions scored at once; affects memory only.
    Raises NumericError if any score is not finite.
    """
    values = positives.scores(scores)
    images, captions = positives.shape
    counts = count_strangers(
        scores, positives, _best(values, positives.image, images), _best(values, positives.caption, captions),
        block_shape=block_shape,
    )
    return RetrievalRanks(
        _query_ranks(counts[0], positives.image), _query_ranks(counts[1], positives.caption)
    )


@dataclass
class StrangerCounts:
    """Running counts of the non-positive candidates of each query against its levels, both (queries, levels) int64.

    at_least: score as high as the level or higher. above: score higher.
    """

    at_least: Tensor
    above: Tensor

    def add(self, queries: slice, scores: Tensor, levels: Tensor, row: Tensor, column: Tensor) -> None:
        """Count one block. scores: (n, m) of these queries. levels: (n, levels). row, column: the positives in it."""
        own, own_levels = scores[row, column][:, None], levels[row]
        reached = torch.empty_like(scores)  # 0 and 1: a sum of bools would copy them to int64 first
        for place in range(levels.shape[1]):
            level = levels[:, place, None]
            self.at_least[queries, place] += torch.ge(scores, level, out=reached).sum(dim=1).long()
            self.above[queries, place] += torch.gt(scores, level, out=reached).sum(dim=1).long()
        self.at_least[queries].index_add_(0, row, (own >= own_levels).long(), alpha=-1)
        self.above[queries].index_add_(0, row, (own > own_levels).long(), alpha=-1)


def count_strangers(
    scores: Scores, positives: Positives, image_levels: Tensor, caption_levels: Tensor, *,
    block_shape: tuple[int, int],
) -> tuple[StrangerCounts, StrangerCounts]:
    """Number of non-positive candidates that reach the levels of image queries and of caption queries, in one pass.

    image_levels: (N, a). caption_levels: (M, b); infinity where a query has fewer levels.
    Raises NumericError if any score is not finite.
    """
    by_image, by_caption = _zero_counts(image_levels), _zero_counts(caption_levels)
    where = "retrieval image_to_text and text_to_image"
    for images, captions, block in finite_blocks(scores, block_shape, where=where):
        row, column = positives.inside(images, captions)
        by_image.add(images, block, image_levels[images], row, column)
        by_caption.add(captions, block.T, caption_levels[captions], column, row)
    return by_image, by_caption


def _best(values: Tensor, query: Tensor, queries: int) -> Tensor:
    """(queries, 1) highest score of a positive, infinity for a query without one."""
    best = values.new_full((queries,), torch.inf)
    return best.scatter_reduce(0, query, values, "amax", include_self=False)[:, None]


def _zero_counts(levels: Tensor) -> StrangerCounts:
    return StrangerCounts(*(torch.zeros(levels.shape, dtype=torch.int64, device=levels.device) for _ in range(2)))


def _query_ranks(counts: StrangerCounts, query: Tensor) -> QueryRanks:
    at_least, above = counts.at_least[:, 0], counts.above[:, 0]
    asked = torch.bincount(query, minlength=at_least.numel()) > 0
    return QueryRanks(at_least[asked], (at_least > above)[asked], left_out=int((~asked).sum()))
