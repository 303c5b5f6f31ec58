"""Recalls, their sums and the averages of ranks, by protocol, and against an external list of relevant pairs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

import torch
from torch import Tensor

from vsetune.errors import DataError
from vsetune.metrics.arguments import Arguments
from vsetune.metrics.positives import Positives, check_owner
from vsetune.metrics.ranks import RANKING_PROTOCOL, RetrievalRanks, retrieval_ranks
from vsetune.metrics.score_blocks import ALONE, MatrixScores, OtherScores, PartOfScores, Scores, Sharing

logger = logging.getLogger(__name__)

_CUTOFFS = (1, 5, 10)
_LARGEST_TIE_SHARE = 0.01


@dataclass(frozen=True)
class RetrievalScores:
    """Scores of one ranking, or means over folds.

    Recalls in per cent; ranks 1-based, of the best positive; tie_share: share (0 to 1) of all queries whose rank
    depends on a tie. images, captions: queries of each direction; with folds > 1, candidates come from the same fold.
    """

    i2t_r1: float
    i2t_r5: float
    i2t_r10: float
    t2i_r1: float
    t2i_r5: float
    t2i_r10: float
    i2t_median_rank: float
    t2i_median_rank: float
    i2t_mean_rank: float
    t2i_mean_rank: float
    tie_share: float
    images: int
    captions: int
    folds: int

    @property
    def i2t_mean(self) -> float:
        """Mean of the three image-to-text recalls."""
        return (self.i2t_r1 + self.i2t_r5 + self.i2t_r10) / 3

    @property
    def t2i_mean(self) -> float:
        """Mean of the three text-to-image recalls."""
        return (self.t2i_r1 + self.t2i_r5 + self.t2i_r10) / 3

    @property
    def rsum(self) -> float:
        """Sum of the six recalls, at most 600. Curves are compared by it, so it is rounded to 1e-10, to not depend on
        which recall has one more hit."""
        total = self.i2t_r1 + self.i2t_r5 + self.i2t_r10 + self.t2i_r1 + self.t2i_r5 + self.t2i_r10
        return round(total, 10)

    @property
    def m_recall(self) -> float:
        """Mean of the six recalls, per cent; the criterion of curves, checkpoints and searches."""
        return self.rsum / 6

    def as_dict(self) -> dict[str, float]:
        """All numbers by name, M-Recall, RSum and the means per direction included."""
        numbers = {field.name: float(getattr(self, field.name)) for field in fields(self)}
        derived = {name: getattr(self, name) for name in ("i2t_mean", "t2i_mean", "rsum", "m_recall")}
        return numbers | derived


def owner_scores(scores: Scores, owner: Tensor, *, among: Sharing = ALONE) -> RetrievalScores:
    """Score a ranking. owner: (M,) int64, row of each caption's image. among: the processes that rank it together.

    Raises NumericError if a score is not finite, DataError if owner does not fit.
    """
    images, captions = scores.shape
    positives = Positives.of_owner(owner, images=images, captions=captions)
    return scores_of_ranks(retrieval_ranks(scores, positives, among=among), candidates=min(images, captions))


def recall(scores: Tensor, image_ids: Tensor | None = None) -> RetrievalScores:
    """The recalls of a matrix of scores, in per cent, with ranks and their sum (`rsum`, at most 600).

    scores: (n, m) of images (rows) and captions (columns), larger is closer. image_ids: (m,) int64, the row of each
    caption's image; None: every image has m / n captions, in the order of the images (n = m: row i belongs to column
    i). Ties count against the query. DataError for arguments that do not fit, NumericError for scores that are not
    finite. Source: recall at 1, 5 and 10 as in Faghri et al. 2018 (VSE++).

    Example:

        vsetune.metrics.recall(images @ captions.T).m_recall
    """
    given = Arguments("metrics.recall", DataError)
    given.tensors(scores=scores, image_ids=image_ids)
    given.floats(scores=scores)
    given.shape("scores", scores, "(images, captions), at least one of each", fits=scores.dim() == 2)
    images, captions = scores.shape
    if image_ids is None:
        each, rest = divmod(captions, images)
        if rest:
            raise DataError(
                "VSE-M016", "retrieval: got {captions} captions for {images} images, need `image_ids`, the row of each "
                "one's image", images=images, captions=captions,
            )
        image_ids = torch.arange(captions) // each
    owner = given.integers("image_ids", image_ids, count=captions, below=images)
    return owner_scores(MatrixScores(scores), owner.to(scores.device))


def owner_fold_scores(scores: Scores, owner: Tensor, *, folds: int) -> RetrievalScores:
    """Means over disjoint folds of consecutive images with their captions (MS-COCO 1K: five folds of 1,000).

    Candidates come from the query's fold only, so recalls are never below those of the whole set.
    Raises DataError if the images do not divide into that many equal folds; other errors as in owner_scores.
    """
    images, captions = scores.shape
    check_owner(owner, images=images, captions=captions)
    size, rest = divmod(images, folds)
    if rest or not size:
        raise DataError(
            "VSE-M009", "retrieval: got {images} images for {folds} folds, need a multiple of {folds}", images=images,
            folds=folds,
        )
    parts = []
    for first in range(0, images, size):
        inside = ((owner >= first) & (owner < first + size)).nonzero()[:, 0]
        rows = torch.arange(first, first + size, device=owner.device)
        parts.append(owner_scores(PartOfScores(scores, rows, inside), owner[inside] - first))
    return _mean(parts)


def scores_of_ranks(ranks: RetrievalRanks, *, candidates: int) -> RetrievalScores:
    """Summarise the ranks of all image queries and of all caption queries. Every query counts once.

    candidates: number of candidates of the direction with fewer. Warns for fewer than 10 candidates, and if more than
    1 % of the queries depend on a tie.
    """
    if candidates < max(_CUTOFFS):
        logger.warning("Only %d candidates: R@k is 100 for every k from there on, which measures nothing", candidates)
    i2t, t2i = ranks.image_to_text.ranks, ranks.text_to_image.ranks
    tie_share = float(torch.cat([ranks.image_to_text.tied, ranks.text_to_image.tied]).double().mean())
    if tie_share > _LARGEST_TIE_SHARE:
        logger.warning(
            "%.1f %% of the queries are ranked by a tie (counted against them): look for collapsed embeddings or "
            "for images stored twice", 100 * tie_share,
        )
    return RetrievalScores(
        i2t_r1=recall_at_k(i2t, 1), i2t_r5=recall_at_k(i2t, 5), i2t_r10=recall_at_k(i2t, 10),
        t2i_r1=recall_at_k(t2i, 1), t2i_r5=recall_at_k(t2i, 5), t2i_r10=recall_at_k(t2i, 10),
        i2t_median_rank=median_rank(i2t), t2i_median_rank=median_rank(t2i),
        i2t_mean_rank=mean_rank(i2t), t2i_mean_rank=mean_rank(t2i),
        tie_share=tie_share, images=i2t.numel(), captions=t2i.numel(), folds=1,
    )


def recall_at_k(ranks: Tensor, k: int) -> float:
    """Per cent of the queries whose best positive is among the first k. ranks: (queries,), 0-based."""
    return 100 * int((ranks < k).sum()) / ranks.numel()


def mean_rank(ranks: Tensor) -> float:
    """Mean 1-based rank of the best positive."""
    return float(ranks.double().mean()) + 1


def median_rank(ranks: Tensor) -> float:
    """Floor of the median 0-based rank, plus 1, as all references print it: ranks 0, 0, 1, 4 give 1, not 1.5."""
    return float(ranks.double().quantile(0.5).floor()) + 1


def _mean(parts: Sequence[RetrievalScores]) -> RetrievalScores:
    sums = {"images", "captions", "folds"}
    means = {
        field.name: sum(getattr(part, field.name) for part in parts) / len(parts)
        for field in fields(RetrievalScores)
        if field.name not in sums
    }
    return RetrievalScores(
        **means, images=sum(part.images for part in parts), captions=sum(part.captions for part in parts),
        folds=len(parts),
    )


@dataclass(frozen=True)
class RankingProtocol:
    """How a split is ranked; the split itself (its images, in order) is recorded beside it.

    version: raise it when numbers under this name change. folds: equal parts of consecutive images, ranked separately
    and averaged. images: the number that the protocol is defined for, None for any. captions: `first` ranks only the
    first caption of every image, as benchmarks with one caption an image do; with `all`, an image finds any of its own.
    """

    name: str
    version: int
    folds: int
    images: int | None = None
    captions: Literal["all", "first"] = "all"

    def scores(self, scores: Scores, owner: Tensor) -> RetrievalScores:
        """Recalls under this protocol. owner and errors as in owner_scores.

        Raises DataError too if the number of images is not that of the protocol or does not divide into its folds.
        """
        images, _ = scores.shape
        if self.images is not None and images != self.images:
            raise DataError(
                "VSE-M010", "{protocol}: got {images} images, need the {need} of the protocol", protocol=self.name,
                images=images, need=self.images,
            )
        if self.captions == "first":
            check_owner(owner, images=images, captions=len(owner))
            firsts = _firsts(owner, images)
            scores, owner = PartOfScores(scores, torch.arange(images, device=owner.device), firsts), owner[firsts]
        return owner_fold_scores(scores, owner, folds=self.folds)

    def as_dict(self) -> dict[str, str | int | None]:
        """Entries to store with a result, which must match before numbers are compared."""
        found: dict[str, str | int | None] = {
            "protocol": self.name, "protocol_version": self.version, "protocol_images": self.images,
            "folds": self.folds, "tie_rule": RANKING_PROTOCOL["tie_rule"],
            "score_dtype": RANKING_PROTOCOL["score_dtype"], "ranking_version": RANKING_PROTOCOL["version"],
        }
        return found if self.captions == "all" else {**found, "captions": self.captions}


def _firsts(owner: Tensor, images: int) -> Tensor:
    """(images,) int64, the first caption of each image. owner: (captions,) row of each one's image, in any order."""
    places = torch.arange(len(owner), device=owner.device)
    return torch.full((images,), len(owner), device=owner.device).scatter_reduce(0, owner, places, "amin")


COCO_TEST_5K = RankingProtocol("coco_test_5k", version=1, folds=1, images=5000)
COCO_TEST_1K = RankingProtocol("coco_test_1k", version=1, folds=5, images=5000)
FIRST_CAPTION = RankingProtocol("first_caption", version=1, folds=1, captions="first")


@dataclass(frozen=True)
class RelevanceScores:
    """scores: over the queries with a relevant candidate (its images and captions are their numbers).

    left_out_images, left_out_captions: queries without one.
    """

    scores: RetrievalScores
    left_out_images: int
    left_out_captions: int

    def as_dict(self) -> dict[str, float]:
        """All numbers by name."""
        return self.scores.as_dict() | {
            "left_out_images": float(self.left_out_images), "left_out_captions": float(self.left_out_captions),
        }


def pair_scores(scores: Scores, pairs: Tensor) -> RelevanceScores:
    """Score a ranking against relevant pairs.

    pairs: (P, 2) int64, row of the image and row of the caption; an unlisted pair is not relevant, even with the
    caption's own image. Raises NumericError if a score is not finite, DataError if pairs do not fit.
    """
    images, captions = scores.shape
    ranks = retrieval_ranks(scores, Positives.of_pairs(pairs, images=images, captions=captions))
    return RelevanceScores(
        scores_of_ranks(ranks, candidates=min(images, captions)),
        left_out_images=ranks.image_to_text.left_out, left_out_captions=ranks.text_to_image.left_out,
    )


def recalls_among(scores: Scores, pairs: Tensor) -> dict[str, float]:
    """Recalls of a retrieval of captions by captions, or images by images: `r1`, `r5`, `r10`, in per cent.

    scores: (N, N) of queries and candidates; an item is no candidate of itself. pairs: (P, 2) int64, query and relevant
    candidate, not the query itself. Queries without a pair are left out; they stay candidates. Errors as in
    pair_scores.
    """
    size, _ = scores.shape
    found = retrieval_ranks(OtherScores(scores), Positives.of_pairs(pairs, images=size, captions=size))
    return {f"r{k}": recall_at_k(found.image_to_text.ranks, k) for k in _CUTOFFS}
