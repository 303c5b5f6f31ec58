"""Recall against an external list of relevant pairs: a caption may match several images, and an image several captions.

The rank is that of the best relevant candidate; other relevant candidates never lower it. A query without a relevant
candidate is left out of every number and counted. It stays as a candidate.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from vsetune.metrics.positives import Positives
from vsetune.metrics.ranks import retrieval_ranks
from vsetune.metrics.recall import RetrievalScores, scores_of_ranks
from vsetune.metrics.score_blocks import EmbeddingScores, MatrixScores, Scores, Similarity


@dataclass(frozen=True)
class RelevanceScores:
    """scores: over the queries with a relevant candidate (its images and captions are their numbers).

    left_out_images, left_out_captions: queries without one.
    """

    scores: RetrievalScores
    left_out_images: int
    left_out_captions: int

    @property
    def left_out(self) -> int:
        """Number of queries left out, of both directions."""
        return self.left_out_images + self.left_out_captions

    def as_dict(self) -> dict[str, float]:
        """All numbers by name."""
        return self.scores.as_dict() | {
            "left_out_images": float(self.left_out_images), "left_out_captions": float(self.left_out_captions),
        }


def relevance_scores(
    images: Tensor, captions: Tensor, pairs: Tensor, *, similarity: Similarity
) -> RelevanceScores:
    """Score embeddings against relevant pairs.

    pairs: (P, 2) int64, row of the image and row of the caption; an unlisted pair is not relevant, even with the
    caption's own image. images, captions, similarity: as in retrieval_scores.
    Raises NumericError if a score is not finite, DataError if pairs do not fit.
    """
    return pair_scores(EmbeddingScores(images, captions, similarity), pairs)


def relevance_matrix_scores(similarity: Tensor, pairs: Tensor) -> RelevanceScores:
    """Score a whole similarity matrix (N, M). pairs and errors as in relevance_scores."""
    return pair_scores(MatrixScores(similarity), pairs)


def pair_scores(scores: Scores, pairs: Tensor) -> RelevanceScores:
    """Score any `Scores`. pairs and errors as in relevance_scores."""
    images, captions = scores.shape
    ranks = retrieval_ranks(scores, Positives.of_pairs(pairs, images=images, captions=captions))
    return RelevanceScores(
        scores_of_ranks(ranks, candidates=min(images, captions)),
        left_out_images=ranks.image_to_text.left_out, left_out_captions=ranks.text_to_image.left_out,
    )
