"""Rankings of single queries, and the wrong items of a split that outrank the right one by the widest gap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vsetune.metrics.positives import Positives
from vsetune.metrics.score_blocks import BLOCK_SHAPE, Scores, finite_blocks


@dataclass(frozen=True)
class Candidate:
    """An item in the ranking of a query. index: in the split. rank: from 1. is_true: it belongs to the query."""

    index: int
    score: float
    rank: int
    is_true: bool


@dataclass(frozen=True)
class Ranking:
    """query: index in the split. top: best first. best_true: the highest-ranked item that belongs to the query.
    hardest_negative: the highest-ranked wrong item; None where no item is wrong.
    """

    query: int
    top: list[Candidate]
    best_true: Candidate
    hardest_negative: Candidate | None


@dataclass(frozen=True)
class HardestNegative:
    """A query (index in the split), its best true item, and the wrong item with the highest score."""

    query: int
    true: int
    true_score: float
    wrong: int
    wrong_score: float

    @property
    def gap(self) -> float:
        """Score of the wrong item minus score of the right one."""
        return self.wrong_score - self.true_score


@torch.no_grad()
def caption_rankings(scores: Scores, owner: Tensor, captions: Sequence[int], *, top: int) -> list[Ranking]:
    """The images that these captions retrieve. owner: (M,) int64, row of each caption's image."""
    if not captions:
        return []
    chosen = torch.tensor(captions, device=owner.device)
    block = scores.block(slice(None), chosen)
    images = torch.arange(block.shape[0], device=owner.device)
    return [
        _ranking(caption, block[:, column], images == owner[caption], top=top)
        for column, caption in enumerate(captions)
    ]


@torch.no_grad()
def image_rankings(scores: Scores, owner: Tensor, images: Sequence[int], *, top: int) -> list[Ranking]:
    """The captions that these images retrieve."""
    if not images:
        return []
    block = scores.block(torch.tensor(images, device=owner.device), slice(None))
    return [_ranking(image, block[row], owner == image, top=top) for row, image in enumerate(images)]


def _ranking(query: int, scores: Tensor, is_true: Tensor, *, top: int) -> Ranking:
    """scores, is_true: (items,). A wrong item ranks before a true one of the same score, as in every recall."""
    wrong_first = torch.cat([(~is_true).nonzero()[:, 0], is_true.nonzero()[:, 0]])
    order = wrong_first[scores[wrong_first].argsort(descending=True, stable=True)]
    hits = is_true[order]

    def candidate(place: int) -> Candidate:
        return Candidate(int(order[place]), float(scores[order[place]]), place + 1, bool(hits[place]))

    wrong = (~hits).nonzero()
    return Ranking(
        query, [candidate(place) for place in range(min(top, len(order)))],
        best_true=candidate(int(hits.nonzero()[0])),
        hardest_negative=candidate(int(wrong[0])) if len(wrong) else None,
    )


@torch.no_grad()
def hardest_negatives(
    scores: Scores, owner: Tensor, *, most: int, block_shape: tuple[int, int] = BLOCK_SHAPE
) -> tuple[list[HardestNegative], list[HardestNegative]]:
    """Up to `most` caption queries and `most` image queries whose hardest negative scores at least as high as the best
    true item, widest gap first. Every score is read once, in blocks. Raises NumericError if any is not finite.
    """
    images, captions = scores.shape
    positives = Positives.of_owner(owner, images=images, captions=captions)
    own = positives.scores(scores)
    by_image = _Wrong(*_best_true(own, positives.image, positives.caption, images))
    by_caption = _Wrong(*_best_true(own, positives.caption, positives.image, captions))
    for rows, columns, block in finite_blocks(scores, block_shape, where="hardest negatives"):
        wrong = block.clone()
        wrong[positives.inside(rows, columns)] = -torch.inf
        by_image.see(rows, wrong, first=columns.start)
        by_caption.see(columns, wrong.T, first=rows.start)
    return by_caption.widest(most), by_image.widest(most)


class _Wrong:
    """The highest wrong score of every query so far. true_score, true: (queries,) of its best true item."""

    def __init__(self, true_score: Tensor, true: Tensor) -> None:
        self._true_score, self._true = true_score, true
        self._score = torch.full_like(true_score, -torch.inf)
        self._item = torch.zeros_like(true)

    def see(self, queries: slice, scores: Tensor, *, first: int) -> None:
        """Add a block of scores of these queries, -infinity where an item is true. first: index of its first item."""
        found, place = scores.max(dim=1)
        is_higher = found > self._score[queries]
        self._score[queries] = torch.where(is_higher, found, self._score[queries])
        self._item[queries] = torch.where(is_higher, place + first, self._item[queries])

    def widest(self, most: int) -> list[HardestNegative]:
        gaps = self._score - self._true_score
        order = gaps.argsort(descending=True, stable=True)[:most]
        return [
            HardestNegative(
                query, int(self._true[query]), float(self._true_score[query]), int(self._item[query]),
                float(self._score[query]),
            )
            for query in order[gaps[order] >= 0].tolist()
        ]


def _best_true(own: Tensor, query: Tensor, item: Tensor, queries: int) -> tuple[Tensor, Tensor]:
    """(queries,) highest score of a true item, and the first item that has it. own, query, item: (P,), every pair."""
    best = own.new_full((queries,), -torch.inf).scatter_reduce(0, query, own, "amax")
    is_best = own == best[query]
    first = item.new_full((queries,), torch.iinfo(item.dtype).max)
    return best, first.scatter_reduce(0, query[is_best], item[is_best], "amin")
