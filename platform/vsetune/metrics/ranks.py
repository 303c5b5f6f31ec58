"""Ranks of positives, by counting, in blocks, ties against the query: of the best one, and of all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from vsetune.metrics.positives import Positives
from vsetune.metrics.score_blocks import ALONE, BLOCK_SHAPE, Scores, Sharing, finite_blocks

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
    scores: Scores, positives: Positives, *, block_shape: tuple[int, int] = BLOCK_SHAPE, among: Sharing = ALONE
) -> RetrievalRanks:
    """Rank of the best positive of every query, in both directions.

    block_shape: images and captions scored at once; affects memory only. among: the processes that rank them together.
    Raises NumericError if any score is not finite.
    """
    values = positives.scores(scores)
    images, captions = positives.shape
    counts = count_strangers(
        scores, positives, _best(values, positives.image, images), _best(values, positives.caption, captions),
        block_shape=block_shape, among=among,
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

    def over(self, among: Sharing) -> StrangerCounts:
        """The counts of all blocks, in every process."""
        return StrangerCounts(among.total(self.at_least), among.total(self.above))

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
    block_shape: tuple[int, int], among: Sharing = ALONE,
) -> tuple[StrangerCounts, StrangerCounts]:
    """Number of non-positive candidates that reach the levels of image queries and of caption queries, in one pass.

    image_levels: (N, a). caption_levels: (M, b); infinity where a query has fewer levels.
    Raises NumericError if any score is not finite.
    """
    by_image, by_caption = _zero_counts(image_levels), _zero_counts(caption_levels)
    where = "retrieval image_to_text and text_to_image"
    for images, captions, block in finite_blocks(scores, block_shape, where=where, among=among):
        row, column = positives.inside(images, captions)
        by_image.add(images, block, image_levels[images], row, column)
        by_caption.add(captions, block.T, caption_levels[captions], column, row)
    return by_image.over(among), by_caption.over(among)


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


@dataclass(frozen=True)
class PositiveRanks:
    """One entry per positive, ordered by query, then candidate. query: (P,) its row. rank: (P,) int64, 1 = first.

    queries: number of queries; queries without a positive are left out of every mean.
    """

    query: Tensor
    rank: Tensor
    queries: int


@dataclass(frozen=True)
class RankAverages:
    """MeanR, MeanWorstR and coverage@k (k = 1, 5, 10) of both directions; ranks 1-based, coverage 0 to 1."""

    i2t_mean_positive_rank: float
    t2i_mean_positive_rank: float
    i2t_mean_worst_rank: float
    t2i_mean_worst_rank: float
    i2t_coverage_1: float
    i2t_coverage_5: float
    i2t_coverage_10: float
    t2i_coverage_1: float
    t2i_coverage_5: float
    t2i_coverage_10: float

    def as_dict(self) -> dict[str, float]:
        """All numbers by name."""
        return asdict(self)


def rank_averages(scores: Scores, positives: Positives) -> RankAverages:
    """Averages over all positives of each query, in both directions.

    Raises NumericError if any score is not finite.
    """
    i2t, t2i = positive_ranks(scores, positives)
    return RankAverages(
        i2t_mean_positive_rank=mean_positive_rank(i2t), t2i_mean_positive_rank=mean_positive_rank(t2i),
        i2t_mean_worst_rank=mean_worst_rank(i2t), t2i_mean_worst_rank=mean_worst_rank(t2i),
        i2t_coverage_1=coverage_at_k(i2t, 1), i2t_coverage_5=coverage_at_k(i2t, 5),
        i2t_coverage_10=coverage_at_k(i2t, 10),
        t2i_coverage_1=coverage_at_k(t2i, 1), t2i_coverage_5=coverage_at_k(t2i, 5),
        t2i_coverage_10=coverage_at_k(t2i, 10),
    )


@torch.no_grad()
def positive_ranks(
    scores: Scores, positives: Positives, *, block_shape: tuple[int, int] = BLOCK_SHAPE
) -> tuple[PositiveRanks, PositiveRanks]:
    """Full rank of every positive among all candidates of its query, positives included: image_to_text, text_to_image.

    block_shape: images and captions scored at once; affects memory only.
    Raises NumericError if any score is not finite.
    """
    values = positives.scores(scores)
    images, captions = positives.shape
    by_caption = positives.caption.argsort(stable=True)
    i2t = _Levels.of(positives.image, values, images)
    t2i = _Levels.of(positives.caption[by_caption], values[by_caption], captions)
    above_images, above_captions = count_strangers(scores, positives, i2t.levels, t2i.levels, block_shape=block_shape)
    return i2t.ranks(above_images.at_least), t2i.ranks(above_captions.at_least)


def mean_positive_rank(ranks: PositiveRanks) -> float:
    """MeanR: mean over queries of the mean rank of their positives; not pooled, so every query counts once."""
    count = torch.bincount(ranks.query, minlength=ranks.queries)
    total = torch.bincount(ranks.query, weights=ranks.rank.double(), minlength=ranks.queries)
    return float((total / count)[count > 0].mean())


def mean_worst_rank(ranks: PositiveRanks) -> float:
    """MeanWorstR: mean over queries of the rank of their worst positive."""
    worst = torch.zeros(ranks.queries, dtype=torch.int64, device=ranks.rank.device)
    worst = worst.scatter_reduce(0, ranks.query, ranks.rank, "amax")
    return float(worst[worst > 0].double().mean())


def coverage_at_k(ranks: PositiveRanks, k: int) -> float:
    """Mean over queries of positives in the first k over min(k, positives), 0 to 1. Not a recall; never call it R@k."""
    count = torch.bincount(ranks.query, minlength=ranks.queries)
    found = torch.bincount(ranks.query[ranks.rank <= k], minlength=ranks.queries)
    return float((found.double() / count.clamp(max=k))[count > 0].mean())


def hit_at_k(ranks: PositiveRanks, k: int) -> float:
    """R@k: per cent of the queries with at least one positive in the first k."""
    count = torch.bincount(ranks.query, minlength=ranks.queries)
    found = torch.bincount(ranks.query[ranks.rank <= k], minlength=ranks.queries)
    return 100 * float((found > 0)[count > 0].double().mean())


def r_precision(ranks: PositiveRanks) -> float:
    """R-Precision, per cent: mean over queries of the share of positives in the first R, for R positives."""
    count = torch.bincount(ranks.query, minlength=ranks.queries)
    found = torch.bincount(ranks.query[ranks.rank <= count[ranks.query]], minlength=ranks.queries)
    return 100 * float((found.double() / count)[count > 0].mean())


def map_at_r(ranks: PositiveRanks) -> float:
    """mAP@R, per cent (Musgrave et al. 2020): mean over queries of 1/R times the sum of the precision at r over the
    ranks r <= R of positives, for R positives."""
    count = torch.bincount(ranks.query, minlength=ranks.queries)
    order = ranks.rank.argsort(stable=True)
    order = order[ranks.query[order].argsort(stable=True)]
    query, rank = ranks.query[order], ranks.rank[order]
    place = 1 + torch.arange(query.numel(), device=query.device) - (count.cumsum(0) - count)[query]
    precision = torch.where(rank <= count[query], place / rank.double(), 0.0)
    total = torch.bincount(query, weights=precision, minlength=ranks.queries)
    return 100 * float((total / count)[count > 0].mean())


@dataclass(frozen=True)
class _Levels:
    """Positives of one direction, ordered by query, then candidate.

    place: (P,) index of the positive within its query. before: (P,) number of positives of the same query that rank
    before it. levels: (queries, most positives), scores at [query, place], infinity elsewhere.
    """

    query: Tensor
    place: Tensor
    before: Tensor
    levels: Tensor

    @classmethod
    def of(cls, query: Tensor, values: Tensor, queries: int) -> _Levels:
        count = torch.bincount(query, minlength=queries)
        place = torch.arange(query.numel(), device=query.device) - (count.cumsum(0) - count)[query]
        falling = values.argsort(descending=True, stable=True)
        order = falling[query[falling].argsort(stable=True)]
        before = torch.empty_like(place)
        before[order] = place  # sorting within a query keeps its range of entries
        levels = values.new_full((queries, int(count.max())), torch.inf)
        levels[query, place] = values
        return cls(query, place, before, levels)

    def ranks(self, strangers: Tensor) -> PositiveRanks:
        """strangers: (queries, most positives) non-positives that score at least the level."""
        return PositiveRanks(
            self.query, 1 + strangers[self.query, self.place] + self.before, queries=self.levels.shape[0]
        )
