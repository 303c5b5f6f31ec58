"""Ranks of all positives of a query, not only of its best: MeanR, MeanWorstR, coverage@k.

Rows of `scores` are queries, columns candidates; for text-to-image pass the transposed matrices. Ranks are 1-based.
Positives tied among themselves keep index order; non-positives tied with a positive rank before it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vsetune.errors import DataError, NumericError


@dataclass(frozen=True)
class PositiveRanks:
    """One entry per positive, ordered by query, then candidate. query: (P,) its row. rank: (P,) int64, 1 = first."""

    query: Tensor
    rank: Tensor
    queries: int


def positive_ranks(scores: Tensor, positives: Tensor) -> PositiveRanks:
    """Full rank of every positive among all candidates of its query, positives included.

    scores: (queries, candidates), finite. positives: same shape, bool, at least one per row.
    Raises NumericError for scores that are not finite, DataError for a query without positive.
    """
    broken = scores.numel() - int(torch.isfinite(scores).sum())
    if broken:
        raise NumericError(f"positive ranks: got {broken} of {scores.numel()} scores not finite, need all finite")
    without = int((~positives.any(dim=1)).sum())
    if without:
        raise DataError(f"positive ranks: got {without} queries without a positive, need at least one each")
    ranks: list[Tensor] = []
    for row, matches in zip(scores, positives, strict=True):
        own = matches.nonzero()[:, 0]
        level = row[own]
        above = (row[None, :] > level[:, None]).sum(dim=1)
        strangers_beside = ((row[None, :] == level[:, None]) & ~matches[None, :]).sum(dim=1)
        own_before = (level[None, :] == level[:, None]).tril(diagonal=-1).sum(dim=1)
        ranks.append(1 + above + strangers_beside + own_before)
    return PositiveRanks(positives.nonzero()[:, 0], torch.cat(ranks), scores.shape[0])


def mean_positive_rank(ranks: PositiveRanks) -> float:
    """MeanR: mean over queries of the mean rank of their positives; not pooled, so every query counts once."""
    count = torch.bincount(ranks.query, minlength=ranks.queries)
    total = torch.bincount(ranks.query, weights=ranks.rank.double(), minlength=ranks.queries)
    return float((total / count).mean())


def mean_worst_rank(ranks: PositiveRanks) -> float:
    """MeanWorstR: mean over queries of the rank of their worst positive."""
    worst = torch.zeros(ranks.queries, dtype=torch.int64, device=ranks.rank.device)
    return float(worst.scatter_reduce(0, ranks.query, ranks.rank, "amax").double().mean())


def coverage_at_k(ranks: PositiveRanks, k: int) -> float:
    """Mean over queries of positives in the first k over min(k, positives), 0 to 1. Not a recall; never call it R@k."""
    count = torch.bincount(ranks.query, minlength=ranks.queries)
    found = torch.bincount(ranks.query[ranks.rank <= k], minlength=ranks.queries)
    return float((found.double() / count.clamp(max=k)).mean())
