"""Ranks of the best positive, by counting, in blocks, ties against the query.

S is (N, M), images x captions, larger is more similar; owner (M,) is the image of each caption. A rank is the number of
non-positive candidates that score at least as high as the query's best positive, so 0 is best and a constant S is last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from vsetune.errors import DataError, NumericError

Similarity = Callable[[Tensor, Tensor], Tensor]
"""(n, D) image embeddings, (m, D) caption embeddings -> (n, m) scores."""

RANKING_PROTOCOL: Mapping[str, str | int] = {"version": 1, "tie_rule": "pessimistic", "score_dtype": "float32"}
"""What every rank of this module depends on besides the data; belongs in the protocol stored with a curve."""

# Both bound memory and never change a rank: 64 MiB of float32 scores, 32 MiB of float64 embeddings at D = 1024.
_SCORES_PER_BLOCK = 2**24
_EMBEDDINGS_PER_TILE = 4096


@dataclass(frozen=True)
class QueryRanks:
    """ranks: (queries,) int64, 0 = best. tied: (queries,) bool, the rank depends on how ties are counted."""

    ranks: Tensor
    tied: Tensor


class Scores(Protocol):
    """A score matrix that hands out bands of itself."""

    shape: tuple[int, int]

    def rows(self, start: int, stop: int) -> Tensor:
        """(stop - start, M) scores of these images, float32 or wider."""

    def columns(self, start: int, stop: int) -> Tensor:
        """(N, stop - start) scores of these captions, float32 or wider."""


class MatrixScores:
    """Scores that are already a matrix (N, M), of any floating type."""

    def __init__(self, similarity: Tensor) -> None:
        images, captions = similarity.shape
        self.shape = (images, captions)
        self._similarity = similarity

    def rows(self, start: int, stop: int) -> Tensor:
        return _comparable(self._similarity[start:stop])

    def columns(self, start: int, stop: int) -> Tensor:
        return _comparable(self._similarity[:, start:stop])


class EmbeddingScores:
    """Scores of embeddings (N, D) and (M, D), computed block by block.

    The similarity is called with float64 embeddings and its scores are rounded to float32. A float32 product depends in
    its last bit on the shape of the block; that would break exact ties (a collapsed network, an image stored twice)
    differently in every block size.
    """

    def __init__(
        self, images: Tensor, captions: Tensor, similarity: Similarity, *,
        embeddings_per_tile: int = _EMBEDDINGS_PER_TILE,
    ) -> None:
        self.shape = (images.shape[0], captions.shape[0])
        self._images, self._captions = images, captions
        self._similarity = similarity
        self._embeddings_per_tile = embeddings_per_tile

    def rows(self, start: int, stop: int) -> Tensor:
        images = self._images[start:stop].double()
        return torch.cat([self._scores(images, tile) for tile in self._tiles(self._captions)], dim=1)

    def columns(self, start: int, stop: int) -> Tensor:
        captions = self._captions[start:stop].double()
        return torch.cat([self._scores(tile, captions) for tile in self._tiles(self._images)], dim=0)

    def _tiles(self, embeddings: Tensor) -> Iterator[Tensor]:
        for start, stop in _bands(embeddings.shape[0], self._embeddings_per_tile):
            yield embeddings[start:stop].double()

    def _scores(self, images: Tensor, captions: Tensor) -> Tensor:
        with torch.autocast(device_type=images.device.type, enabled=False):
            return self._similarity(images, captions).float()


def ranks_of_positives(scores: Tensor, positives: Tensor) -> QueryRanks:
    """Ranks of the best positive per row, for any boolean positives with at least one per row.

    scores: (queries, candidates), finite. positives: same shape, bool.
    Example: scores [[0.3, 0.5, 0.5, 0.1]], positive at 1: candidate 2 ties, rank 1, tied.
    """
    best = scores.masked_fill(~positives, float("-inf")).amax(dim=1, keepdim=True)
    others = ~positives
    not_below = (scores >= best) & others
    level = (scores == best) & others
    return QueryRanks(not_below.sum(dim=1), level.any(dim=1))


@torch.no_grad()
def image_to_text_ranks(
    scores: Scores, owner: Tensor, *, scores_per_block: int = _SCORES_PER_BLOCK
) -> QueryRanks:
    """Rank of the best own caption of every image among all captions.

    owner: (M,) int64. scores_per_block: scores held at once, at least one query's; a matter of memory only.
    Raises NumericError if any score is not finite, DataError if owner does not fit.
    """
    images, captions = scores.shape
    check_owner(owner, images=images, captions=captions)

    def blocks() -> Iterator[tuple[Tensor, Tensor]]:
        for start, stop in _bands(images, scores_per_block // max(1, captions)):
            rows = torch.arange(start, stop, device=owner.device)
            yield scores.rows(start, stop), rows[:, None] == owner[None, :]

    return _ranks(blocks(), "image_to_text")


@torch.no_grad()
def text_to_image_ranks(
    scores: Scores, owner: Tensor, *, scores_per_block: int = _SCORES_PER_BLOCK
) -> QueryRanks:
    """Rank of the own image of every caption among all images. Arguments and errors as in image_to_text_ranks."""
    images, captions = scores.shape
    check_owner(owner, images=images, captions=captions)

    def blocks() -> Iterator[tuple[Tensor, Tensor]]:
        rows = torch.arange(images, device=owner.device)
        for start, stop in _bands(captions, scores_per_block // max(1, images)):
            yield scores.columns(start, stop).T, owner[start:stop, None] == rows[None, :]

    return _ranks(blocks(), "text_to_image")


def pessimistic_finite(similarity: Tensor, owner: Tensor) -> tuple[Tensor, int]:
    """Scores of a foreign file with non-finite entries counted as not retrieved, and how many there were.

    A non-finite positive becomes the lowest number, a non-finite candidate the highest. Our own scores never pass here:
    for them a non-finite score is an error.
    """
    scores = _comparable(similarity)
    positives = torch.arange(scores.shape[0], device=owner.device)[:, None] == owner[None, :]
    limits = torch.finfo(scores.dtype)
    broken = ~torch.isfinite(scores)
    replaced = scores.masked_fill(broken & positives, limits.min).masked_fill(broken & ~positives, limits.max)
    return replaced, int(broken.sum())


def check_owner(owner: Tensor, *, images: int, captions: int) -> None:
    """Refuse an owner vector that leaves an image without caption or points outside. Raises DataError."""
    if owner.shape != (captions,):
        raise DataError(f"retrieval: got owners of shape {tuple(owner.shape)}, need one per caption ({captions})")
    if images == 0 or captions == 0:
        raise DataError(f"retrieval: got {images} images and {captions} captions, need at least one of each")
    lowest, highest = int(owner.min()), int(owner.max())
    if lowest < 0 or highest >= images:
        raise DataError(f"retrieval: got owners from {lowest} to {highest}, need rows of {images} images, 0-based")
    without = int((torch.bincount(owner, minlength=images) == 0).sum())
    if without:
        raise DataError(f"retrieval: got {without} images without a caption, need at least one caption per image")


def _ranks(blocks: Iterator[tuple[Tensor, Tensor]], direction: str) -> QueryRanks:
    parts: list[QueryRanks] = []
    broken = total = 0
    for scores, positives in blocks:
        total += scores.numel()
        broken += scores.numel() - int(torch.isfinite(scores).sum())
        if not broken:
            parts.append(ranks_of_positives(scores, positives))
    if broken:
        raise NumericError(
            f"retrieval {direction}: got {broken} of {total} similarities that are not finite, need all finite; "
            "the network has diverged, lower training.learning_rate"
        )
    return QueryRanks(torch.cat([part.ranks for part in parts]), torch.cat([part.tied for part in parts]))


def _bands(size: int, band: int) -> Iterator[tuple[int, int]]:
    band = max(1, band)
    for start in range(0, size, band):
        yield start, min(size, start + band)


def _comparable(scores: Tensor) -> Tensor:
    return scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
