"""Score matrices that are computed block by block and never stored whole; retrieval in two stages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from vsetune.errors import DataError, NumericError
from vsetune.metrics.vectors import at_least_float32

Part = slice | Tensor
"""Some images or some captions: a range, or (n,) int64 indices."""

Item = TypeVar("Item")
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


class Sharing(Protocol):
    """Processes that rank the same scores together, each some of their blocks."""

    def some(self, parts: Sequence[Item]) -> Sequence[Item]:
        """The parts of this process."""

    def total(self, own: Tensor) -> Tensor:
        """The sum of the processes' tensors, in every process."""

    def from_all(self, own: Item) -> list[Item]:
        """The values of all processes, in every process."""


class _Alone:
    """One process, which ranks everything."""

    def some(self, parts: Sequence[Item]) -> Sequence[Item]:
        return parts

    def total(self, own: Tensor) -> Tensor:
        return own

    def from_all(self, own: Item) -> list[Item]:
        return [own]


ALONE = _Alone()


class MatrixScores:
    """Scores that are already a matrix (N, M), of any floating type."""

    def __init__(self, similarity: Tensor) -> None:
        images, captions = similarity.shape
        self.shape = (images, captions)
        self._similarity = similarity

    def block(self, images: Part, captions: Part) -> Tensor:
        return at_least_float32(self._similarity[images][:, captions])


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

    def of_images(self) -> EmbeddingScores:
        """Scores of the images with one another, where the query stands in the place of the image."""
        return EmbeddingScores(self._images, self._images, self._similarity)

    def of_captions(self) -> EmbeddingScores:
        """Scores of the captions with one another, where the query stands in the place of the image."""
        return EmbeddingScores(self._captions, self._captions, self._similarity)


class PartOfScores:
    """The scores of some images with some captions; both as indices, (n,) and (m,) int64."""

    def __init__(self, scores: Scores, images: Tensor, captions: Tensor) -> None:
        self.shape = (len(images), len(captions))
        self._scores, self._images, self._captions = scores, images, captions

    def block(self, images: Part, captions: Part) -> Tensor:
        return self._scores.block(self._images[images], self._captions[captions])


class OtherScores:
    """The scores of N items with one another, read as queries by candidates, where none is a candidate of itself: its
    own score is the lowest finite one."""

    def __init__(self, scores: Scores) -> None:
        self.shape = scores.shape
        self._scores = scores

    def block(self, images: Part, captions: Part) -> Tensor:
        block = self._scores.block(images, captions)
        rows = torch.arange(self.shape[0], device=block.device)
        is_itself = rows[images][:, None] == rows[captions]
        return block.masked_fill(is_itself, torch.finfo(block.dtype).min)


class MeanScores:
    """An ensemble: mean scores of several models for the same images and captions."""

    def __init__(self, members: Sequence[Scores]) -> None:
        self.shape = members[0].shape
        self._members = members

    def block(self, images: Part, captions: Part) -> Tensor:
        return torch.stack([member.block(images, captions) for member in self._members]).mean(dim=0)


def finite_blocks(
    scores: Scores, block_shape: tuple[int, int], *, where: str, among: Sharing = ALONE
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Every score once: (images, captions, their block), captions running fastest. among: each process gets some.

    Raises NumericError, with `where` at its start, after the last block if any score was not finite, in every process.
    """
    images, captions = scores.shape
    own = 0
    for rows, columns in among.some(list(product(bands(images, block_shape[0]), bands(captions, block_shape[1])))):
        block = scores.block(rows, columns)
        if not torch.isfinite(block.sum()):  # one fast pass; large finite scores may overflow it, so count
            own += block.numel() - int(torch.isfinite(block).sum())
        yield rows, columns, block
    if broken := sum(among.from_all(own)):
        count, what = images * captions, "similarities"
        raise NumericError(
            "VSE-M001", "{where}: got {broken} of {count} {what} that are not finite, need all finite; the network has "
            "diverged, lower training.learning_rate", where=where, broken=broken, count=count, what=what,
        )


def bands(size: int, band: int) -> Iterator[slice]:
    """Consecutive ranges of `band` items; the last one may be shorter."""
    for start in range(0, size, band):
        yield slice(start, min(size, start + band))


def _wide(embeddings: ItemsT, part: Part) -> ItemsT:
    return embeddings[part].to(torch.float64)


RERANKING_VERSION = 1
"""Raise it when the same two stages give other ranks; part of the protocol stored with a curve."""

_BAND = 2.0**33
"""An offset larger than the distance of any two float32 numbers in `_places`."""


@torch.no_grad()
def proposed_pairs(scores: Scores, top: int, *, block_shape: tuple[int, int] = BLOCK_SHAPE) -> Tensor:
    """(N, M) bool: the pairs that a first stage proposes. Every score is computed twice.

    block_shape: images and captions scored at once; affects memory only.
    Raises DataError unless top is from 1 to N, NumericError if any score is not finite.
    """
    check_top(top, images=scores.shape[0])
    by_image, by_caption = _lowest_of_top(scores, top, block_shape)
    proposed = torch.zeros(scores.shape, dtype=torch.bool, device=by_image.device)
    for images, captions, block in finite_blocks(scores, block_shape, where="first stage"):
        is_near = block >= by_image[images, None]
        proposed[images, captions] = is_near.logical_or_(block >= by_caption[None, captions])
    return proposed


def check_top(top: int, *, images: int) -> None:
    """Raise DataError unless top is from 1 to the number of images."""
    if not 1 <= top <= images:
        raise DataError(
            "VSE-M011", "re-ranking: got top {top}, need 1 to the {images} images that are ranked; choose fewer",
            top=top, images=images,
        )


class RerankedScores:
    """Scores in the order of the two stages: `Scores` for metrics that use only their order and ties.

    Blocks are float64 and contain places on a common scale, not similarities: proposed pairs ordered by `decided`,
    below them all others ordered by `first`. Scores of both stages are read as float32; their order and ties are exact.
    """

    def __init__(self, first: Scores, proposed: Tensor, decided: Tensor) -> None:
        """proposed: (N, M) bool. decided: (N, M) scores of the second stage, read where proposed."""
        self.shape = first.shape
        self._first, self._proposed, self._decided = first, proposed, decided

    def block(self, images: Part, captions: Part) -> Tensor:
        ahead = self._proposed[images][:, captions]
        decided = _places(self._decided[images][:, captions]) + _BAND
        return torch.where(ahead, decided, _places(self._first.block(images, captions)))


def _lowest_of_top(scores: Scores, top: int, block_shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """(N,) and (M,): the `top`-th highest score of each image and of each caption."""
    by_image: dict[int, Tensor] = {}
    by_caption: dict[int, Tensor] = {}
    for images, captions, block in finite_blocks(scores, block_shape, where="first stage"):
        _keep_highest(by_image, images.start, block, top)
        _keep_highest(by_caption, captions.start, block.T, top)
    return _last(by_image), _last(by_caption)


def _keep_highest(found: dict[int, Tensor], start: int, block: Tensor, top: int) -> None:
    """found: by the first query of a band, (queries, up to top) highest scores so far, highest first."""
    seen = block if start not in found else torch.cat([found[start], block], dim=1)
    found[start] = seen.topk(min(top, seen.shape[1]), dim=1).values


def _last(found: dict[int, Tensor]) -> Tensor:
    return torch.cat([highest[:, -1] for highest in found.values()])


def _places(scores: Tensor) -> Tensor:
    """Integers in float64 with the order and ties of float32 scores; non-finite scores stay as they are.

    The bits of float32 numbers order like integers after those of negative numbers are flipped.
    """
    single = scores.float() + 0.0  # adding 0 makes -0 and 0 the same bits
    bits = single.view(torch.int32)
    places = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).double()
    return torch.where(torch.isfinite(single), places, single.double())
