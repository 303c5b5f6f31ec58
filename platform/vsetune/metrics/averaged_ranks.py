"""Ranks of all positives of a query, not only of its best one: MeanR, MeanWorstR, coverage@k.

Ranks are 1-based. Positives tied among themselves keep index order; non-positives tied with a positive rank before it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from vsetune.metrics.positives import Positives
from vsetune.metrics.ranks import count_strangers
from vsetune.metrics.score_blocks import BLOCK_SHAPE, Scores


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
