"""Scores of whole matrices, and of embeddings compared block by block."""

from __future__ import annotations

from torch import Tensor

from vsetune.metrics.recalls import RelevanceScores, RetrievalScores, owner_fold_scores, owner_scores, pair_scores
from vsetune.metrics.score_blocks import EmbeddingScores, MatrixScores, Similarity


def matrix_scores(similarity: Tensor, owner: Tensor) -> RetrievalScores:
    return owner_scores(MatrixScores(similarity), owner)


def retrieval_scores(images: Tensor, captions: Tensor, owner: Tensor, *, similarity: Similarity) -> RetrievalScores:
    return owner_scores(EmbeddingScores(images, captions, similarity), owner)


def fold_scores(
    images: Tensor, captions: Tensor, owner: Tensor, *, similarity: Similarity, folds: int
) -> RetrievalScores:
    return owner_fold_scores(EmbeddingScores(images, captions, similarity), owner, folds=folds)


def relevance_matrix_scores(similarity: Tensor, pairs: Tensor) -> RelevanceScores:
    return pair_scores(MatrixScores(similarity), pairs)
