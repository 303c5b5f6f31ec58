"""Score matrices (images x captions, larger is closer) that are computed block by block and never stored whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from vsetune.errors import NumericError

Part = slice | Tensor
"""Some images or some captions: a range, or (n,) int64 indices."""

ItemsT = TypeVar("ItemsT", bound="Items")

Similarity = Callable[[Any, Any], Tensor]
"""n image embeddings, m caption embeddings (`Items` of the same class) -> (n, m) scores."""

BLOCK_SHAPE = (2048, 1024)
"""Images, captions of a block. It affects memory and speed only, never a metric: 16 MiB of float64 scores stay in the
cache of a processor, the embeddings take 24 MiB at D = 1024. Up to 2**24 each, so that counts are exact."""


class Items(Protocol):
    """Embeddings of n images or captions: a tensor (n, ...), or several that are indexed and converted together."""

    @property
    def device(self) -> torch.device:
        """Their device."""

    def __len__(self) -> int:
        """Their number n."""

    def __getitem__(self: ItemsT, part: Part) -> ItemsT:
        """A part of them."""

    def to(self: ItemsT, dtype: torch.dtype) -> ItemsT:
        """The same embeddings in another floating type."""


class Scores(Protocol):
    """A score matrix that is read in blocks."""

    @property
    def shape(self) -> tuple[int, int]:
        """Images, captions."""

    def block(self, images: Part, captions: Part) -> Tensor:
        """(n, m) scores, float32 or wider. Callers must not change them."""


class MatrixScores:
    """Scores that are already a matrix (N, M), of any floating type."""

    def __init__(self, similarity: Tensor) -> None:
        images, captions = similarity.shape
        self.shape = (images, captions)
        self._similarity = similarity

    def block(self, images: Part, captions: Part) -> Tensor:
        return comparable(self._similarity[images][:, captions])


class EmbeddingScores:
    """Scores of embeddings of N images and M captions, computed block by block.

    The similarity is called with float64 embeddings and its scores are rounded to float32. The last bit of a float32
    product depends on the shape of the block, which would break exact ties (a collapsed network, an image stored twice)
    differently for every block size.
    """

    def __init__(self, images: ItemsT, captions: ItemsT, similarity: Similarity) -> None:
        self.shape = (len(images), len(captions))
        self._images, self._captions = images, captions
        self._similarity = similarity

    def block(self, images: Part, captions: Part) -> Tensor:
        with torch.autocast(device_type=self._images.device.type, enabled=False):
            return self._similarity(_wide(self._images, images), _wide(self._captions, captions)).float()


class PartOfScores:
    """The scores of some images with some captions; both as indices, (n,) and (m,) int64."""

    def __init__(self, scores: Scores, images: Tensor, captions: Tensor) -> None:
        self.shape = (len(images), len(captions))
        self._scores, self._images, self._captions = scores, images, captions

    def block(self, images: Part, captions: Part) -> Tensor:
        return self._scores.block(self._images[images], self._captions[captions])


class MeanScores:
    """An ensemble: mean scores of several models for the same images and captions."""

    def __init__(self, members: Sequence[Scores]) -> None:
        self.shape = members[0].shape
        self._members = members

    def block(self, images: Part, captions: Part) -> Tensor:
        return torch.stack([member.block(images, captions) for member in self._members]).mean(dim=0)


def finite_blocks(
    scores: Scores, block_shape: tuple[int, int], *, where: str
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Every score once: (images, captions, their block), captions running fastest.

    Raises NumericError, with `where` at its start, after the last block if any score was not finite.
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
    """Consecutive ranges of `band` items; the last one may be shorter."""
    for start in range(0, size, band):
        yield slice(start, min(size, start + band))


def comparable(scores: Tensor) -> Tensor:
    """Scores in a type for comparisons: half precision becomes float32, wider types stay as they are."""
    return scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores


def _wide(embeddings: ItemsT, part: Part) -> ItemsT:
    return embeddings[part].to(torch.float64)
