"""Score matrices (images x captions, larger is closer) that are looked at block by block and never held whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import torch
from torch import Tensor

from vsetune.errors import NumericError

Similarity = Callable[[Tensor, Tensor], Tensor]
"""(n, ...) image embeddings, (m, ...) caption embeddings -> (n, m) scores."""

Part = slice | Tensor
"""Some images or some captions: a range, or (n,) int64 indices."""

BLOCK_SHAPE = (2048, 1024)
"""Images, captions of a block. A matter of memory and speed only, it never changes a metric: 16 MiB of float64 scores
stay in the cache of a processor, 24 MiB hold the embeddings at D = 1024. Up to 2**24 each, so that counts are exact."""


class Scores(Protocol):
    """A score matrix that hands out blocks of itself."""

    @property
    def shape(self) -> tuple[int, int]:
        """Images, captions."""

    def block(self, images: Part, captions: Part) -> Tensor:
        """(n, m) scores, float32 or wider; to be read, not changed."""


class MatrixScores:
    """Scores that are already a matrix (N, M), of any floating type."""

    def __init__(self, similarity: Tensor) -> None:
        images, captions = similarity.shape
        self.shape = (images, captions)
        self._similarity = similarity

    def block(self, images: Part, captions: Part) -> Tensor:
        return comparable(self._similarity[images][:, captions])


class EmbeddingScores:
    """Scores of embeddings (N, ...) and (M, ...), computed block by block.

    The similarity is called with float64 embeddings and its scores are rounded to float32. A float32 product depends in
    its last bit on the shape of the block; that would break exact ties (a collapsed network, an image stored twice)
    differently in every block size.
    """

    def __init__(self, images: Tensor, captions: Tensor, similarity: Similarity) -> None:
        self.shape = (images.shape[0], captions.shape[0])
        self._images, self._captions = images, captions
        self._similarity = similarity

    def block(self, images: Part, captions: Part) -> Tensor:
        with torch.autocast(device_type=self._images.device.type, enabled=False):
            return self._similarity(_wide(self._images, images), _wide(self._captions, captions)).float()


def finite_blocks(
    scores: Scores, block_shape: tuple[int, int], *, where: str
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Every score once: (images, captions, their block), captions running fastest.

    Raises NumericError, opened with `where`, after the last block if any score was not finite.
    """
    images, captions = scores.shape
    broken = 0
    for rows in bands(images, block_shape[0]):
        for columns in bands(captions, block_shape[1]):
            block = scores.block(rows, columns)
            if not torch.isfinite(block.sum()):  # one fast pass; large finite scores may overflow it, so count
                broken += block.numel() - int(torch.isfinite(block).sum())
            yield rows, columns, block
    if broken:
        raise NumericError(
            f"{where}: got {broken} of {images * captions} similarities that are not finite, need all finite; "
            "the network has diverged, lower training.learning_rate"
        )


def bands(size: int, band: int) -> Iterator[slice]:
    """Consecutive ranges of `band`, the last one shorter."""
    for start in range(0, size, band):
        yield slice(start, min(size, start + band))


def comparable(scores: Tensor) -> Tensor:
    """Half precision ties where float32 does not; wider types stay as they are."""
    return scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores


def _wide(embeddings: Tensor, part: Part) -> Tensor:
    return embeddings[part].double()
