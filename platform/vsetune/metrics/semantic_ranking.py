"""SRD@k, semantic ranking distance (Zhang et al., Eq. 11): whether images that match a caption by meaning rank high.

Caption queries, images as candidates. rs is the rank of an image by semantic score, r its rank by the network's score,
both 0-based; tied images keep index order in both. SRD@k is the mean of |r - rs| over the queries and their first k
images by meaning: 0 is best, a random order gives about images / 2. The encoder of the captions is part of the metric's
name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from vsetune.errors import DataError, NumericError
from vsetune.metrics.positives import check_owner
from vsetune.metrics.score_blocks import Part, Scores, finite_blocks

_SCORES_PER_BAND = 2**21
_INDEX_BITS = 32


@dataclass(frozen=True)
class SemanticRankingDistance:
    """SRD@k. value: 0 to about images - 1. share: value / images. queries: captions. tied_queries: number of queries
    with a tie, in either ranking, that affects their first k images or their ranks.
    """

    k: int
    value: float
    share: float
    queries: int
    tied_queries: int


class CaptionSemantics:
    """Semantic scores of images and captions by caption vectors: cosine of a caption with the captions of the image.

    image_score: the `max` over the image's captions, the query itself included, so its own image has 1; their `mean`;
    or the cosine with the `first` of them. A zero vector (a caption without any known word) has cosines of 0. Computed
    in float64 and rounded to float32, so that equal captions tie exactly.
    """

    def __init__(
        self, vectors: Tensor, owner: Tensor, *, images: int, image_score: Literal["max", "mean", "first"]
    ) -> None:
        """vectors: (M, d), any length. owner: (M,) int64, row of each caption's image.

        Raises NumericError if a vector is not finite, DataError if owner does not fit.
        """
        check_owner(owner, images=images, captions=vectors.shape[0])
        broken = int((~torch.isfinite(vectors).all(dim=1)).sum())
        if broken:
            raise NumericError(
                "VSE-M002", "semantic vectors: got {broken} of {count} that are not finite, need all finite; encode "
                "the captions again", broken=broken, count=vectors.shape[0],
            )
        self.shape = (images, vectors.shape[0])
        shortest = torch.finfo(torch.float64).tiny ** 0.5  # squares of shorter rows are lost
        self._units = torch.nn.functional.normalize(vectors.double(), dim=1, eps=shortest)
        self._image_score = image_score
        self._count = torch.bincount(owner, minlength=images)
        self._captions = _captions_of_images(owner, self._count)

    def block(self, images: Part, captions: Part) -> Tensor:
        queries = self._units[captions].T
        score = self._units[self._captions[images, 0]] @ queries
        if self._image_score == "first":
            return score.float()
        for place in range(1, self._captions.shape[1]):
            further = self._units[self._captions[images, place]] @ queries
            if self._image_score == "max":
                score = torch.maximum(score, further)
            else:
                score += further * (place < self._count[images])[:, None]
        return (score if self._image_score == "max" else score / self._count[images][:, None]).float()


@torch.no_grad()
def semantic_ranking_distance(
    scores: Scores, semantics: Scores, ks: Sequence[int], *, scores_per_band: int = _SCORES_PER_BAND
) -> list[SemanticRankingDistance]:
    """SRD@k for each of `ks`, in their order.

    scores: of the network, (N, M). semantics: semantic scores of the same shape, from CaptionSemantics or a matrix;
    compared in float32. scores_per_band: scores in memory at once; affects memory only.
    Raises NumericError if any score is not finite, DataError if shapes differ or a k is not from 1 to N.
    """
    images, queries = scores.shape
    if scores.shape != semantics.shape:
        raise DataError(
            "VSE-M012", "SRD: got network scores {network} and semantic scores {semantic}, need one shape",
            network=scores.shape, semantic=semantics.shape,
        )
    if not ks or min(ks) < 1 or max(ks) > images:
        raise DataError(
            "VSE-M013", "SRD: got k = {ks}, need numbers from 1 to the {images} images", ks=", ".join(map(str, ks)),
            images=images,
        )
    shape = (images, max(1, scores_per_band // images))
    distances, tied = [], []
    for (_, _, network), (_, _, semantic) in zip(
        finite_blocks(scores, shape, where="SRD network"), finite_blocks(semantics, shape, where="SRD semantics"),
        strict=True,
    ):
        distance, has_tie = _first_by_meaning(network.T.contiguous(), semantic.T.float().contiguous(), max(ks))
        distances.append(distance.sum(dim=0))
        tied.append(has_tie.sum(dim=0))
    total, ties = torch.stack(distances).sum(dim=0).cumsum(dim=0).tolist(), torch.stack(tied).sum(dim=0).tolist()
    values = [total[k - 1] / (queries * k) for k in ks]
    return [
        SemanticRankingDistance(k, value, value / images, queries, ties[k - 1])
        for k, value in zip(ks, values, strict=True)
    ]


def _first_by_meaning(network: Tensor, semantic: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """|r - rs| of the first k images by meaning, (queries, k), and whether the first 1, ..., k involve a tie.

    network, semantic: (queries, images). Network ranks are counted; only the first k images by meaning are sorted.
    """
    first = _first_in_order(semantic, min(k + 1, semantic.shape[1]))  # one more, to see a tie with the next
    levels = semantic.gather(1, first)
    tied = torch.zeros(first.shape, dtype=torch.bool, device=first.device)
    tied[:, :-1] = levels[:, 1:] == levels[:, :-1]
    first, tied = first[:, :k], tied[:, :k]
    distance = torch.empty_like(first)
    for place in range(k):
        rank, beside = _network_rank(network, first[:, place, None])
        distance[:, place] = (rank - place).abs()
        tied[:, place] |= beside
    return distance, tied.cummax(dim=1).values


def _network_rank(network: Tensor, image: Tensor) -> tuple[Tensor, Tensor]:
    """Rank of one image per query, ties by index, and whether it ties. image: (queries, 1)."""
    level = network.gather(1, image)
    reached = torch.empty_like(network)  # 0 and 1: a sum of bools would copy them to int64 first
    rank = torch.gt(network, level, out=reached).sum(dim=1).long()
    beside = torch.ge(network, level, out=reached).sum(dim=1).long() - rank > 1
    rows = beside.nonzero()[:, 0]
    earlier = torch.arange(network.shape[1], device=network.device) < image[rows]
    rank[rows] += ((network[rows] == level[rows]) & earlier).sum(dim=1)
    return rank, beside


def _first_in_order(scores: Tensor, k: int) -> Tensor:
    """(queries, k) indices of the highest float32 scores, ties by index. Plain top-k does not define the order of ties.

    The bits of float32 numbers order like integers after those of negative numbers are flipped. The index fills the
    lower bits of the key.
    """
    bits = (scores + 0.0).view(torch.int32)  # adding 0 makes -0 and 0 the same bits
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).long()
    last = scores.shape[1] - 1
    keys = (ordered << _INDEX_BITS) | (last - torch.arange(scores.shape[1], device=scores.device))
    first: Tensor = last - (keys.topk(k, dim=1).values & (2**_INDEX_BITS - 1))
    return first


def _captions_of_images(owner: Tensor, count: Tensor) -> Tensor:
    """(images, most captions) caption indices in their order; an image with fewer repeats its first."""
    captions = owner.argsort(stable=True)
    start = count.cumsum(0) - count
    place = torch.arange(int(count.max()), device=owner.device)
    return captions[start[:, None] + torch.where(place < count[:, None], place, 0)]
